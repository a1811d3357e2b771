// The last hour of one provider: limit and calls in flight, waiting calls, refusals, and what bound.

import { h, svg } from "./dom.js";
import { clock } from "./format.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const stepped = (u, ...rest) => uPlot.paths.stepped({ align: 1 })(u, ...rest);

const SYNC = "hour";

/** The least that is shown: a proxy that has just begun has few points. */
const LEAST_S = 600;

function options(width, height, series, axis, onCursor, drawAxis) {
  const dim = colour("dim");
  const grid = { stroke: colour("line"), width: 1 };
  const font = "11px system-ui, sans-serif";
  return {
    width, height, padding: [8, 4, drawAxis ? 0 : 8, 0], series: [{}, ...series],
    legend: { show: false },
    cursor: { sync: { key: SYNC }, points: { show: false }, y: false, drag: { x: true, y: false } },
    scales: { x: { time: true, range: (_, from, to) => [Math.min(from, to - LEAST_S), to] }, y: { range: (_, __, most) => [0, Math.max(axis, Math.ceil(most * 1.1))] } },
    axes: [
      { show: drawAxis, stroke: dim, grid: { show: false }, ticks: grid, font, size: 24, space: 80,
        values: (_, ticks) => ticks.map((at) => clock(new Date(at * 1000)).slice(0, 5)) },
      { stroke: dim, grid, ticks: { show: false }, font, size: 32, space: 30, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000] },
    ],
    hooks: { setCursor: [(u) => onCursor(u.cursor.idx)] },
  };
}

/** Bars of refusals: solid what is down, hollow what is over the rate. */
const bars = (hollow) => ({
  paths: uPlot.paths.bars({ size: [0.9, 8, 2] }), stroke: colour("fail"), fill: hollow ? undefined : colour("fail"), width: 1,
  points: { show: false },
});

export class HourChart {
  constructor(onCursor) {
    this.onCursor = onCursor;
    this.panels = [];
    this.strip = svg("svg", { class: "strip", "aria-hidden": "true" });
    this.element = h("div", { class: "chart", role: "img" });
    this.width = 0;
    this.observer = new ResizeObserver(() => this.element.clientWidth !== this.width && this.build());
    this.observer.observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.build());
  }

  build() {
    this.width = this.element.clientWidth;
    this.panels.forEach((one) => one.destroy());
    this.panels = [];
    this.element.replaceChildren();
    if (!this.width || !this.data) return;
    const line = (name, fillName) => ({ stroke: colour(name), fill: fillName && colour(fillName), width: 1.5, paths: stepped, points: { show: false } });
    const made = [
      ["at once", 150, [line("flight", "flight-fill"), line("limit")], 4, ["inflight", "limit"]],
      ["waiting", 80, [line("wait", "wait-fill")], 4, ["waiting"]],
      ["refused or failed at the provider, per 5 s", 56, [bars(false), bars(true)], 4, ["failed", "refused"]],
    ];
    made.forEach(([name, height, series, least, columns], place) => {
      this.element.append(h("p", { class: "caption" }, name));
      const holder = h("div");
      this.element.append(holder);
      const last = place === made.length - 1;
      const plot = new uPlot(options(this.width, height + (last ? 24 : 0), series, least, this.onCursor, last), this.columns(columns), holder);
      plot.columns = columns;
      this.panels.push(plot);
    });
    this.element.append(h("p", { class: "caption" }, "what most waiting calls waited for"), this.strip);
    requestAnimationFrame(() => this.drawStrip()); // plots know their scales then
  }

  columns(names) {
    const shown = (name) => (name === "failed" || name === "refused" ? this.data[name].map((one) => one || null) : this.data[name]);
    return [this.data.at, ...names.map(shown)];
  }

  show(provider, data) {
    this.data = data;
    this.element.setAttribute("aria-label", this.sentence(provider));
    if (!this.panels.length) this.build();
    this.panels.forEach((plot) => plot.setData(this.columns(plot.columns)));
    this.drawStrip();
  }

  sentence(provider) {
    const most = (name) => Math.max(0, ...this.data[name]);
    const sum = (name) => this.data[name].reduce((total, one) => total + one, 0);
    return `${provider} in the last hour: at most ${most("inflight")} calls in flight and ${most("waiting")} waiting; `
      + `${sum("refused")} attempts refused, ${sum("failed")} failed`;
  }

  /** Pieces of time with the same reason, as wide as the plots above. */
  drawStrip() {
    if (!this.width || !this.data?.at.length || !this.panels.length) return;
    const plot = this.panels[0];
    const x = (at) => plot.valToPos(at, "x") + plot.bbox.left / devicePixelRatio;
    if (!Number.isFinite(x(this.data.at.at(-1)))) return;
    const pieces = [];
    this.data.at.forEach((at, place) => {
      const why = this.data.circuit[place] === "closed" ? this.data.bound_by[place] : `circuit ${this.data.circuit[place]}`;
      const last = pieces.at(-1);
      if (last && last.why === why) last.to = at;
      else pieces.push({ why, from: last ? last.to : at, to: at });
    });
    this.strip.replaceChildren(...pieces.filter((one) => one.why && one.to > one.from).flatMap((one) => {
      const from = x(one.from);
      const width = Math.max(1, x(one.to) - from);
      const kind = one.why.startsWith("circuit") ? "fail" : "limit";
      const words = one.why.replaceAll("-", " ");
      return [
        svg("rect", { x: from, y: 2, width, height: 18, fill: colour(`${kind}-fill`) }, svg("title", {}, words)),
        width > words.length * 6 + 8 ? svg("text", { x: from + 4, y: 15 }, words) : null,
      ];
    }).filter(Boolean));
  }
}
