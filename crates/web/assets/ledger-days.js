// Net saving of each day as a bar, with a part for each policy, and the days as a table.
/* global uPlot */

import { cssColour } from "./age-colours.js";
import { Chart, axis } from "./charts.js";
import { el, reconcile, setText } from "./dom.js";
import { Table } from "./table.js";
import { bytes, duration, gibHours } from "./units.js";

const HEIGHT = 200;
const DAY_S = 86400;
// Pixels that a day and a label of the axis need, and the days that the axis has at least.
const DAY_ROOM = 7,
  LABEL_ROOM = 56,
  FEWEST_DAYS = 14;
// Policies with a colour of their own; the others share the last one.
const COLOURED = 5;

const dayOf = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
const secondsOf = (day) => Date.parse(day) / 1000;
const acted = (row) => row.acted_bytes.reduce((sum, one) => sum + one.bytes, 0);

// The policies that are shown: those with the largest savings by name, then the others as one.
function partsOf(rows) {
  const sums = new Map();
  for (const row of rows)
    sums.set(row.policy, (sums.get(row.policy) ?? 0) + Math.abs(row.net_saved_gib_hours));
  const ranked = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a));
  const others = ranked.splice(ranked.length > COLOURED + 1 ? COLOURED : COLOURED + 1);
  const parts = ranked.sort().map((name) => ({ name, policies: [name] }));
  return others.length > 0 ? [...parts, { name: `${others.length} others`, policies: others }] : parts;
}

// Values of each part, day by day; null where the agent did not run.
function valuesOf(rows, parts, days) {
  const byDay = new Map();
  for (const row of rows) {
    const part = parts.findIndex((one) => one.policies.includes(row.policy));
    const values = byDay.get(row.day) ?? parts.map(() => null);
    values[part] = (values[part] ?? 0) + row.net_saved_gib_hours;
    byDay.set(row.day, values);
  }
  return parts.map((_, part) => days.map((day) => byDay.get(dayOf(day))?.[part] ?? null));
}

// Ends of the bars: savings stand on each other, losses hang below zero.
function ends(values) {
  const above = values[0].map(() => 0),
    below = values[0].map(() => 0);
  return values.map((part) =>
    part.map((value, day) => {
      if (value === null) return null;
      const sums = value < 0 ? below : above;
      return (sums[day] += value);
    }),
  );
}

const COLUMNS = [
  { id: "day", label: "Day (UTC)", isHeading: true, value: (row) => row.day, text: (row) => row.day },
  { id: "policy", label: "Policy", value: (row) => row.policy, text: (row) => row.policy },
  {
    id: "saved",
    label: "Net saving",
    numeric: true,
    value: (row) => row.net_saved_gib_hours,
    text: (row) => gibHours(row.net_saved_gib_hours),
  },
  { id: "acted", label: "Acted on", numeric: true, value: acted, text: (row) => bytes(acted(row)) },
  {
    id: "back",
    label: "Back ≤ 1 h",
    numeric: true,
    value: (row) => row.back_1h_bytes,
    text: (row) => bytes(row.back_1h_bytes),
  },
  {
    id: "watching",
    label: "CPU watching",
    numeric: true,
    value: (row) => row.watching_cpu_s,
    text: (row) => duration(row.watching_cpu_s),
  },
  {
    id: "acting",
    label: "CPU acting",
    numeric: true,
    value: (row) => row.acting_cpu_s,
    text: (row) => duration(row.acting_cpu_s),
  },
];

export class LedgerDays {
  constructor() {
    this.rows = [];
    this.days = [];
    this.parts = [];
    this.values = [];
    this.box = el("div", { class: "chart", role: "img", "aria-label": "Net saving of each day, by policy" });
    this.legend = el("ul", { class: "legend", "aria-label": "Policies" });
    this.readout = el("p", { class: "readout" });
    this.empty = el("p", { class: "empty" });
    this.table = new Table("Days", COLUMNS, (row) => `${row.day}/${row.policy}`, { id: "day", down: true });
    this.details = el("details", { class: "days" }, el("summary", {}, "Days as a table"), this.table.element);
    this.details.addEventListener("toggle", () => this.fillTable());
    this.shown = el("div", {}, this.box, this.legend, this.readout, this.details);
    this.element = el("section", {}, el("h2", {}, "Net saving by day (UTC)"), this.shown, this.empty);
    this.chart = new Chart(this.box, HEIGHT, (width) => this.options(width));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.box);
    this.fail("Waiting for the agent.");
  }

  set(rows) {
    this.rows = rows;
    if (rows.length === 0) return this.fail("No day has a sum yet: the first minute of watching begins one.");
    this.shown.hidden = false;
    setText(this.empty, "");
    this.draw();
    this.fillTable();
  }

  fail(message) {
    this.shown.hidden = this.rows.length === 0;
    setText(this.empty, message);
  }

  // As many days as there is room for, the newest on the right.
  draw() {
    const width = this.box.clientWidth;
    if (this.rows.length === 0 || width === 0) return;
    const [first, last] = [this.rows[0].day, this.rows.at(-1).day].map(secondsOf);
    const room = Math.max(FEWEST_DAYS, Math.floor(width / DAY_ROOM));
    const count = Math.min(room, Math.max(FEWEST_DAYS, (last - first) / DAY_S + 1));
    this.days = Array.from({ length: count }, (_, index) => last - (count - 1 - index) * DAY_S);
    const begin = dayOf(this.days[0]);
    const shown = this.rows.filter((row) => row.day >= begin);
    const parts = partsOf(shown);
    const isSame = parts.map((part) => part.name).join("/") === this.parts.map((part) => part.name).join("/");
    this.parts = parts;
    this.values = valuesOf(shown, parts, this.days);
    // The number of series is part of the options.
    if (!isSame) this.chart.clear();
    this.chart.set([this.days, ...ends(this.values).reverse()]);
    this.fillLegend();
    this.read(null);
  }

  fillLegend() {
    const fill = (child, part) => {
      child.firstChild.className = `policy-${this.parts.indexOf(part)}`;
      setText(child.lastChild, part.name);
    };
    const make = () => el("li", {}, el("i", {}), el("span", {}));
    reconcile(this.legend, this.parts, (part) => part.name, make, fill);
  }

  fillTable() {
    if (!this.details.open) return;
    const begin = dayOf(this.days[0] ?? 0);
    this.table.update(this.rows.filter((row) => row.day >= begin));
  }

  options() {
    const bars = uPlot.paths.bars({ size: [0.7, 48] });
    const series = this.parts.map((_, index) => {
      const fill = cssColour(`--policy-${index}`);
      return { paths: bars, fill, stroke: fill, width: 0, fillTo: 0, points: { show: false } };
    });
    const range = (_, min, max) => [Math.min(0, min ?? 0) * 1.05, Math.max(0, max ?? 0) * 1.05 || 1];
    return {
      scales: {
        x: { time: true, range: (_, min, max) => [min - DAY_S / 2, max + DAY_S / 2] },
        y: { range },
      },
      axes: [
        this.dayAxis(),
        axis({ size: 72, values: (_, splits) => splits.map((at) => `${Number(at.toFixed(6))} GiB·h`) }),
      ],
      // Drawn from the outermost part in, so that each covers what is below.
      series: [{}, ...series.reverse()],
      padding: [6, 16, 0, 0],
      cursor: { points: { show: false }, drag: { x: false, y: false }, y: false },
      hooks: { setCursor: [(plot) => this.read(plot.cursor.idx)] },
    };
  }

  // Labels in the middle of days: all of them, or as many as have room.
  dayAxis() {
    const splits = (plot) => {
      const step = Math.ceil((this.days.length * LABEL_ROOM) / Math.max(1, plot.over.clientWidth || plot.width));
      return this.days.filter((_, index) => (this.days.length - 1 - index) % step === 0);
    };
    const values = (_, days) => days.map((day) => dayOf(day).slice(5));
    return axis({ size: 24, grid: { show: false }, splits, values });
  }

  // The figures of the day under the pointer, else of the last.
  read(index) {
    const day = index ?? this.days.length - 1;
    const own = this.parts.flatMap((part, nth) => {
      const value = this.values[nth][day];
      return value === null || value === undefined ? [] : [[part.name, value]];
    });
    const sum = own.reduce((all, [, value]) => all + value, 0);
    const parts = own.map(([name, value]) => `${name} ${gibHours(value)}`).join(", ");
    const text = own.length === 0 ? "the agent did not run" : `${gibHours(sum)}: ${parts}`;
    setText(this.readout, this.days.length > 0 ? `${dayOf(this.days[day])}: ${text}` : "");
  }

  destroy() {
    this.observer.disconnect();
    this.chart.destroy();
  }
}
