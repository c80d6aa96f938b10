// Which period is shown: its length, its end, or the present.

import { button, el, setAttribute, setText } from "./dom.js";
import { duration, localTime, time } from "./units.js";

const DAY_MS = 86400000;
// The agent keeps a week.
const KEPT_MS = 7 * DAY_MS;
const SHORTEST_MS = 30000;
const PRESETS = [
  ["5 min", 300000],
  ["15 min", 900000],
  ["1 h", 3600000],
  ["6 h", 6 * 3600000],
  ["1 d", DAY_MS],
  ["7 d", KEPT_MS],
];
const DEFAULT_MS = 3600000;
// The present moves on when it has moved by a column, but not more often than this.
const REFRESH_MS = 5000,
  COLUMNS = 240;

export class TimeControls {
  constructor(onChange) {
    this.onChange = onChange;
    this.span = DEFAULT_MS;
    this.now = Date.now();
    this.end = null;
    this.presets = PRESETS.map(([label, span]) =>
      button(label, () => this.set(span, this.end), { data: { span } }),
    );
    this.live = button("Live", () => this.set(this.span, null), { class: "live", title: "Follow the present" });
    this.slider = el("input", {
      type: "range",
      "aria-label": "End of the period",
      class: "travel",
      on: { input: () => this.slide() },
    });
    this.from = this.field("From");
    this.to = this.field("To");
    this.text = el("span", { class: "note", role: "status", data: { field: "period" } });
    this.element = el(
      "div",
      { class: "time" },
      el("div", { class: "group", role: "group", "aria-label": "Length of the period" }, this.presets),
      this.live,
      this.slider,
      el("label", {}, "from ", this.from),
      el("label", {}, "to ", this.to),
      this.text,
    );
    this.fill();
  }

  field(label) {
    return el("input", {
      type: "datetime-local",
      step: 1,
      "aria-label": label,
      on: { change: () => this.type() },
    });
  }

  isLive() {
    return this.end === null;
  }

  view() {
    const to = this.end ?? this.now;
    return { from: Math.round(to - this.span), to: Math.round(to) };
  }

  set(span, end) {
    this.now = Date.now();
    this.span = Math.min(KEPT_MS, Math.max(SHORTEST_MS, span));
    this.end = end === null || end >= this.now ? null : Math.max(end, this.now - KEPT_MS + this.span);
    this.fill();
    this.onChange();
  }

  // From the heatmap: moved or zoomed.
  setView(from, to) {
    this.set(to - from, to);
  }

  slide() {
    const end = Number(this.slider.value);
    this.set(this.span, end >= Number(this.slider.max) ? null : end);
  }

  type() {
    const from = new Date(this.from.value).getTime(),
      to = new Date(this.to.value).getTime();
    if (Number.isNaN(from) || Number.isNaN(to) || to <= from)
      return setText(this.text, "The period must end after it begins.");
    this.set(to - from, to);
  }

  // Once, before the user chose: a shorter period if there is nothing before `begin`.
  fit(begin) {
    const isUntouched = this.isLive() && this.span === DEFAULT_MS && !this.isFitted;
    this.isFitted = true;
    const [, span] = PRESETS.find(([, one]) => one >= Date.now() - begin) ?? [null, DEFAULT_MS];
    if (isUntouched && span < DEFAULT_MS) this.set(span, null);
  }

  tick() {
    if (this.end !== null || Date.now() - this.now < Math.max(REFRESH_MS, this.span / COLUMNS)) return;
    this.set(this.span, null);
  }

  fill() {
    const { from, to } = this.view();
    for (const one of this.presets)
      setAttribute(one, "aria-pressed", Number(one.dataset.span) === Math.round(this.span));
    setAttribute(this.live, "aria-pressed", this.isLive());
    this.slider.min = this.now - KEPT_MS + this.span;
    this.slider.max = this.now;
    this.slider.step = Math.max(1000, Math.round(this.span / 20));
    this.slider.value = to;
    setAttribute(this.slider, "aria-valuetext", this.isLive() ? "now" : time(to));
    if (document.activeElement !== this.from) this.from.value = localTime(from);
    if (document.activeElement !== this.to) this.to.value = localTime(to);
    setText(
      this.text,
      this.isLive()
        ? `the last ${duration(this.span / 1000)}`
        : `${duration(this.span / 1000)} until ${time(to)}`,
    );
  }
}
