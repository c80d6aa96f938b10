// Resident memory by idle age over time, stacked, and swap as a line. Its time axis is that of the heatmap above.

import { GROUPS, cssColour, grouped } from "./age-colours.js";
import { Chart, axis, byteAxis } from "./charts.js";
import { el, setText } from "./dom.js";
import { isGap, usualStep } from "./gaps.js";
import { ageColours } from "./parts.js";
import { ticks } from "./time-axis.js";
import { bytes, time } from "./units.js";

const HEIGHT = 190,
  NARROW = 520;

// Sums from the oldest memory (at the bottom) to the youngest, then with unknown memory.
function stack(points) {
  const columns = [points.map((point) => point.time_ms / 1000)];
  let sums = points.map(() => 0);
  const ages = points.map((point) => grouped(point.ages));
  for (let group = GROUPS.length - 1; group >= 0; group -= 1) {
    sums = sums.map((sum, index) => sum + ages[index][group]);
    columns.push(sums);
  }
  columns.push(
    points.map((point) => point.resident_bytes),
    points.map((point) => point.swap_bytes),
  );
  return columns;
}

// Adds a point without values in each gap, so that no line crosses it.
function withGaps([times, ...columns]) {
  const usual = usualStep(times, 1);
  const breaks = times.flatMap((at, index) => (index > 0 && isGap(times[index - 1], at, usual) ? [index] : []));
  for (const index of breaks.reverse()) {
    times.splice(index, 0, times[index - 1] + usual);
    for (const column of columns) column.splice(index, 0, null);
  }
  return [times, ...columns];
}

export class HistoryChart {
  constructor() {
    const box = el("div", {
      class: "chart",
      role: "img",
      "aria-label": "Resident memory by idle age over time",
    });
    this.readout = el("p", { class: "readout" });
    const legend = el(
      "ul",
      { class: "legend" },
      el("li", {}, el("i", { class: "line-swap" }), "in swap"),
      el("li", {}, "resident, by idle age (colours below)"),
    );
    this.element = el("div", {}, box, legend, this.readout);
    this.points = [];
    this.view = { from: 0, to: 1 };
    this.chart = new Chart(box, HEIGHT, (width) => this.options(width));
  }

  options(width) {
    const colours = [...ageColours().reverse(), cssColour("--unknown")];
    const layers = colours.map((fill) => ({ stroke: fill, fill, width: 0, points: { show: false } }));
    const line = { stroke: cssColour("--text"), width: 1.5, dash: [5, 3], points: { show: false } };
    return {
      scales: {
        x: { time: true, range: () => [this.view.from / 1000, this.view.to / 1000] },
        y: { range: (_, __, max) => [0, Math.max(1, max) * 1.05] },
      },
      axes: [this.timeAxis(), byteAxis({ size: width < NARROW ? 64 : 132 })],
      // Drawn from the top layer down, so that each covers what is below.
      series: [{}, ...layers.reverse(), line],
      padding: [6, 0, 0, 0],
      cursor: { points: { show: false }, drag: { x: false, y: false }, y: false },
      hooks: { setCursor: [(plot) => this.read(plot.data[0][plot.cursor.idx])] },
    };
  }

  // The same ticks as above.
  timeAxis() {
    const all = (plot, min, max) => ticks(min * 1000, max * 1000, plot.over.clientWidth || plot.width);
    return axis({
      size: 24,
      grid: { show: false },
      splits: (plot, _, min, max) => all(plot, min, max).map(([at]) => at / 1000),
      values: (plot, splits) =>
        splits.map(
          (at) => all(plot, plot.scales.x.min, plot.scales.x.max).find(([ms]) => ms === at * 1000)?.[1] ?? "",
        ),
    });
  }

  set(points) {
    this.points = points;
    if (points.length === 0) return this.chart.clear();
    const [times, ...rest] = withGaps(stack(points));
    const swap = rest.pop();
    this.chart.set([times, ...rest.reverse(), swap]);
    this.read(null);
  }

  setView(from, to) {
    this.view = { from, to };
    this.chart.plot?.setScale("x", { min: from / 1000, max: to / 1000 });
  }

  // The figures under the pointer, else the last.
  read(seconds) {
    const point = this.points.find((one) => one.time_ms / 1000 === seconds) ?? this.points.at(-1);
    if (!point) return setText(this.readout, "");
    const parts = grouped(point.ages).map((amount, group) => `${GROUPS[group].name} ${bytes(amount)}`);
    setText(
      this.readout,
      `${time(point.time_ms)}: resident ${bytes(point.resident_bytes)}, in swap ${bytes(point.swap_bytes)}; idle ${parts.join(", ")}`,
    );
  }

  destroy() {
    this.chart.destroy();
  }
}
