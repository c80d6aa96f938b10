// The heatmap: time to the right, addresses down, one cell for each time and range of addresses. Cells are kept
// as a bitmap of one pixel each, so that a frame of any number of cells is a few scaled copies.

import { cssColour } from "./age-colours.js";
import { el, hideTip, setText, showTip } from "./dom.js";
import { Cells } from "./heatmap-cells.js";
import { ticks } from "./time-axis.js";

const HEIGHT = 400,
  TOP = 4,
  AXIS = 22,
  LABEL_HEIGHT = 12;
// Below this width of the picture the gutter gets narrow.
const NARROW = 520;

const short = (name) => (name === "" ? "[anon]" : name.startsWith("/") ? name.split("/").at(-1) : name);

export class Heatmap {
  // `onView(from, to)`: the user moved or zoomed.
  constructor(onView) {
    this.onView = onView;
    this.view = { from: 0, to: 1 };
    this.cells = null;
    this.cursor = null;
    this.canvas = el("canvas", {
      tabindex: 0,
      role: "img",
      "aria-label": "Heatmap: time to the right, addresses down",
      "aria-describedby": "heatmap-keys",
    });
    this.spoken = el("p", { class: "hidden", role: "status" });
    this.message = el("p", { class: "message" });
    this.element = el("div", { class: "heatmap" }, this.canvas, this.message, this.spoken);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.element);
    this.listen();
  }

  destroy() {
    this.observer.disconnect();
    hideTip();
  }

  setData(answer) {
    this.cells = new Cells(answer, TOP, HEIGHT - TOP - AXIS);
    this.cursor = null;
    this.draw();
  }

  setView(from, to) {
    this.view = { from, to };
    this.draw();
  }

  setMessage(text) {
    setText(this.message, text);
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.width = this.element.clientWidth;
    this.gutter = this.width < NARROW ? 64 : 132;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(HEIGHT * ratio);
    this.canvas.style.height = `${HEIGHT}px`;
    this.paintFrame();
  }

  get plotWidth() {
    return Math.max(1, this.width - this.gutter);
  }

  x(ms) {
    return this.gutter + ((ms - this.view.from) / (this.view.to - this.view.from)) * this.plotWidth;
  }

  timeAt(x) {
    return this.view.from + ((x - this.gutter) / this.plotWidth) * (this.view.to - this.view.from);
  }

  // At most one frame per refresh of the screen.
  draw() {
    this.pending ??= requestAnimationFrame(() => this.paintFrame());
  }

  paintFrame() {
    cancelAnimationFrame(this.pending);
    this.pending = null;
    if (!this.width) return;
    const context = this.canvas.getContext("2d");
    const ratio = this.canvas.width / this.width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, HEIGHT);
    context.font = `11px ${getComputedStyle(this.element).fontFamily}`;
    if (this.cells) this.paintCells(context);
    this.paintLabels(context);
    this.paintAxis(context);
    this.paintCursor(context);
  }

  paintCells(context) {
    context.save();
    context.beginPath();
    context.rect(this.gutter, 0, this.plotWidth, HEIGHT - AXIS);
    context.clip();
    context.imageSmoothingEnabled = false;
    const { bitmap, runs, groups, rows } = this.cells;
    let shown = 0;
    for (const { first, end, from, to } of runs) {
      const left = this.x(from);
      const width = this.x(to) - left;
      const visible = Math.min(left + width, this.width) - Math.max(left, this.gutter);
      if (visible <= 0) continue;
      shown += (visible / width) * (end - first) * rows.length;
      for (const group of groups) {
        const [y, count] = [group.first, group.end - group.first];
        context.drawImage(bitmap, first, y, end - first, count, left, group.y, width, group.height);
      }
    }
    this.canvas.dataset.cells = Math.round(shown);
    context.restore();
  }

  paintLabels(context) {
    context.fillStyle = cssColour("--muted");
    context.textAlign = "left";
    context.textBaseline = "middle";
    let free = 0;
    for (const group of this.cells?.groups ?? []) {
      const y = Math.max(group.y + LABEL_HEIGHT / 2, free);
      if (y > group.y + group.height + LABEL_HEIGHT / 4) continue;
      free = y + LABEL_HEIGHT;
      const process = group.isNewProcess && this.cells.hasProcesses ? `${group.pid} ` : "";
      if (group.gutter !== this.gutter) group.label = this.fitted(context, process + short(group.name));
      group.gutter = this.gutter;
      context.fillText(group.label, 0, y);
    }
  }

  fitted(context, text) {
    const room = this.gutter - 8;
    if (context.measureText(text).width <= room) return text;
    let end = text.length;
    while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > room) end -= 1;
    return `${text.slice(0, end)}…`;
  }

  paintAxis(context) {
    context.fillStyle = cssColour("--muted");
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    for (const [at, text] of ticks(this.view.from, this.view.to, this.plotWidth)) {
      const x = this.x(at);
      if (x < this.gutter + 24 || x > this.width - 24) continue;
      context.fillRect(Math.round(x), HEIGHT - AXIS + 2, 1, 4);
      context.fillText(text, x, HEIGHT - 5);
    }
  }

  paintCursor(context) {
    if (!this.cursor) return;
    const { left, top, width, height } = this.box(this.cursor);
    context.strokeStyle = cssColour("--text");
    context.lineWidth = 2;
    context.strokeRect(left, top, Math.max(3, width), Math.max(3, height));
  }

  // Where a cell is drawn.
  box(cell) {
    const { from, to, y } = this.cells.place(cell);
    return { left: this.x(from), top: y, width: this.x(to) - this.x(from), height: this.cells.rowHeight };
  }

  listen() {
    const { canvas } = this;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, ...this.view };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag) this.pan(drag, event.clientX);
      else this.hover(event);
    });
    for (const end of ["pointerup", "pointercancel"])
      canvas.addEventListener(end, () => {
        drag = null;
      });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => {
      this.cursor = null;
      hideTip();
      this.draw();
    });
  }

  pan(drag, x) {
    const shift = ((drag.x - x) / this.plotWidth) * (drag.to - drag.from);
    hideTip();
    this.onView(drag.from + shift, drag.to + shift);
  }

  hover(event) {
    const isInside = this.cells && event.offsetX >= this.gutter;
    const found = isInside ? this.cells.find(event.offsetY, this.timeAt(event.offsetX)) : null;
    if (found) showTip(event.clientX, event.clientY, this.cells.describe(found));
    else hideTip();
  }

  // Without Ctrl the wheel scrolls the page.
  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, this.timeAt(event.offsetX));
  }

  zoom(factor, about = (this.view.from + this.view.to) / 2) {
    this.onView(about - (about - this.view.from) * factor, about + (this.view.to - about) * factor);
  }

  move(share) {
    const shift = (this.view.to - this.view.from) * share;
    this.onView(this.view.from + shift, this.view.to + shift);
  }

  key(event) {
    const arrows = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const arrow = arrows[event.key];
    if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (arrow && event.shiftKey && arrow[1] !== 0) this.move(arrow[1] / 4);
    else if (arrow && this.cells) this.step(arrow);
    else return;
    event.preventDefault();
  }

  // Moves the cursor by a cell, and the view with it. It begins in the middle of the first row.
  step([down, right]) {
    const { rows, times } = this.cells;
    if (rows.length === 0 || times.length === 0) return;
    const middle = this.cells.columnAt((this.view.from + this.view.to) / 2) ?? times.length - 1;
    const from = this.cursor ?? { row: 0, column: middle };
    const clamp = (value, end) => Math.max(0, Math.min(end - 1, value));
    this.cursor = {
      row: clamp(from.row + down, rows.length),
      column: clamp(from.column + right, times.length),
    };
    const { left, top, width } = this.box(this.cursor);
    if (left < this.gutter || left + width > this.width) this.move(right / 4);
    const text = this.cells.describe(this.cursor);
    const canvas = this.canvas.getBoundingClientRect();
    showTip(canvas.left + left, canvas.top + top, text);
    setText(this.spoken, text.join(", "));
    this.draw();
  }
}
