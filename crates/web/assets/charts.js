// What the charts share: a uPlot that follows its box and the theme, and axes in bytes.
/* global uPlot */

import { cssColour } from "./age-colours.js";
import { bytes } from "./units.js";

// Positions of ticks at round numbers of a binary unit.
function byteSplits(min, max) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(1, max)) / Math.log(1024)));
  const rough = (max - min) / unit / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((one) => one * power >= rough) ?? 10) * power * unit;
  const splits = [];
  for (let at = Math.ceil(min / step) * step; at <= max; at += step) splits.push(at);
  return splits;
}

const roundBytes = (amount) =>
  bytes(amount)
    .replace(/\.0+(?= )/, "")
    .replace(/(\.\d*?)0+(?= )/, "$1");

export function axis(extra = {}) {
  return {
    stroke: cssColour("--muted"),
    grid: { stroke: cssColour("--line"), width: 1 },
    ticks: { show: false },
    font: `11px ${getComputedStyle(document.body).fontFamily}`,
    ...extra,
  };
}

export function byteAxis(extra = {}) {
  return axis({
    splits: (_, __, min, max) => byteSplits(min, max),
    values: (_, splits) => splits.map(roundBytes),
    size: 62,
    ...extra,
  });
}

// A chart in `element`. `options()` is asked anew when the theme changes, because colours are part of it.
export class Chart {
  constructor(element, height, options) {
    this.element = element;
    this.height = height;
    this.options = options;
    this.plot = null;
    // The page keeps its height while a chart is built anew: without it, a scroll bar might go and come.
    element.style.minHeight = `${height}px`;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(element);
    this.onTheme = () => this.rebuild();
    document.addEventListener("themechange", this.onTheme);
  }

  get width() {
    return Math.max(50, this.element.clientWidth);
  }

  set(data) {
    this.data = data;
    if (this.plot) this.plot.setData(data);
    else this.rebuild();
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.data) return;
    const shared = { width: this.width, height: this.height, legend: { show: false } };
    this.plot = new uPlot({ ...shared, ...this.options(this.width) }, this.data, this.element);
  }

  clear() {
    this.data = null;
    this.rebuild();
  }

  resize() {
    if (this.plot && this.plot.width !== this.width) this.rebuild();
  }

  destroy() {
    this.observer.disconnect();
    document.removeEventListener("themechange", this.onTheme);
    this.plot?.destroy();
  }
}
