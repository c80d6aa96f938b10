// A target's past: heatmap and history of the chosen period, and the advice from it.

import { get } from "./api.js";
import { el } from "./dom.js";
import { Heatmap } from "./heatmap.js";
import { HistoryChart } from "./history.js";
import { Reader } from "./reader.js";
import { TimeControls } from "./time-controls.js";

// Columns of the heatmap in view, and points of the history.
const COLUMNS = 240,
  ROWS = 50;
// How long the period must rest before it is read, in milliseconds. Advice is the dearest answer of the agent.
const HEATMAP_DELAY_MS = 120,
  HISTORY_DELAY_MS = 200,
  ADVICE_DELAY_MS = 700;
const ADVICE_EVERY_MS = 60000;

export class Past {
  // `about`: target and policy. `curve` shows the advice.
  constructor(about, curve) {
    this.about = about;
    this.curve = curve;
    this.adviceAt = 0;
    this.loaded = null;
    this.controls = new TimeControls(() => this.show());
    this.heatmap = new Heatmap((from, to) => this.controls.setView(from, to));
    this.history = new HistoryChart();
    this.readers = [this.heatmapReader(), this.historyReader(), this.adviceReader()];
    this.element = el("div", {}, this.controls.element, this.heatmap.element, legend(), this.history.element);
    this.onTheme = () => this.heatmap.draw();
    document.addEventListener("themechange", this.onTheme);
    this.show();
  }

  heatmapReader() {
    // Half a view more on each side, so that panning has something to show at once.
    const read = ({ from, to }, signal) => {
      const margin = Math.round((to - from) / 2);
      const begin = from - margin;
      const end = Math.max(begin + 1, Math.min(to + margin, Date.now()));
      this.requested = { begin, end, span: to - from, isNewest: to + margin > end };
      const columns = Math.max(1, Math.round((COLUMNS * (end - begin)) / (to - from)));
      return get("heatmap", { ...this.about, from_ms: begin, to_ms: end, columns, rows: ROWS }, signal);
    };
    const done = (answer) => {
      this.loaded = this.requested;
      this.heatmap.setData(answer);
      const isEmpty = answer.rows.length === 0 || answer.times_ms.length === 0;
      this.heatmap.setMessage(isEmpty ? "The history has nothing of this target in this period." : "");
    };
    const failed = (error) => this.heatmap.setMessage(error.message);
    return new Reader({ delay: HEATMAP_DELAY_MS, read, done, failed });
  }

  historyReader() {
    const read = ({ from, to }, signal) =>
      get("history", { ...this.about, from_ms: from, to_ms: to, columns: COLUMNS }, signal);
    const done = ({ points }) => {
      this.history.set(points);
      if (points.length > 0) this.controls.fit(points[0].time_ms);
    };
    return new Reader({ delay: HISTORY_DELAY_MS, read, done, failed: () => this.history.set([]) });
  }

  adviceReader() {
    const read = ({ from, to }, signal) => get("advice", { ...this.about, from_ms: from, to_ms: to }, signal);
    const done = (answer) => this.curve.set(answer);
    return new Reader({
      delay: ADVICE_DELAY_MS,
      read,
      done,
      failed: (error) => this.curve.fail(error.message),
    });
  }

  // Shows the chosen period. What is loaded moves at once, the rest follows.
  show() {
    const view = this.controls.view();
    const isLive = this.controls.isLive();
    const [heatmap, history, advice] = this.readers;
    this.heatmap.setView(view.from, view.to);
    this.history.setView(view.from, view.to);
    if (!this.covers(view)) heatmap.want(view);
    history.want(view);
    // The present moves on all the time: its advice is read once a minute, or when the length changes.
    const span = view.to - view.from;
    if (isLive && span === this.adviceSpan && Date.now() - this.adviceAt < ADVICE_EVERY_MS) return;
    this.adviceAt = isLive ? Date.now() : 0;
    this.adviceSpan = span;
    advice.want(view);
  }

  // Whether what is loaded reaches a little beyond the view, on each side that has more.
  covers({ from, to }) {
    if (!this.loaded || this.loaded.span !== to - from) return false;
    const { begin, end, span, isNewest } = this.loaded;
    const edge = span / 8;
    return from - edge >= begin && to + (isNewest ? 0 : edge) <= end;
  }

  tick() {
    this.controls.tick();
  }

  destroy() {
    document.removeEventListener("themechange", this.onTheme);
    for (const part of [this.heatmap, this.history, ...this.readers]) part.destroy();
  }
}

function legend() {
  const step = (heat) => el("li", {}, el("i", { class: `heat-${heat}` }), `${heat} %`);
  const keys = "Drag to move, Ctrl + wheel to zoom. Keys: arrows read a cell, Shift + ←/→ move, + and − zoom.";
  return el(
    "div",
    { class: "legends" },
    el(
      "ul",
      { class: "legend", "aria-label": "Heat" },
      el("li", { class: "about" }, "Accessed at, of checks"),
      [0, 4, 16, 36, 64, 100].map(step),
      el("li", {}, el("i", { class: "heat-unknown" }), "not known"),
    ),
    el("p", { class: "note keys", id: "heatmap-keys" }, keys),
  );
}
