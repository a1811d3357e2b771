// The page of one provider: its limits and how full they are, what is believed of it, the last hour, its circuit, who
// waits for it, who holds its slots, and its models.

import { isPaused, letThrough, togglePause } from "./actions.js";
import { HourChart } from "./chart.js";
import { h, put, words } from "./dom.js";
import { ask, state } from "./feed.js";
import { counted, moment, per, percent, short, span, until, whole } from "./format.js";

const HOLDERS_MAX = 100;
const TURNS_SHOWN = 12;

const shown = { name: null, chart: null, asking: false, detail: null };

/** Kinds of windows, in words. */
const KINDS = { learn: "any kind, as yet", bucket: "token bucket", fixed: "fixed window", sliding: "sliding window" };

const $ = (id) => document.getElementById(id);

const heads = (...names) => h("thead", {}, h("tr", {}, names.map((name) =>
  h("th", { scope: "col", class: name.startsWith("#") ? "num" : null }, name.replace("#", "")))));

const section = (id, name, ...content) => h("section", { id, "aria-labelledby": `${id}-name` },
  h("div", { class: "head" }, h("h2", { id: `${id}-name`, class: "head-name" }, name)), ...content);

export function show(main, name) {
  shown.name = name;
  shown.detail = null;
  shown.chart = new HourChart(() => {});
  main.replaceChildren(
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / provider"),
    h("div", { class: "title", id: "provider-title" }), h("p", { class: "lede", id: "provider-lede" }),
    section("provider-limits", "Limits", h("table", { class: "stack" },
      heads("limit", "#used", "#of", "#by others", "window", "how known", "kept as", "resets"),
      h("tbody", { id: "provider-limit-rows" }))),
    section("provider-beliefs", "What its refusals have taught", h("table", { class: "stack" },
      heads("models", "#in flight", "#at most", "#per second", "held", "its word", "#probes refused", "#evidence"),
      h("tbody", { id: "provider-belief-rows" })),
    h("p", { class: "empty", id: "provider-belief-text" })),
    section("provider-hour", "The last hour", shown.chart.element),
    section("provider-waits", "Who waits for it", h("table", { class: "stack" },
      heads("lane", "#calls", "waits for", "starts", ""), h("tbody", { id: "provider-wait-rows" })),
    h("p", { class: "empty", id: "provider-waits-empty" })),
    section("provider-holds", "Who holds its slots", h("table", { class: "stack" },
      heads("call", "agent", "lane", "model", "#attempt", "#waited", "#age"), h("tbody", { id: "provider-hold-rows" })),
    h("p", { class: "empty", id: "provider-holds-empty" })),
    section("provider-models", "Its models in the last hour", h("table", { class: "stack" },
      heads("model", "#in flight", "#attempts", "#refused", "#failed", "#tokens in", "#cached", "#out", "#first byte"),
      h("tbody", { id: "provider-model-rows" })),
    h("p", { class: "empty", id: "provider-models-empty" })),
    section("provider-circuit", "Its circuit", h("table", { class: "stack" },
      heads("since", "state", "because", "process"), h("tbody", { id: "provider-turn-rows" })),
    h("p", { class: "empty" }, h("span", { id: "provider-turns-text" }), " ", h("button", {
      type: "button", class: "plain", id: "provider-turns-all", hidden: true, "aria-pressed": "false", onclick: showAll,
    }, "Show all"))));
  refresh("all");
}

export function leave() {
  shown.name = null;
  shown.chart?.observer.disconnect();
  shown.chart = null;
}

export function refresh(what) {
  if (!state.status || !shown.name) return;
  const provider = state.status.providers.find((one) => one.name === shown.name);
  if (!provider) {
    put($("provider-title"), h("h2", { class: "title-name" }, shown.name));
    $("provider-lede").textContent = "The policy has no such provider.";
    return;
  }
  title(provider);
  limits(provider);
  waits();
  follow();
  const data = state.series.get(shown.name);
  if (what !== "state" && data) shown.chart.show(shown.name, data);
}

function title(provider) {
  const paused = isPaused("provider", provider.name);
  put($("provider-title"), h("h2", { class: "title-name" }, provider.name),
    h("span", { class: provider.circuit === "closed" ? "tag calm" : "tag fail" }, `circuit ${provider.circuit}`),
    paused ? h("span", { class: "tag" }, "paused") : null,
    h("span", { class: "act" }, h("button", {
      type: "button", "data-act": "pause", onclick: () => togglePause("provider", provider.name),
    }, paused ? "Resume" : "Pause")));
  const probe = provider.probe_at ? ` The next call that may try it goes ${until(provider.probe_at)}.` : "";
  $("provider-lede").textContent = `Waiting for it: ${counted(provider.waiting, "call")}; in flight: ${whole(provider.inflight)}.${probe}`;
}

const nameOf = (one) => one.model ?? one.group;

/** The belief about a rate limit, by what the limit is for. */
function belief(limit) {
  const gate = shown.detail?.gates.find((one) => one.group === limit.group && one.model === limit.model);
  return gate?.limits.find((one) => one.measure === limit.measure && one.window_s === limit.window_s);
}

function limits(provider) {
  const line = (name, used, most, window, known, resets = "", others = "", kept = "") => h("tr", {},
    h("th", { scope: "row" }, name),
    h("td", { class: "num", "data-label": "used" }, used), h("td", { class: "num", "data-label": "of" }, most),
    h("td", { class: "num", "data-label": "by others" }, others),
    h("td", { "data-label": "window" }, window), h("td", { "data-label": "how known" }, known),
    h("td", { "data-label": "kept as" }, kept), h("td", { "data-label": "resets" }, resets));
  put($("provider-limit-rows"),
    line("in flight", whole(provider.inflight), whole(provider.limit), "", provider.learned ? "learned" : "as declared"),
    provider.limits.map((one) => line(`${one.measure}${nameOf(one) ? ` of ${nameOf(one)}` : ""}`,
      short(one.used), short(one.limit), per(one.window_s), one.declared ? "as declared" : "told by headers", "",
      short(belief(one)?.foreign), KINDS[belief(one)?.kind] ?? "")),
    provider.plans.map((one) => line(`plan, ${one.span}${one.models ? ` (${one.models})` : ""}`, percent(one.used), "100 %",
      one.window, one.account ? `account ${one.account}` : "the key", one.resets_at ? moment(one.resets_at) : "")));
}

function waits() {
  const mine = state.queue.queue.filter((row) => row.provider === shown.name);
  $("provider-waits-empty").textContent = mine.length ? "" : "No call waits for it.";
  put($("provider-wait-rows"), mine.map((row) => {
    const first = row.first.p50_at ?? row.next_at;
    return h("tr", {}, h("th", { scope: "row" }, row.lane), h("td", { class: "num", "data-label": "calls" }, whole(row.n)),
      h("td", { class: "whole" }, h("b", {}, row.reason.replaceAll("-", " ")), h("small", {}, words(row.text))),
      h("td", { "data-label": "starts" }, first ? until(first) : "when a call ends"),
      h("td", {}, h("button", {
        type: "button", "data-act": `through-${row.lane}-${row.reason}`, onclick: () => letThrough(row),
      }, "Let through")));
  }));
}

/** Ask for what the feed does not have, one question at a time. */
async function follow() {
  if (shown.asking) return;
  shown.asking = true;
  const name = shown.name;
  const query = new URLSearchParams({ state: "inflight", provider: name, limit: HOLDERS_MAX });
  const [detail, found] = await Promise.all([
    ask(`/v1/providers/${encodeURIComponent(name)}`).catch(() => null), ask(`/v1/calls?${query}`).catch(() => null),
  ]);
  shown.asking = false;
  if (shown.name !== name) return;
  if (found) holders(found.calls);
  if (!detail) return;
  shown.detail = detail;
  limits(detail.provider);
  beliefs(detail);
  models(detail.models);
  turns(detail.circuit);
}

function beliefs({ concurrency, gates }) {
  put($("provider-belief-rows"), gates.map((one) => h("tr", {},
    h("th", { scope: "row", class: "name" }, nameOf(one) ?? "all"),
    h("td", { class: "num", "data-label": "in flight" }, whole(one.inflight)),
    h("td", { class: "num", "data-label": "at most" }, whole(one.allowed)),
    h("td", { class: "num", "data-label": "per second" }, one.rate_per_s ?? ""),
    h("td", { "data-label": "held" }, one.holds_until_at ? `until ${moment(one.holds_until_at)}, ${until(one.holds_until_at)}` : ""),
    h("td", { "data-label": "its word" }, one.believed ? "believed" : "not believed"),
    h("td", { class: "num", "data-label": "probes refused" }, whole(one.probes_refused)),
    h("td", { class: "num", "data-label": "evidence" }, one.evidence_age_s === null ? "" : `${span(one.evidence_age_s)} ago`))));
  const said = gates.length ? [] : ["It has refused no call for its rate."];
  if (concurrency?.accepts) {
    const by = concurrency.accepts_until_at ? ` until ${moment(concurrency.accepts_until_at)}` : "";
    said.push(`It seems to accept ${counted(concurrency.accepts, "call")} at once${by}.`);
  }
  if (concurrency?.stays_until_at) {
    said.push(`More at once did not raise throughput: the limit does not grow before ${moment(concurrency.stays_until_at)}.`);
  }
  $("provider-belief-text").textContent = said.join(" ");
}

function models(all) {
  $("provider-models-empty").textContent = all.length ? "" : "No attempt has ended.";
  put($("provider-model-rows"), all.map((one) => h("tr", {}, h("th", { scope: "row", class: "name" }, one.model),
    h("td", { class: "num", "data-label": "in flight" }, whole(one.inflight)),
    h("td", { class: "num", "data-label": "attempts" }, whole(one.attempts)),
    h("td", { class: "num", "data-label": "refused" }, whole(one.refused)),
    h("td", { class: one.failed ? "num failed" : "num", "data-label": "failed" }, whole(one.failed)),
    h("td", { class: "num", "data-label": "tokens in" }, short(one.tokens_in)),
    h("td", { class: "num", "data-label": "cached" }, short(one.cached)),
    h("td", { class: "num", "data-label": "out" }, short(one.tokens_out)),
    h("td", { class: "num", "data-label": "first byte" }, span(one.first_byte_s)))));
}

function showAll() {
  const button = $("provider-turns-all");
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
  if (shown.detail) turns(shown.detail.circuit);
}

/** Changes of the circuit, the newest first. */
function turns(all) {
  const button = $("provider-turns-all");
  const whole = button.getAttribute("aria-pressed") === "true";
  button.hidden = all.length <= TURNS_SHOWN;
  $("provider-turns-text").textContent = all.length ? `${counted(all.length, "change")} since the start, a hundred at most.`
    : "It has been closed all the time.";
  put($("provider-turn-rows"), all.toReversed().slice(0, whole ? all.length : TURNS_SHOWN).map((one) => h("tr", {},
    h("th", { scope: "row" }, `${moment(one.at)}:${one.at.slice(17, 19)}`),
    h("td", {}, h("span", { class: one.circuit === "closed" ? "tag calm" : "tag fail" }, one.circuit)),
    h("td", { "data-label": "because" }, one.because ?? "its pause is over"),
    h("td", { "data-label": "process" }, one.worker ?? ""))));
}

function holders(calls) {
  $("provider-holds-empty").textContent = calls.length ? "" : "No call is in flight.";
  put($("provider-hold-rows"), calls.map((call) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `#/calls/${encodeURIComponent(call.id)}`, "data-act": call.id }, h("code", {}, call.id))),
    h("td", { class: "name" }, call.agent === "unknown" ? call.caller : call.agent), h("td", {}, call.lane ?? ""),
    h("td", { class: "name" }, call.sent_model ?? call.model),
    h("td", { class: "num", "data-label": "attempt" }, whole(call.attempts)),
    h("td", { class: "num", "data-label": "waited" }, span(call.waited_s)),
    h("td", { class: "num", "data-label": "age" }, span(call.age_s)))));
}
