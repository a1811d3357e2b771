// The page of one call: its story if it is over, why it waits if it is not.

import { cancelCall, firstCall } from "./actions.js";
import { h, put, svg, words } from "./dom.js";
import { ask } from "./feed.js";
import { clock, counted, money, short, span, until, whole } from "./format.js";

const shown = { id: null, again: null, live: false };

const s = (ns) => (ns === null || ns === undefined ? null : ns / 1e9);

const facts = (list) => h("dl", { class: "facts-list" }, list.filter(([, value]) => value !== "" && value !== null && value !== undefined)
  .flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

const head = (id, tag, kind, ...actions) => [
  h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / call"),
  h("div", { class: "title" }, h("h2", { class: "title-name" }, `Call ${id}`), tag ? h("span", { class: `tag ${kind}` }, tag) : null, h("span", { class: "act" }, actions)),
];

const copyId = (id) => h("button", { type: "button", "data-act": "copy", onclick: (event) => {
  navigator.clipboard?.writeText(id);
  event.target.textContent = "Copied";
} }, "Copy id");

/** "rule ci" as a link to its line in the policy, "team.hmp:61". */
function decider(one) {
  const name = `${one.by}${one.name ? ` ${one.name}` : ""}`;
  if (!one.at) return name;
  return h("a", { href: `#/policy/${encodeURIComponent(one.at)}` }, `${name}, ${one.at.split("/").at(-1)}`);
}

export async function show(main, id) {
  shown.id = id;
  shown.live = false;
  put(main, ...head(id, null, ""), h("p", { class: "empty" }, "reading …"));
  await draw(main);
}

/** Read a call in progress again; once it is over, its story. */
export async function refresh(main) {
  if (shown.live) await draw(main);
}

export function leave() {
  clearTimeout(shown.again);
  shown.id = null;
}

async function draw(main) {
  const id = shown.id;
  const path = `/v1/calls/${encodeURIComponent(id)}`;
  const known = await ask(path).catch(() => null);
  const live = known && known.state !== "ended" ? await ask(`${path}/explain`).catch(() => null) : null;
  if (shown.id !== id) return;
  if (live) {
    shown.live = true;
    put(main, ...inProgress(live));
    return;
  }
  try {
    const told = await ask(`${path}/story`);
    if (shown.id !== id) return;
    shown.live = false;
    put(main, ...over(id, told.story));
  } catch (error) {
    if (shown.id !== id) return;
    put(main, ...head(id, null, "", copyId(id)), known ? facts(ofCall(known)) : null, h("p", { class: "empty" }, words(error.message)));
    if (known) shown.again = setTimeout(() => shown.id === id && draw(main), 3000); // the journal is written in batches
  }
}

/** A session as a call in progress has it. */
function ofSession(one) {
  if (!one) return [];
  const grows = one.growth ? `, a turn adds ${short(one.growth)}` : "";
  const left = one.turns_left === null ? "" : `, full after ${counted(one.turns_left, "more turn")}`;
  return [
    ["turns", whole(one.turns)], ["context", `${short(one.context)}${one.window ? ` of ${short(one.window)}` : ""} tokens${grows}${left}`],
    ["session's cost", one.cost ? money(one.cost * 1e6) : ""], ["session's age", span(one.age_s)]];
}

/** The same of a call that is over: as it was when the call arrived. */
const wasSession = (one) => (!one ? [] : [
  ["turns before", whole(one.turns)], ["context before", one.turns ? `${short(one.context)} tokens` : ""],
  ["session's cost", one.cost ? money(one.cost) : ""], ["session's age", one.turns ? span(s(one.age_ns)) : ""]]);

const ofCall = (call) => [
  ["agent", call.agent === "unknown" ? call.caller : call.agent], ["job", call.job], ["request", `${call.method} ${call.path}`],
  ["model", call.sent_model ? `${call.model}, sent as ${call.sent_model}` : call.model], ["lane", call.lane], ["provider", call.provider],
  ["priority", call.priority === null ? "" : String(call.priority)], ["attempts", whole(call.attempts)], ["status", call.status === null ? "" : String(call.status)],
];

function inProgress(found) {
  const call = found.call;
  const waits = call.state === "waiting";
  const kind = waits ? "wait" : "flight";
  const place = found.waiting_before === null ? "" : `${whole(found.waiting_before)} of ${whole(found.waiting_in_lane)} waiting calls of its lane arrived before it`;
  const starts = found.start.p50_at ?? call.not_before_at;
  return [
    ...head(call.id, call.state, kind,
      waits ? h("button", { type: "button", "data-act": "first", onclick: () => firstCall(call.id) }, "Let through") : null,
      h("button", { type: "button", "data-act": "cancel", class: "danger", onclick: () => cancelCall(call.id) }, "Cancel"), copyId(call.id)),
    h("p", { class: "lede" }, h("b", {}, call.agent === "unknown" ? call.caller : call.agent), words(` has waited ${span(call.waited_s)} of ${span(call.age_s)}: ${found.text}`)),
    h("div", { class: "grid" },
      h("section", {}, h("div", { class: "head" }, h("h2", {}, "Now")), facts([
        ["place", place], ["starts", starts ? until(starts) : ""], ["rejected", call.deadline_at ? `if it still waits ${until(call.deadline_at)}` : ""],
        ...found.decided.map((one) => [one.setting, decider(one)])])),
      h("section", {}, h("div", { class: "head" }, h("h2", {}, "Facts")), facts([...ofCall(call), ["team", found.team ?? ""], ...ofSession(call.session)]))),
  ];
}

/** What happened, oldest first: [seconds, kind, title, text, end]. */
function events(story) {
  const found = [[0, "", "Arrived", `${story.method} ${story.path}${story.stream ? ", streaming" : ""}, about ${short(story.tokens_in)} tokens in`, ""]];
  const by = Object.entries(story.deciders).filter(([, who]) => who !== "built-in").map(([setting, who]) => `${setting}: ${who}`);
  found.push([0, "", `Decided: lane ${story.lane || "none"}`, by.join(", ") || (Object.keys(story.deciders).length ? "by defaults" : ""), ""]);
  for (const one of story.attempts) {
    const granted = s(one.granted_ns);
    if (one.waited_ns > 0 && one.reason !== "none") {
      found.push([granted - s(one.waited_ns), "wait", `Waited: ${one.reason.replaceAll("-", " ")}`, one.turn?.text ?? "", span(s(one.waited_ns))]);
    }
    const bad = one.outcome && !["succeeded", "ignored", "slow"].includes(one.outcome);
    const where = `${one.provider}${one.instead_of ? ` instead of ${one.instead_of}` : ""}, model ${one.model || "none"}, priority ${one.priority}`;
    const facts = [where, one.first_byte_ns === null ? null : `first byte after ${span(s(one.first_byte_ns))}`,
      one.failure, one.retry_after_ns === null ? null : `retry-after ${span(s(one.retry_after_ns))}`];
    found.push([granted, bad ? "fail" : "flight", `Attempt ${one.number}${one.outcome ? `: ${one.outcome}` : ""}${one.status ? `, ${one.status}` : ""}`,
      facts.filter(Boolean).join(", "), one.lasted_ns === null ? "" : span(s(one.lasted_ns))]);
    if (one.unretried) found.push([granted + s(one.lasted_ns), "fail", `Not retried: ${one.unretried.replaceAll("-", " ")}`, "", ""]);
  }
  if (story.left_ns !== null) found.push([s(story.left_ns), "fail", "The client disconnected while the call waited", story.reason === "none" ? "" : story.reason.replaceAll("-", " "), ""]);
  const end = s(story.total_ns);
  if (story.refused !== null) found.push([end ?? s(story.waited_ns), "fail", `Rejected by the proxy: ${story.refused.replaceAll("-", " ")}`, story.message ?? "", ""]);
  else if (end !== null) found.push([end, "", story.status ? `Answered with ${story.status}` : "The client disconnected", "", ""]);
  return found;
}

/** Waits and attempts to scale. */
function scale(story, total) {
  const part = (seconds) => `${seconds / total * 100}%`;
  const shapes = [svg("rect", { class: "w", width: "100%", height: 20 })];
  for (const one of story.attempts) {
    const from = s(one.granted_ns);
    const lasted = s(one.lasted_ns) ?? 0;
    const bad = one.outcome && !["succeeded", "ignored", "slow"].includes(one.outcome);
    shapes.push(svg("rect", { class: bad ? "e" : "u", x: part(from), width: part(Math.max(lasted, total / 400)), height: 20 }));
  }
  return h("section", {}, h("div", { class: "head" }, h("h2", {}, "To scale"), h("span", { class: "end" }, span(total))),
    svg("svg", { class: "scale", role: "img", "aria-label": `${span(s(story.waited_ns))} of ${span(total)} were waits` }, shapes,
      svg("text", { x: 0, y: 36 }, "0"), svg("text", { x: "50%", y: 36, "text-anchor": "middle" }, span(total / 2)), svg("text", { x: "100%", y: 36, "text-anchor": "end" }, span(total))));
}

function over(id, story) {
  const begun = story.wall_ns / 1e6;
  const total = s(story.total_ns) ?? 0;
  const failed = (story.status ?? 0) >= 400 || story.refused !== null;
  const attempts = story.attempts.length;
  const tag = story.refused !== null ? `${story.status ?? ""} ${story.refused}` : `${story.status ?? "no answer"}${attempts > 1 ? ` at attempt ${attempts}` : ""}`;
  const waits = story.attempts.filter((one) => one.waited_ns > 0 && one.reason !== "none").map((one) => `${one.reason.replaceAll("-", " ")} ${span(s(one.waited_ns))}`);
  const tokens = story.attempts.findLast((one) => one.tokens)?.tokens;
  const cost = story.attempts.reduce((sum, one) => sum + (one.cost_microusd ?? 0), 0);
  return [
    ...head(id, tag, failed ? "fail" : "flight", copyId(id)),
    h("p", { class: "lede" }, h("b", {}, story.agent === "unknown" ? story.caller : story.agent), ` waited ${span(s(story.waited_ns))} of ${span(total)}`, waits.length ? `: ${waits.join(", ")}.` : "."),
    total ? scale(story, total) : null,
    h("div", { class: "grid" },
      h("section", {}, h("div", { class: "head" }, h("h2", {}, "Story"), h("span", { class: "end" }, "from the journal")),
        h("ol", { class: "story" }, events(story).map(([at, kind, title, text, end]) => h("li", { class: kind },
          h("time", {}, clock(new Date(begun + at * 1000))), h("span", { class: "at" }, span(Math.max(0, at))), h("span", { class: "dot", "aria-hidden": "true" }),
          h("span", {}, h("b", {}, title), text ? h("small", {}, words(text)) : null), h("span", {}, end))))),
      h("div", {},
        story.faster ? h("section", {}, h("div", { class: "head" }, h("h2", {}, "What would have made it faster")), h("p", { class: "lede" }, words(story.faster))) : null,
        h("section", {}, h("div", { class: "head" }, h("h2", {}, "Facts")), facts([
          ["arrived", new Date(begun).toLocaleString("en-GB")],
          ["agent", story.agent], ["caller", story.caller], ["team", story.team === "none" ? "" : story.team], ["job", story.job], ["model", story.model],
          ["tokens", tokens ? Object.entries(tokens).filter(([, n]) => n).map(([name, n]) => `${short(n)} ${name.replaceAll("_", " ")}`).join(", ") : ""],
          ["cost", cost ? money(cost) : ""], ...wasSession(story.session), ["policy", h("code", {}, story.policy.slice(0, 8))]])))),
  ];
}
