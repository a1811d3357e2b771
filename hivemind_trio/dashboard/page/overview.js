// The overview: who waits, what binds, the last hour, who uses it, what to change, the last calls.

import { cancelRow, isPaused, letThrough, togglePause } from "./actions.js";
import { HourChart } from "./chart.js";
import { bar, h, put, rows, svg, words } from "./dom.js";
import { state } from "./feed.js";
import { amount, clock, counted, moment, money, per, percent, short, span, until, whole } from "./format.js";

const view = { provider: null, filter: "all", search: "", unfolded: new Set(), cursor: null };
let chart = null;

const FILTERS = {
  all: () => true,
  waited: (call) => call.waited_s >= 0.1,
  retried: (call) => call.attempts > 1,
  refused: (call) => call.attempts === 0 && (call.status ?? 0) >= 400,
  failed: (call) => call.attempts > 0 && ((call.status ?? 0) >= 400 || call.status === null),
};

const section = (id, name, end, ...content) =>
  h("section", { id, "aria-labelledby": `${id}-name` },
    h("div", { class: "head" }, h("h2", { id: `${id}-name`, class: "head-name" }, name), end), ...content);

const heads = (...names) => h("thead", {}, h("tr", {}, names.map((name) =>
  h("th", { scope: "col", class: name.startsWith("#") ? "num" : null }, name.replace("#", "")))));

/** The sections, empty: `update` fills them. */
export function build() {
  chart = new HourChart((place) => {
    view.cursor = place;
    legend();
  });
  const filters = Object.keys(FILTERS).map((name) => h("button", {
    type: "button", class: "plain", "data-filter": name, "aria-pressed": String(view.filter === name),
    onclick: () => {
      view.filter = name;
      calls();
    },
  }, name));
  const search = h("input", {
    id: "search", type: "search", placeholder: "agent, model, job or call", "aria-label": "Search the last calls", value: view.search,
    oninput: (event) => {
      view.search = event.target.value;
      calls();
    },
  });
  return [
    h("dl", { class: "figures", id: "figures" }),
    h("div", { class: "grid first" },
      section("waits", "Who waits, for what, until when", h("p", { class: "end", id: "waits-sum" }),
        h("table", { class: "stack" }, heads("lane", "#calls", "waits for", "starts", ""), h("tbody", { id: "waits-rows" })),
        h("p", { class: "empty", id: "waits-empty" })),
      section("binds", "What binds", h("p", { class: "end", id: "binds-sum" }), h("div", { id: "binds-list" })),
      section("hour", "The last hour", h("p", { class: "end" }, h("span", { id: "hour-tabs", class: "act" })),
        h("p", { class: "legend", id: "hour-legend" }), chart.element,
        h("button", { type: "button", class: "plain", id: "hour-as-table", "aria-expanded": "false", onclick: asTable }, "as a table"),
        h("div", { id: "hour-table", hidden: true, class: "scroll" }))),
    h("div", { class: "grid rest" },
      section("who", "Who uses it", h("p", { class: "end", id: "who-sum" }),
        h("table", { class: "stack" },
          heads("team, agent, session", "#calls", "#tokens in", "#cached", "#out", "#cost", "#wait p50", "#wait p95", "#of fair share"),
          h("tbody", { id: "who-rows" })),
        h("p", { id: "who-more", class: "small", hidden: true }),
        h("p", { class: "small" }, "1.0×: a team's part of all tokens is that of its weight, an agent's an equal part of its team's.")),
      section("sessions", "Sessions", h("p", { class: "end", id: "sessions-sum" }),
        h("table", { class: "stack" },
          heads("session", "agent", "model", "#turns", "context", "#a turn adds", "#turns left", "#cost", "#age"),
          h("tbody", { id: "sessions-rows" })),
        h("p", { class: "small" }, "Turns left: until the model's context window is full, if each adds as many tokens as those before.")),
      section("change", "What to change", h("p", { class: "end", id: "change-sum" }),
        h("p", { id: "change-text" }), h("ul", { id: "change-list" }), h("p", { class: "small", id: "change-basis" })),
      section("lanes", "Lanes", null,
        h("table", {}, heads("lane", "#waiting", "#in flight", ""), h("tbody", { id: "lanes-rows" }))),
      section("nodes", "Nodes", h("p", { class: "end", id: "nodes-sum" }),
        h("table", { class: "stack" }, heads("node", "state", "policy", "provider", "#share", "#in flight", "#waiting"),
          h("tbody", { id: "nodes-rows" })),
        h("p", { class: "small" }, "Nodes, or workers, that share these limits. The one that leads learns from the attempts of all.")),
      h("div", { class: "wide" },
        section("calls", "Last calls", h("p", { class: "end" }, filters, search),
          h("table", { class: "stack" },
            heads("at", "call", "agent", "model", "lane", "#waited", "for", "answer", "#attempts", "waited, upstream", "#took"),
            h("tbody", { id: "calls-rows" })),
          h("p", { class: "empty", id: "calls-empty" })))),
  ];
}

const $ = (id) => document.getElementById(id);

export function update(what) {
  if (!$("figures") || !state.status) return;
  if (what !== "series") {
    figures();
    waits();
    binds();
    lanes();
    nodes();
    calls();
  }
  if (what !== "state") {
    who();
    sessions();
    change();
    hour();
  }
}

const figure = (name, id, big, rest) => h("div", {}, h("dt", {}, name), h("dd", {}, h("b", { id: `figure-${id}` }, big), " ", rest));

function figures() {
  const now = state.status;
  const usage = state.usage?.usage;
  put($("figures"),
    figure(now.oldest_wait_s === null ? "waiting" : `waiting, oldest ${span(now.oldest_wait_s)}`, "waiting", whole(now.waiting), ""),
    figure("in flight", "inflight", whole(now.inflight), `of ${whole(now.cap)}`),
    figure("calls", "rate", whole(now.calls.per_min), "/min"),
    figure("failed since the start", "failed", whole(now.calls.failed), `of ${whole(now.calls.ended)}`),
    figure("rejected since the start", "rejected", whole(now.calls.rejected), now.calls.unread ? `and ${whole(now.calls.unread)} unread, for overload` : ""),
    usage ? figure("cost of the last hour", "cost", money(usage.cost), "") : null,
    usage ? figure("wait p95 of the last hour", "wait", span(usage.wait_p95_s), "") : null);
}

/** The starts of a row, as far as they are known. */
function starts(row) {
  const first = row.first.p50_at ?? row.next_at;
  const last = row.last.p50_at;
  const late = row.last.p90_at;
  const main = first ? (last && row.n > 1 ? `next ${until(first)}, last ${until(last)}` : until(first)) : "when a call ends";
  const deadline = row.first_deadline_at ? `the first is rejected ${until(row.first_deadline_at)}` : null;
  return [h("b", {}, main), late ? h("small", {}, `${row.n > 1 ? "all of them, " : ""}90 %: ${until(late)}`) : null, deadline ? h("small", {}, deadline) : null];
}

function waits() {
  const queue = state.queue;
  $("waits-sum").textContent = queue.waiting ? `${whole(queue.waiting)} waiting, oldest ${span(state.status.oldest_wait_s)}` : "";
  $("waits-empty").textContent = queue.waiting ? "" : state.status.calls.ended || state.status.inflight
    ? "Nothing waits."
    : `No call yet. Agents reach the proxy at ${state.status.address}; \`hivemind-trio setup\` shows how.`;
  rows($("waits-rows"), queue.queue, (row) => `${row.lane}|${row.provider}|${row.reason}`, (row) => {
    const line = h("tr", { tabindex: 0 },
      h("th", { scope: "row", "data-label": "" }, h("b", {}, row.lane)),
      h("td", { class: "num" }, h("span", { class: "count" }, whole(row.n))),
      h("td", { class: "whole" }, h("b", {}, row.reason.replaceAll("-", " ")), h("small", {}, words(row.text)),
        h("small", {}, `${counted(row.agents, "agent")}${row.provider ? `, ${row.provider}` : ""}`)),
      h("td", {}, starts(row), h("small", {}, `oldest has waited ${span(row.oldest_s)}`)),
      h("td", {}, h("div", { class: "act" },
        h("button", { type: "button", "data-act": "through", onclick: () => letThrough(row) }, "Let through"),
        h("button", { type: "button", "data-act": "cancel", onclick: () => cancelRow(row) }, "Cancel"))));
    line.act = { l: () => letThrough(row), c: () => cancelRow(row) };
    return line;
  });
}

/** One limit: name, how full, and what is said of it. */
function limit(name, used, most, words, { binds = false, tag = null, left = "", right = "", tick = null } = {}) {
  return h("div", { class: binds ? "limit binds" : "limit" },
    h("p", {}, h("span", {}, name, tag ? h("span", { class: "tag" }, tag) : null), h("span", {}, words)),
    bar(most ? used / most : 1, tick),
    left || right ? h("p", { class: "under" }, h("span", {}, left), h("span", {}, right)) : null);
}

const reasonsOf = (provider) => (state.queue.queue ?? []).filter((row) => row.provider === provider);

function binds() {
  const parts = [];
  let binding = 0;
  for (const provider of state.status.providers) {
    const waiting = reasonsOf(provider.name);
    const slots = waiting.filter((row) => row.reason === "provider-concurrency").reduce((sum, row) => sum + row.n, 0);
    const paused = isPaused("provider", provider.name);
    binding += slots > 0;
    parts.push(h("div", { class: "provider" },
      h("h3", {}, h("a", { href: `#/providers/${encodeURIComponent(provider.name)}`, "data-act": `open-${provider.name}` }, provider.name)),
      provider.circuit === "closed" ? null : h("span", { class: "tag fail" }, `circuit ${provider.circuit}`),
      paused ? h("span", { class: "tag" }, "paused") : null,
      h("span", { class: "end" }, provider.probe_at ? `probe ${until(provider.probe_at)}` : `${counted(provider.waiting, "call")} waiting`),
      h("button", { type: "button", class: "plain", "data-act": `pause-${provider.name}`, onclick: () => togglePause("provider", provider.name) },
        paused ? "Resume" : "Pause")));
    parts.push(limit("in flight", provider.inflight, provider.limit, `${whole(provider.inflight)} of ${whole(provider.limit)}`, {
      binds: slots > 0, tag: slots > 0 ? "binds" : null, left: provider.learned ? "learned" : "as declared",
      right: slots ? `binds ${counted(slots, "call")}` : "" }));
    const fullest = Math.max(...provider.limits.map((one) => one.used / one.limit));
    const held = waiting.filter((row) => row.reason === "limits").reduce((sum, row) => sum + row.n, 0);
    for (const one of provider.limits) {
      const full = held > 0 && one.used / one.limit === fullest;
      binding += full;
      const name = `${one.measure}${one.model || one.group ? ` of ${one.model ?? one.group}` : ""}`;
      parts.push(limit(name, one.used, one.limit, `${short(one.used)} of ${short(one.limit)}/${per(one.window_s)}`, {
        binds: full, tag: full ? "binds" : null, left: one.declared ? "as declared" : "told by headers",
        right: full ? `binds ${counted(held, "call")}` : "" }));
    }
    for (const plan of provider.plans) {
      const full = plan.used >= 1;
      binding += full;
      parts.push(limit(`plan, ${plan.span}${plan.models ? ` (${plan.models})` : ""}`, plan.used, 1, percent(plan.used), {
        binds: full, tag: full ? "used up" : null, left: plan.account ? `account ${plan.account}` : "the key",
        right: plan.resets_at ? `resets ${moment(plan.resets_at)}` : "" }));
    }
  }
  const accounts = [...state.budgets.budgets].sort((one, other) => other.share - one.share).slice(0, 12);
  if (accounts.length) parts.push(h("div", { class: "provider" }, h("h3", {}, "budgets")));
  for (const one of accounts) {
    const full = one.share >= 1;
    binding += full;
    parts.push(limit(`${one.budget}${one.whose ? `: ${one.whose}` : ""}`, one.spent, one.amount,
      `${amount(one.spent, one.measure)} of ${one.allowance}`, {
        binds: full, tag: full ? "used up" : null, left: one.held ? `holds ${counted(one.held, "call")}` : "",
        right: one.resets_at ? `resets ${moment(one.resets_at)}` : "" }));
  }
  const resources = state.resources?.resources ?? [];
  if (resources.length) parts.push(h("div", { class: "provider" }, h("h3", {}, "resources")));
  for (const one of resources) {
    binding += one.waiting > 0;
    const holders = one.leases.map((lease) => (lease.agent === "unknown" ? lease.caller : lease.agent));
    parts.push(limit(one.name, one.leases.length, one.capacity,
      `${whole(one.leases.length)} of ${counted(one.capacity, "lease")}`, {
        binds: one.waiting > 0, tag: one.removed ? "removed" : one.waiting ? "binds" : null,
        left: holders.slice(0, 3).join(", ") + (holders.length > 3 ? ", ..." : ""),
        right: one.waiting ? `${counted(one.waiting, "request")} waiting` : "" }));
  }
  $("binds-sum").textContent = `${counted(parts.filter((one) => one.classList.contains("limit")).length, "limit")}: ${binding} bind`;
  put($("binds-list"), ...parts);
}

function lanes() {
  rows($("lanes-rows"), state.status.lanes, (lane) => lane.name, (lane) => h("tr", {},
    h("th", { scope: "row" }, lane.name, isPaused("lane", lane.name) ? h("span", { class: "tag" }, "paused") : null),
    h("td", { class: "num" }, whole(lane.waiting)), h("td", { class: "num" }, whole(lane.inflight)),
    h("td", {}, h("div", { class: "act" }, h("button", {
      type: "button", class: "plain", "data-act": "pause", onclick: () => togglePause("lane", lane.name),
    }, isPaused("lane", lane.name) ? "Resume" : "Pause")))));
}

function nodes() {
  const found = state.status.nodes ?? [];
  $("nodes").hidden = !found.length;
  const alive = found.filter((node) => node.state === "alive").length;
  const policies = new Set(found.filter((node) => node.state === "alive" && node.policy).map((node) => node.policy)).size;
  const apart = state.status.counted_by_each ? `; each counts ${state.status.counted_by_each} for itself` : "";
  put($("nodes-sum"), words(`${whole(alive)} of ${whole(found.length)} alive${policies > 1 ? `, ${policies} policies` : ""}${apart}`));
  const lines = found.flatMap((node) => (node.shares.length ? node.shares : [null]).map((share, place) => ({ node, share, place })));
  rows($("nodes-rows"), lines, (line) => `${line.node.name}|${line.share?.provider}`, ({ node, share, place }) => h("tr", {},
    h("th", { scope: "row", class: "name" }, place ? "" : node.name, !place && node.own ? h("span", { class: "dim" }, " this") : null),
    h("td", { "data-label": "state" }, place ? "" : node.state === "alive" ? "alive" : `${node.state} for ${span(node.seen_s)}`),
    h("td", { "data-label": "policy" }, place ? "" : node.policy?.slice(0, 8) ?? ""),
    h("td", { "data-label": "provider" }, share?.provider ?? "", share?.leads ? h("span", { class: "tag" }, "leads") : null),
    ["share", "inflight", "waiting"].map((name) =>
      h("td", { class: "num", "data-label": name.replace("inflight", "in flight") }, share ? whole(share[name]) : ""))));
}

// ---- the last hour ----

function hour() {
  const names = [...state.series.keys()];
  if (!names.length) return;
  if (!state.series.has(view.provider)) view.provider = names[0];
  put($("hour-tabs"), names.map((name) => h("button", {
    type: "button", class: "plain", "data-act": name, "aria-pressed": String(name === view.provider),
    onclick: () => {
      view.provider = name;
      hour();
    },
  }, name)));
  chart.show(view.provider, state.series.get(view.provider));
  legend();
  if (!$("hour-table").hidden) table();
}

function legend() {
  const data = state.series.get(view.provider);
  if (!data?.at.length || !$("hour-legend")) return;
  const place = view.cursor ?? data.at.length - 1;
  const item = (mark, name, column) => h("span", {}, h("span", { class: `mark ${mark}` }), `${name} `, h("b", {}, whole(data[column][place])));
  put($("hour-legend"), h("b", {}, clock(new Date(data.at[place] * 1000))), item("limit-mark", "limit", "limit"),
    item("flight", "in flight", "inflight"), item("wait", "waiting", "waiting"), item("down", "failed", "failed"), item("rate", "refused", "refused"));
}

function asTable(event) {
  const hidden = !$("hour-table").hidden;
  $("hour-table").hidden = hidden;
  event.target.setAttribute("aria-expanded", String(!hidden));
  if (!hidden) table();
}

/** A row a minute: what the chart shows, for those who do not see it. */
function table() {
  const data = state.series.get(view.provider);
  const minutes = new Map();
  data.at.forEach((at, place) => {
    const minute = Math.floor(at / 60);
    const row = minutes.get(minute) ?? { limit: 0, inflight: 0, waiting: 0, refused: 0, failed: 0 };
    for (const name of ["limit", "inflight", "waiting"]) row[name] = Math.max(row[name], data[name][place]);
    for (const name of ["refused", "failed"]) row[name] += data[name][place];
    minutes.set(minute, row);
  });
  const cells = (row) => ["limit", "inflight", "waiting", "refused", "failed"].map((name) => h("td", { class: "num" }, whole(row[name])));
  put($("hour-table"), h("table", {}, heads("minute", "#limit", "#in flight", "#waiting", "#refused", "#failed"),
    h("tbody", {}, [...minutes].reverse().map(([minute, row]) =>
      h("tr", {}, h("th", { scope: "row" }, clock(new Date(minute * 60_000)).slice(0, 5)), cells(row))))));
}

// ---- who uses it ----

/** Agents of a team, and sessions of an agent: one who invents names would fill the page with up to 2,000 of them. */
const PARTS_SHOWN = 50;

function who() {
  if (!state.usage) return;
  const { usage, teams } = state.usage;
  $("who-sum").textContent = `last hour, ${counted(teams.reduce((sum, team) => sum + team.agents.length, 0), "agent")}, ${counted(usage.calls, "call")}`;
  const lines = [];
  let left = 0;
  const first = (all) => {
    left += Math.max(0, all.length - PARTS_SHOWN);
    return all.slice(0, PARTS_SHOWN);
  };
  for (const team of teams) {
    const id = `team ${team.team}`;
    lines.push({ id, level: 0, name: team.team === "none" ? "no team" : team.team, more: `weight ${team.weight}`, usage: team.usage, folds: team.agents.length > 0 });
    // A team is open until it is folded, an agent is folded until it is opened.
    if (view.unfolded.has(id)) continue;
    for (const agent of first(team.agents)) {
      const inner = `${id} agent ${agent.agent}`;
      lines.push({ id: inner, level: 1, name: agent.agent, more: "", usage: agent.usage, folds: agent.sessions.length > 0 });
      if (view.unfolded.has(inner)) {
        for (const one of first(agent.sessions)) lines.push({ id: `${inner} ${one.session}`, level: 2, name: one.session, more: "", usage: one.usage, folds: false });
      }
    }
  }
  $("who-more").hidden = !left;
  $("who-more").textContent = `${counted(left, "further row")}: hivemind-trio usage --by agent`;
  rows($("who-rows"), lines, (line) => line.id, (line) => {
    const one = line.usage;
    const isOpen = (line.level === 0) !== view.unfolded.has(line.id);
    const fold = () => {
      view.unfolded.has(line.id) ? view.unfolded.delete(line.id) : view.unfolded.add(line.id);
      who();
    };
    const cell = (name, text) => h("td", { class: "num", "data-label": name }, text);
    const row = h("tr", { class: `level-${line.level}`, tabindex: 0 },
      h("th", { scope: "row", class: "whole name" }, line.folds
        ? h("button", { type: "button", class: "fold", "data-act": "fold", "aria-expanded": String(isOpen), "aria-label": `${line.name}: parts`, onclick: fold }, isOpen ? "▾" : "▸")
        : null, line.level === 0 ? h("b", {}, line.name) : line.name, line.more ? h("span", { class: "dim" }, ` ${line.more}`) : null),
      cell("calls", whole(one.calls)), cell("tokens in", short(one.tokens_in)),
      cell("cached", one.tokens_in ? percent(one.cached / one.tokens_in) : ""), cell("out", short(one.tokens_out)),
      cell("cost", one.cost ? money(one.cost) : ""), cell("wait p50", span(one.wait_p50_s)), cell("wait p95", span(one.wait_p95_s)),
      cell("of fair share", one.share === null ? "" : `${one.share.toFixed(1)}×`));
    if (line.folds) {
      row.open = fold;
      row.act = { ArrowRight: () => isOpen || fold(), ArrowLeft: () => isOpen && fold() };
    }
    return row;
  });
}

// ---- sessions ----

function sessions() {
  const found = state.sessions?.sessions ?? [];
  $("sessions").hidden = !found.length;
  $("sessions-sum").textContent = "last hour, the fullest first";
  rows($("sessions-rows"), found, (one) => `${one.agent} ${one.session}`, (one) => {
    const cell = (name, text) => h("td", { class: "num", "data-label": name }, text);
    const part = one.window ? one.context / one.window : null;
    return h("tr", { tabindex: 0 },
      h("th", { scope: "row", class: "name" }, one.session), h("td", { class: "name" }, one.agent), h("td", { class: "name" }, one.model),
      cell("turns", whole(one.turns)),
      h("td", { "data-label": "context" }, part === null ? short(one.context) : `${short(one.context)} of ${short(one.window)}, ${percent(part)}`, part === null ? null : bar(part)),
      cell("a turn adds", one.growth ? short(one.growth) : ""), cell("turns left", whole(one.turns_left)),
      cell("cost", one.cost ? money(one.cost * 1e6) : ""), cell("age", span(one.age_s)));
  });
}

// ---- what to change ----

function change() {
  const found = state.advice;
  if (!found) return;
  $("change-sum").textContent = found.at ? `simulated at ${clock(new Date(found.at))}` : "";
  put($("change-text"), words(`${found.text[0].toUpperCase()}${found.text.slice(1)}.`));
  put($("change-list"), found.advice.map((one) => h("li", {}, words(one.text))));
  $("change-basis").textContent = found.state === "ready"
    ? `${counted(found.calls, "call")} over ${span(found.span_s)}, replayed with each of ${whole(found.tried)} limits lifted by half, one at a time.` : "";
}

// ---- the last calls ----

const sought = (call) => [call.id, call.agent, call.caller, call.model, call.job].join(" ").toLowerCase().includes(view.search.toLowerCase());

function answered(call) {
  if (call.status === null) return h("span", { class: "dim" }, "left");
  return call.status >= 400 ? h("span", { class: "failed" }, `${call.status}${call.attempts ? "" : `, ${call.reason}`}`) : String(call.status);
}

function calls() {
  const ended = [...state.ended.calls].reverse();
  document.querySelectorAll("[data-filter]").forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.filter === view.filter)));
  const shown = ended.filter((call) => FILTERS[view.filter](call) && sought(call));
  $("calls-empty").textContent = shown.length ? "" : ended.length ? "No call fits." : "No call is over yet.";
  const longest = Math.max(1, ...shown.map((call) => call.age_s));
  rows($("calls-rows"), shown, (call) => call.id, (call) => {
    const wait = Math.min(call.waited_s, call.age_s) / longest * 100;
    const upstream = call.attempts ? call.age_s / longest * 100 - wait : 0;
    const failed = (call.status ?? 0) >= 400;
    const row = h("tr", { tabindex: 0 },
      h("td", { class: "nowrap" }, clock(new Date(call.ended_at))),
      h("td", { class: "nowrap" }, h("a", { href: `#/calls/${encodeURIComponent(call.id)}` }, h("code", {}, call.id))),
      h("td", { class: "name" }, call.agent === "unknown" ? call.caller : call.agent), h("td", { class: "name" }, call.sent_model ?? call.model), h("td", {}, call.lane ?? ""),
      h("td", { class: "num", "data-label": "waited" }, span(call.waited_s)), h("td", { class: "dim" }, call.reason === "none" ? "" : call.reason.replaceAll("-", " ")),
      h("td", { "data-label": "answer" }, answered(call)), h("td", { class: "num", "data-label": "attempts" }, whole(call.attempts)),
      h("td", { class: "whole" }, svg("svg", { class: "bars", "aria-hidden": "true" },
        svg("rect", { class: "w", width: `${wait}%`, height: 4, y: 4 }),
        svg("rect", { class: failed ? "e" : "u", x: `${wait}%`, width: `${Math.max(0, upstream)}%`, height: 10, y: 1 }))),
      h("td", { class: "num", "data-label": "took" }, span(call.age_s)));
    row.open = () => (location.hash = `#/calls/${encodeURIComponent(call.id)}`);
    return row;
  });
}
