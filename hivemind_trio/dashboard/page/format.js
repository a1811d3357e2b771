// Numbers and times as the page shows them. Unknown (null, undefined) is an empty text, never 0.

const known = (value) => value !== null && value !== undefined;

/** "0.4 s", "12 s", "3 min 10 s", "1 h 33 min": two units at most. */
export function span(seconds) {
  if (!known(seconds)) return "";
  if (seconds < 9.95) return seconds < 0.05 ? "0 s" : `${seconds.toFixed(1)} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s` : `${s / 60} min`;
  const minutes = Math.round(s / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60 ? `${minutes % 60} min` : ""}`.trim();
  return `${Math.round(minutes / 1440)} days`;
}

/** Three digits, k and M: "410", "9.1k", "438k", "49.1M". */
export function short(count) {
  if (!known(count)) return "";
  for (const [unit, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (count >= unit * 0.9995) return `${Number((count / unit).toPrecision(3))}${sign}`;
  }
  return String(count);
}

export const whole = (count) => (known(count) ? count.toLocaleString("en-US") : "");

/** Millionths of a dollar: three decimals below one dollar, else two. */
export function money(micro) {
  if (!known(micro)) return "";
  const dollars = micro / 1e6;
  const digits = dollars !== 0 && Math.abs(dollars) < 1 ? 3 : 2;
  return `$${dollars.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

/** An amount in the unit of its measure. */
export const amount = (value, measure) => (measure === "cost" ? money(value) : short(value));

export const percent = (part) => (known(part) ? `${Math.floor(part * 100 + 1e-9)}%` : "");

/** "min", "h", "day", "5 h": the length of a window. */
export function per(seconds) {
  return { 1: "s", 60: "min", 3600: "h", 86400: "day" }[seconds] ?? span(seconds);
}

export const clock = (at) => at.toLocaleTimeString("en-GB", { hour12: false });

/** A moment of the API: the time, and before it the day if it is another. */
export function moment(text, now = new Date()) {
  if (!text) return "";
  const at = new Date(text);
  const time = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (at.toDateString() === now.toDateString()) return time;
  return `${at.toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short" })} ${time}`;
}

/** A moment that is near in seconds, one that is far as a time of day. */
export function until(text, now = new Date()) {
  if (!text) return "";
  const seconds = (new Date(text) - now) / 1000;
  if (seconds <= 0) return "now";
  return seconds < 240 ? `in ${span(seconds)}` : moment(text, now);
}

export const counted = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
