// What is known of the proxy, live. A lost connection is tried again, with the time until then.

export const state = { status: null, queue: null, budgets: null, paused: null, resources: null, ended: null, usage: null, sessions: null, advice: null, series: new Map() };

const listeners = new Set();
const link = { source: null, at: null, retryAt: null, tries: 0 };

export const onChange = (listener) => listeners.add(listener);

export const connection = () => ({ live: link.source?.readyState === 1 && link.at !== null, at: link.at, retryAt: link.retryAt });

const tell = (what) => listeners.forEach((listener) => listener(what));

/** Add points to a series; those that are known already are passed over, those older than an hour go. */
function extend(series, stepSeconds) {
  const columns = ["at", "limit", "inflight", "waiting", "refused", "failed", "circuit", "bound_by"];
  for (const news of series) {
    const mine = state.series.get(news.provider) ?? Object.fromEntries(columns.map((name) => [name, []]));
    const last = mine.at.at(-1) ?? -Infinity;
    news.at.forEach((at, place) => {
      if (at > last + stepSeconds / 2) columns.forEach((name) => mine[name].push(news[name][place]));
    });
    const old = mine.at.findIndex((at) => at > (mine.at.at(-1) ?? 0) - 3600);
    if (old > 0) columns.forEach((name) => mine[name].splice(0, old));
    state.series.set(news.provider, mine);
  }
}

async function history() {
  const answer = await fetch("/v1/series");
  if (!answer.ok) return;
  const found = await answer.json();
  state.series.clear();
  extend(found.series, found.step_s);
  tell("series");
}

function lost() {
  link.source?.close();
  link.source = null;
  const seconds = Math.min(10, 1 + link.tries);
  link.tries += 1;
  link.retryAt = Date.now() + seconds * 1000;
  setTimeout(connect, seconds * 1000);
  tell("connection");
}

export function connect() {
  link.retryAt = null;
  const source = new EventSource("/v1/events");
  link.source = source;
  source.addEventListener("error", () => link.source === source && lost());
  source.addEventListener("open", () => {
    link.tries = 0;
    history().catch(() => {});
  });
  source.addEventListener("state", (event) => {
    Object.assign(state, JSON.parse(event.data));
    link.at = Date.now();
    tell("state");
  });
  source.addEventListener("hour", (event) => {
    const news = JSON.parse(event.data);
    state.usage = news.usage;
    state.sessions = news.sessions;
    state.advice = news.advice;
    extend(news.series.series, news.series.step_s);
    tell("hour");
  });
}

/** What a resource has; a problem of the API is thrown with its words. */
export async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const answer = await fetch(path, options);
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.detail ?? `status ${answer.status}`);
  return found;
}
