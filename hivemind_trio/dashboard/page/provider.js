// The page of one provider: its limits and how full they are, the last hour, who waits for it and who holds its slots.

import { isPaused, letThrough, togglePause } from "./actions.js";
import { HourChart } from "./chart.js";
import { h, put } from "./dom.js";
import { ask, state } from "./feed.js";
import { counted, moment, per, percent, short, span, until, whole } from "./format.js";

const HOLDERS_MAX = 100;

const shown = { name: null, chart: null, asking: false, calls: null };

const $ = (id) => document.getElementById(id);

const heads = (...names) => h("thead", {}, h("tr", {}, names.map((name) =>
  h("th", { scope: "col", class: name.startsWith("#") ? "num" : null }, name.replace("#", "")))));

const section = (id, name, ...content) => h("section", { id, "aria-labelledby": `${id}-name` },
  h("div", { class: "head" }, h("h2", { id: `${id}-name`, class: "head-name" }, name)), ...content);

export function show(main, name) {
  shown.name = name;
  shown.calls = null;
  shown.chart = new HourChart(() => {});
  main.replaceChildren(
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / provider"),
    h("div", { class: "title", id: "provider-title" }), h("p", { class: "lede", id: "provider-lede" }),
    section("provider-limits", "Limits", h("table", { class: "stack" },
      heads("limit", "#used", "#of", "window", "how known", "resets"), h("tbody", { id: "provider-limit-rows" }))),
    section("provider-hour", "The last hour", shown.chart.element),
    section("provider-waits", "Who waits for it", h("table", { class: "stack" },
      heads("lane", "#calls", "waits for", "starts", ""), h("tbody", { id: "provider-wait-rows" })),
    h("p", { class: "empty", id: "provider-waits-empty" })),
    section("provider-holds", "Who holds its slots", h("table", { class: "stack" },
      heads("call", "agent", "lane", "model", "#attempt", "#waited", "#age"), h("tbody", { id: "provider-hold-rows" })),
    h("p", { class: "empty", id: "provider-holds-empty" })));
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
  holders();
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

function limits(provider) {
  const line = (name, used, most, window, known, resets = "") => h("tr", {}, h("th", { scope: "row" }, name),
    h("td", { class: "num", "data-label": "used" }, used), h("td", { class: "num", "data-label": "of" }, most),
    h("td", { "data-label": "window" }, window), h("td", { "data-label": "how known" }, known),
    h("td", { "data-label": "resets" }, resets));
  put($("provider-limit-rows"),
    line("in flight", whole(provider.inflight), whole(provider.limit), "", provider.learned ? "learned" : "as declared"),
    provider.limits.map((one) => line(`${one.measure}${one.model || one.group ? ` of ${one.model ?? one.group}` : ""}`,
      short(one.used), short(one.limit), per(one.window_s), one.declared ? "as declared" : "told by headers")),
    provider.plans.map((one) => line(`plan, ${one.span}${one.models ? ` (${one.models})` : ""}`, percent(one.used), "100 %",
      one.window, one.account ? `account ${one.account}` : "the key", one.resets_at ? moment(one.resets_at) : "")));
}

function waits() {
  const mine = state.queue.queue.filter((row) => row.provider === shown.name);
  $("provider-waits-empty").textContent = mine.length ? "" : "No call waits for it.";
  put($("provider-wait-rows"), mine.map((row) => {
    const first = row.first.p50_at ?? row.next_at;
    return h("tr", {}, h("th", { scope: "row" }, row.lane), h("td", { class: "num", "data-label": "calls" }, whole(row.n)),
      h("td", { class: "whole" }, h("b", {}, row.reason.replaceAll("-", " ")), h("small", {}, row.text)),
      h("td", { "data-label": "starts" }, first ? until(first) : "when a call ends"),
      h("td", {}, h("button", {
        type: "button", "data-act": `through-${row.lane}-${row.reason}`, onclick: () => letThrough(row),
      }, "Let through")));
  }));
}

/** Ask for the calls in flight, one question at a time. */
async function holders() {
  if (shown.asking) return;
  shown.asking = true;
  const name = shown.name;
  const query = new URLSearchParams({ state: "inflight", provider: name, limit: HOLDERS_MAX });
  const found = await ask(`/v1/calls?${query}`).catch(() => null);
  shown.asking = false;
  if (!found || shown.name !== name) return;
  $("provider-holds-empty").textContent = found.calls.length ? "" : "No call is in flight.";
  put($("provider-hold-rows"), found.calls.map((call) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `#/calls/${encodeURIComponent(call.id)}`, "data-act": call.id }, h("code", {}, call.id))),
    h("td", { class: "name" }, call.agent === "unknown" ? call.caller : call.agent), h("td", {}, call.lane ?? ""),
    h("td", { class: "name" }, call.sent_model ?? call.model),
    h("td", { class: "num", "data-label": "attempt" }, whole(call.attempts)),
    h("td", { class: "num", "data-label": "waited" }, span(call.waited_s)),
    h("td", { class: "num", "data-label": "age" }, span(call.age_s)))));
}
