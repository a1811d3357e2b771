// The frame of the page: connection, header, keys, and which view is shown.

import { allPaused, problem, toggleAll } from "./actions.js";
import * as call from "./call.js";
import { put, h, words } from "./dom.js";
import { connect, connection, onChange, state } from "./feed.js";
import { clock, span } from "./format.js";
import * as overview from "./overview.js";
import * as policy from "./policy.js";
import * as provider from "./provider.js";

const $ = (id) => document.getElementById(id);
const main = $("main");
let where = "";

function route() {
  const [, view, ...rest] = location.hash.split("/");
  const argument = rest.length ? decodeURIComponent(rest.join("/")) : null;
  const old = where;
  where = view || "overview";
  call.leave();
  provider.leave();
  if (where === "calls" && argument) call.show(main, argument).catch((error) => problem(error.message));
  else if (where === "providers" && argument) provider.show(main, argument);
  else if (where === "policy") policy.show(main, argument).catch((error) => problem(error.message));
  else {
    where = "overview";
    main.replaceChildren(...overview.build());
    overview.update("all");
  }
  if (old) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function header() {
  const now = state.status;
  if (!now) return;
  $("policy-name").textContent = now.policy.path.split("/").at(-1);
  $("policy-hash").textContent = now.policy.hash.slice(0, 8);
  $("uptime").textContent = `up ${span(now.uptime_s)}`;
  $("version").textContent = now.version;
  $("pause-all").hidden = false;
  $("pause-all").textContent = allPaused() ? "Resume all" : "Pause all";
  document.title = now.waiting ? `${now.waiting} waiting · hivemind-trio` : "hivemind-trio";
  put($("notices"), now.notices.map((one) => h("p", {}, words(one.text))));
}

/** Say how old the figures are, and when a lost connection is tried again. */
function pulse() {
  const { live, at, retryAt } = connection();
  const stale = !live && at !== null;
  document.body.classList.toggle("lost", stale);
  $("live-text").textContent = live ? `live, ${((Date.now() - at) / 1000).toFixed(1)} s ago` : at === null ? "connecting" : "disconnected";
  $("banner").hidden = live || (at === null && retryAt === null);
  if (!$("banner").hidden) {
    const next = retryAt === null ? "trying now" : `next try in ${Math.max(0, Math.ceil((retryAt - Date.now()) / 1000))} s`;
    const since = at === null ? "The proxy does not answer" : `No connection to the proxy: these are the figures of ${clock(new Date(at))}`;
    const text = `${since}; ${next}. If your session has ended, \`hivemind-trio dashboard\` prints a new link.`;
    put($("banner"), words(text));
  }
  document.querySelectorAll("main button[data-act], #pause-all").forEach((one) => (one.disabled = stale));
}

// ---- keys ----

/** Tables of the view, with rows that can be chosen. */
const lines = () => [...main.querySelectorAll("tbody tr[tabindex]")];

function step(by) {
  const all = lines();
  const place = all.indexOf(document.activeElement.closest?.("tr"));
  all[Math.max(0, Math.min(all.length - 1, place < 0 ? (by > 0 ? 0 : all.length - 1) : place + by))]?.focus();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const field = event.target.closest("input, textarea");
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  const row = document.activeElement.closest?.("tr");
  const onRow = document.activeElement === row;
  const keys = {
    j: () => step(1), k: () => step(-1), p: toggleAll, "?": () => $("help").showModal(),
    "/": () => $("search")?.focus(),
    Escape: () => where !== "overview" && (location.hash = "#/"),
    Enter: () => onRow && row.open?.(),
    l: () => row?.act?.l?.(), c: () => row?.act?.c?.(),
    ArrowRight: () => onRow && row.act?.ArrowRight?.(), ArrowLeft: () => onRow && row.act?.ArrowLeft?.(),
  };
  if (!(event.key in keys)) return;
  if (event.key === "Enter" && !onRow) return;
  if (connection().live || !["p", "l", "c"].includes(event.key)) keys[event.key]();
  if (["/", "?"].includes(event.key)) event.preventDefault();
}

document.addEventListener("keydown", onKey);
$("pause-all").addEventListener("click", toggleAll);
$("help-close").addEventListener("click", () => $("help").close());
addEventListener("hashchange", route);
$("zone").textContent = `times are ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
onChange((what) => {
  header();
  if (where === "overview") overview.update(what);
  if (where === "providers") provider.refresh(what);
  if (where === "calls" && what === "state") call.refresh(main);
  pulse();
});
setInterval(pulse, 500);
route();
connect();
