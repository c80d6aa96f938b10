// The advice: what each minimum age would save, against what would come back. The slider walks along the curve.

import { cssColour } from "./age-colours.js";
import { Chart, axis, byteAxis } from "./charts.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";
import { age, bytes, percent } from "./units.js";

const HEIGHT = 220;
// Rates of zero have no place on a logarithmic axis.
const LEAST_PERCENT = 0.001;

const rate = (row) => Math.max(LEAST_PERCENT, row.share_per_min.mid * 100);
const fromZero = (_, __, max) => [0, Math.max(1, max) * 1.15];
// Of the splits of a logarithmic axis, the powers of ten; where there are few, 2 and 5 times these as well.
function roundSplits(plot, splits) {
  const { min, max } = plot.scales.x;
  const digits = Math.log10(max / min) >= 2 ? [1] : [1, 2, 5];
  const isRound = (at) => digits.includes(Math.round(at / 10 ** Math.floor(Math.log10(at) + 1e-6)));
  return splits.map((at) => (isRound(at) ? at : null));
}
const perMinute = (share) => `${percent(share)}/min`;

export class AgeCurve {
  constructor() {
    this.rows = [];
    this.slider = el("input", {
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      id: "age-slider",
      on: { input: () => this.choose(Number(this.slider.value)) },
    });
    this.at = el("output", { for: "age-slider", class: "at", data: { field: "at" } });
    this.detail = el("p", { class: "note", data: { field: "at-detail" } });
    this.sentence = el("p", { class: "sentence", data: { field: "advice" } });
    this.swap = el("ul", { class: "notes" });
    this.body = el("tbody");
    this.box = el("div", {
      class: "chart",
      role: "img",
      "aria-label": "Memory kept and net saving against refaults a minute; the table below has the figures",
    });
    this.picker = el(
      "div",
      { class: "picker" },
      el("label", { for: "age-slider" }, "Minimum age"),
      this.slider,
      this.at,
      this.detail,
    );
    this.legend = el(
      "ul",
      { class: "legend" },
      el("li", {}, el("i", { class: "line-net" }), "net saving, with its interval (left)"),
      el("li", {}, el("i", { class: "line-kept" }), "resident memory kept (right)"),
    );
    const heading = (text, title) => el("th", { scope: "col", class: "number", title }, text);
    this.table = el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, "Page out after"),
          heading("Leaves"),
          heading("In swap"),
          heading("Net saving"),
          heading("Back/min"),
          heading("Of set/min", "Share of the working set"),
        ),
      ),
      this.body,
    );
    this.element = el(
      "div",
      { class: "curve" },
      this.sentence,
      this.picker,
      this.box,
      this.legend,
      el("div", { class: "table" }, this.table),
      this.swap,
    );
    this.chart = new Chart(this.box, HEIGHT, () => this.options());
  }

  options() {
    const accent = cssColour("--accent"),
      muted = cssColour("--muted");
    const hidden = { stroke: "transparent", width: 0, points: { show: false } };
    return {
      scales: {
        x: { time: false, distr: 3, range: (_, min, max) => [min / 1.6, max * 1.6] },
        y: { range: fromZero },
        kept: { range: fromZero },
      },
      axes: [
        axis({
          size: 24,
          filter: roundSplits,
          grid: { stroke: cssColour("--line"), width: 1, filter: roundSplits },
          label: "refaults, % of the working set a minute",
          labelSize: 18,
          labelGap: 0,
          labelFont: axis().font,
          values: (_, splits) => splits.map((at) => (at === null ? "" : String(Number(at.toPrecision(1))))),
        }),
        byteAxis({ stroke: accent }),
        byteAxis({ scale: "kept", side: 1, grid: { show: false } }),
      ],
      series: [
        {},
        { scale: "kept", stroke: muted, width: 1.5, dash: [4, 3], points: { show: false } },
        hidden,
        hidden,
        { stroke: accent, width: 2, points: { show: true, size: 6, fill: accent } },
      ],
      bands: [{ series: [2, 3], fill: cssColour("--band") }],
      padding: [8, 0, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
      hooks: {
        draw: [(plot) => this.annotate(plot)],
        ready: [(plot) => plot.over.addEventListener("click", () => this.chooseAt(plot.cursor.idx))],
      },
    };
  }

  // The age at each point, and a line at the chosen one.
  annotate(plot) {
    const { ctx } = plot,
      ratio = devicePixelRatio || 1;
    const chosen = this.rows[Number(this.slider.value)];
    ctx.save();
    ctx.font = `${11 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
    ctx.textAlign = "center";
    let free = Infinity;
    this.rows.forEach((row) => {
      const x = plot.valToPos(rate(row), "x", true),
        y = plot.valToPos(row.net_saved_bytes.mid, "y", true);
      const isChosen = row === chosen;
      if (isChosen) {
        ctx.strokeStyle = cssColour("--text");
        ctx.lineWidth = ratio;
        ctx.setLineDash([2 * ratio, 2 * ratio]);
        ctx.beginPath();
        ctx.moveTo(x, plot.bbox.top);
        ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
        ctx.stroke();
        ctx.fillStyle = cssColour("--text");
        ctx.beginPath();
        ctx.arc(x, y, 5 * ratio, 0, 7);
        ctx.fill();
      }
      if (!isChosen && Math.abs(free - x) < 40 * ratio) return;
      ctx.fillStyle = cssColour(isChosen ? "--text" : "--muted");
      ctx.fillText(age(row.min_age_s), x, y - 10 * ratio);
      free = x;
    });
    ctx.restore();
  }

  // Shows an answer of /api/v1/advice.
  set(advice) {
    const before = this.rows[Number(this.slider.value)]?.min_age_s;
    this.rows = advice.table.filter((row) => row.known);
    setText(this.sentence, advice.advice.why);
    setAttribute(this.sentence, "class", `sentence ${advice.advice.worth ? "good" : "idle"}`);
    this.fillTable(advice);
    this.fillNotes(advice);
    const isEmpty = this.rows.length === 0;
    for (const part of [this.picker, this.box, this.legend]) part.hidden = isEmpty;
    if (isEmpty) return this.chart.clear();
    const wanted = before ?? advice.advice.min_age_s ?? this.rows[0].min_age_s;
    this.slider.max = this.rows.length - 1;
    this.slider.value = Math.max(
      0,
      this.rows.findIndex((row) => row.min_age_s === wanted),
    );
    this.plot(advice.resident_bytes);
    this.choose(Number(this.slider.value));
  }

  fail(text) {
    this.rows = [];
    setText(this.sentence, text);
    for (const part of [this.picker, this.box, this.legend]) part.hidden = true;
    this.body.replaceChildren();
    this.swap.replaceChildren();
    this.table.hidden = true;
  }

  plot(resident) {
    this.sorted = [...this.rows].sort((a, b) => rate(a) - rate(b));
    const column = (value) => this.sorted.map(value);
    this.chart.set([
      column(rate),
      column((row) => Math.max(0, resident - row.leaves_bytes)),
      column((row) => row.net_saved_bytes.high),
      column((row) => row.net_saved_bytes.low),
      column((row) => row.net_saved_bytes.mid),
    ]);
  }

  fillTable(advice) {
    this.table.hidden = this.rows.length === 0;
    reconcile(
      this.body,
      this.rows,
      (row) => `${row.min_age_s}`,
      () =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }),
          [1, 2, 3, 4, 5].map(() => el("td", { class: "number" })),
        ),
      (child, row) => {
        const texts = [
          age(row.min_age_s),
          bytes(row.leaves_bytes),
          bytes(row.compressed_bytes.mid),
          bytes(row.net_saved_bytes.mid),
          bytes(row.refault_bytes_per_min.mid),
          percent(row.share_per_min.mid),
        ];
        texts.forEach((text, index) => setText(child.children[index], text));
        child.classList.toggle("advised", row.min_age_s === advice.advice.min_age_s);
      },
    );
  }

  fillNotes(advice) {
    const unknown = advice.table.filter((row) => !row.known).map((row) => `${age(row.min_age_s)}: ${row.why}`);
    const notes = [
      ...(unknown.length > 0 && this.rows.length > 0 ? [`Cannot tell for ${unknown.join("; ")}.`] : []),
      ...(advice.swap ? [advice.swap.why, ...advice.swap.lacks] : []),
      ...advice.notes,
    ];
    this.swap.replaceChildren(...notes.map((note) => el("li", {}, note)));
  }

  chooseAt(sortedIndex) {
    if (sortedIndex === null || sortedIndex === undefined) return;
    this.choose(this.rows.indexOf(this.sorted[sortedIndex]));
  }

  choose(index) {
    const row = this.rows[index];
    if (!row) return;
    this.slider.value = index;
    const text = `at ${age(row.min_age_s)}: ${bytes(row.net_saved_bytes.mid)}, ${perMinute(row.share_per_min.mid)}`;
    setText(this.at, text);
    setAttribute(this.slider, "aria-valuetext", text);
    const cpu = Number.isFinite(row.cpu_share) ? `, ${percent(row.cpu_share)} of one CPU for paging` : "";
    setText(
      this.detail,
      `${bytes(row.net_saved_bytes.low)} to ${bytes(row.net_saved_bytes.high)} net; ${bytes(row.refault_bytes_per_min.mid)} a minute come back${cpu}`,
    );
    [...this.body.children].forEach((child, nth) => child.classList.toggle("chosen", nth === index));
    this.chart.plot?.redraw(false);
  }

  destroy() {
    this.chart.destroy();
  }
}
