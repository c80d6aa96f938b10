// The cells of a heatmap: their bitmap, and where each lies in time and on the canvas.

import { heatPixel } from "./age-colours.js";
import { isGap, usualStep } from "./gaps.js";
import { bytes, time } from "./units.js";

// Pixels between the rows of two mappings.
const GAP = 3;

// A bitmap of one pixel for each cell: a column for each time, a row for each range of addresses.
function paint({ times_ms, rows }) {
  const bitmap = document.createElement("canvas");
  bitmap.width = Math.max(1, times_ms.length);
  bitmap.height = Math.max(1, rows.length);
  const context = bitmap.getContext("2d");
  const image = context.createImageData(bitmap.width, bitmap.height);
  const pixels = new Uint32Array(image.data.buffer);
  const fill = (row, y) =>
    row.heat.forEach((heat, x) => {
      pixels[y * bitmap.width + x] = heatPixel(heat);
    });
  rows.forEach(fill);
  context.putImageData(image, 0, 0);
  return bitmap;
}

// Runs of columns of equal length. The columns of a run are drawn at once.
function runsOf(times) {
  const runs = [];
  const usual = usualStep(times, 1000);
  const endOf = (at, next) => (next === undefined || isGap(at, next, usual) ? at + usual : next);
  const ends = times.map((at, index) => endOf(at, times[index + 1]));
  for (let first = 0; first < times.length;) {
    const step = ends[first] - times[first];
    let end = first + 1;
    const isNext = () => times[end] === ends[end - 1] && Math.abs(ends[end] - times[end] - step) <= 2;
    while (end < times.length && isNext()) end += 1;
    runs.push({ first, end, from: times[first], to: ends[end - 1] });
    first = end;
  }
  return runs;
}

// Neighbouring rows of one mapping of one process.
function groupsOf(rows) {
  const groups = [];
  rows.forEach(({ pid, name }, index) => {
    const last = groups.at(-1);
    if (last && last.pid === pid && last.name === name) last.end = index + 1;
    else groups.push({ pid, name, first: index, end: index + 1, isNewProcess: last?.pid !== pid });
  });
  return groups;
}

export class Cells {
  // `answer`: that of /api/v1/heatmap. The groups share `height` pixels from `top` on.
  constructor(answer, top, height) {
    this.times = answer.times_ms;
    this.rows = answer.rows;
    this.bitmap = paint(answer);
    this.runs = runsOf(this.times);
    this.groups = groupsOf(this.rows);
    this.layout(top, height);
  }

  // Heights of the groups, in proportion to their rows.
  layout(top, height) {
    const gaps = Math.max(0, this.groups.length - 1);
    const gap = Math.min(GAP, height / 4 / Math.max(1, gaps));
    this.rowHeight = (height - gap * gaps) / Math.max(1, this.rows.length);
    let y = top;
    for (const group of this.groups) {
      group.y = y;
      group.height = this.rowHeight * (group.end - group.first);
      y += group.height + gap;
    }
  }

  get hasProcesses() {
    return this.groups.some((group) => group.pid !== this.groups[0].pid);
  }

  // The row at a height, and the column at a time; null outside.
  find(y, ms) {
    const group = this.groups.find((one) => y >= one.y && y < one.y + one.height);
    const column = this.columnAt(ms);
    if (!group || column === null) return null;
    return { row: group.first + Math.floor((y - group.y) / this.rowHeight), column };
  }

  columnAt(ms) {
    const run = this.runs.find(({ from, to }) => ms >= from && ms < to);
    if (!run) return null;
    return run.first + Math.floor(((ms - run.from) / (run.to - run.from)) * (run.end - run.first));
  }

  // Begin and end of a column in milliseconds, and the height at which a row begins.
  place({ row, column }) {
    const group = this.groups.find((one) => row >= one.first && row < one.end);
    const run = this.runs.find(({ first, end }) => column >= first && column < end);
    const length = (run.to - run.from) / (run.end - run.first);
    const from = run.from + (column - run.first) * length;
    return { from, to: from + length, y: group.y + (row - group.first) * this.rowHeight };
  }

  // A cell in lines of text.
  describe({ row, column }) {
    const { start, end, pid, name, heat } = this.rows[row];
    const value = heat[column];
    const what = value < 0 ? "not known" : value === 0 ? "idle" : `accessed at ${value} % of checks`;
    const size = bytes(Number(BigInt(end) - BigInt(start)));
    return [
      time(this.times[column]),
      what,
      `${name || "[anon]"} of process ${pid}`,
      `${start} – ${end} (${size})`,
    ];
  }
}
