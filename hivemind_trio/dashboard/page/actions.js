// What an operator can do. Each is confirmed in place, with number and effect.

import { counted } from "./format.js";
import { ask, state } from "./feed.js";
import { h, words } from "./dom.js";

const $ = (id) => document.getElementById(id);

/** Ask before acting. The focus starts on the action; where it destroys something, on keeping. */
function confirm(title, text, yes, no, destroys) {
  const dialog = $("confirm");
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = text;
  $("confirm-yes").textContent = yes;
  $("confirm-no").textContent = no;
  $("confirm-yes").className = destroys ? "danger" : "";
  dialog.showModal();
  (destroys ? $("confirm-no") : $("confirm-yes")).focus();
  return new Promise((resolve) => {
    $("confirm-yes").onclick = () => dialog.close("yes");
    $("confirm-no").onclick = () => dialog.close("no");
    dialog.onclose = () => resolve(dialog.returnValue === "yes");
    dialog.returnValue = "";
  });
}

/** Say what went wrong, where the content begins. */
export function problem(text) {
  $("problem")?.remove();
  $("main").prepend(h("p", { id: "problem", role: "alert" }, words(text)));
  setTimeout(() => $("problem")?.remove(), 10_000);
}

async function tried(act) {
  try {
    await act();
  } catch (error) {
    problem(error.message);
  }
}

const ofRow = (row) => `${row.lane}${row.provider ? ` for ${row.provider}` : ""}`;

/** Ids of the calls of a row of the queue, oldest first. */
async function callsOf(row) {
  const query = new URLSearchParams({ state: "waiting", lane: row.lane });
  if (row.provider) query.set("provider", row.provider);
  const found = await ask(`/v1/calls?${query}`);
  return found.calls.filter((call) => call.reason === row.reason).map((call) => call.id);
}

async function each(ids, act) {
  let failed = 0;
  for (const id of ids) await ask(`/v1/calls/${encodeURIComponent(id)}/${act.path}`, act.body).catch(() => (failed += 1));
  if (failed) problem(`${counted(failed, "call")} of ${ids.length} did not wait any more, or cannot be let go`);
}

export async function letThrough(row) {
  const text = `${counted(row.n, "call")} of lane ${ofRow(row)}: they go next, past their turn and the limits of `
    + "lanes and agents, as soon as the provider has room. Budgets and pauses still hold.";
  if (!(await confirm(`Let ${counted(row.n, "call")} through?`, text, `Let ${row.n} through`, "Keep waiting", false))) return;
  await tried(async () => each(await callsOf(row), { path: "let-through", body: {} }));
}

export async function cancelRow(row) {
  const text = `${counted(row.n, "call")} of lane ${ofRow(row)} get 403, which clients do not retry.`;
  if (!(await confirm(`Cancel ${counted(row.n, "call")}?`, text, `Cancel ${counted(row.n, "call")}`, "Keep waiting", true))) return;
  await tried(async () => each(await callsOf(row), { path: "cancel", body: {} }));
}

export async function cancelCall(id) {
  const text = "An agent that has had nothing yet gets 403; an answer that has begun is broken off.";
  if (!(await confirm(`Cancel call ${id}?`, text, "Cancel the call", "Let it go on", true))) return;
  await tried(() => ask(`/v1/calls/${encodeURIComponent(id)}/cancel`, {}));
}

export async function firstCall(id) {
  await tried(() => ask(`/v1/calls/${encodeURIComponent(id)}/let-through`, {}));
}

export const isPaused = (kind, name) => (state.paused?.paused ?? []).some((one) => one.kind === kind && one.name === name);

export async function togglePause(kind, name) {
  if (isPaused(kind, name)) {
    await tried(() => ask("/v1/resume", { kind, name }));
    return;
  }
  const text = "It begins no call until it is resumed. What is in flight goes on; what waits keeps its deadline.";
  if (!(await confirm(`Pause ${kind} ${name}?`, text, `Pause ${name}`, "Leave it", false))) return;
  await tried(() => ask("/v1/pause", { kind, name }));
}

export const allPaused = () => (state.status?.providers ?? []).every((one) => isPaused("provider", one.name));

export async function toggleAll() {
  const names = (state.status?.providers ?? []).map((one) => one.name);
  const resuming = allPaused();
  if (!resuming) {
    const text = `No call begins at ${names.join(", ")} until you resume. What is in flight goes on.`;
    if (!(await confirm(`Pause ${counted(names.length, "provider")}?`, text, "Pause all", "Leave them", false))) return;
  }
  await tried(async () => {
    for (const name of names) {
      if (isPaused("provider", name) === resuming) await ask(resuming ? "/v1/resume" : "/v1/pause", { kind: "provider", name });
    }
  });
}
