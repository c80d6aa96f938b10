// Idle ages of one target: bars by kind, and the figures of every range.

import { el, reconcile, setText } from "./dom.js";
import { ageBar, ageLegend, fillAgeBar } from "./parts.js";
import { ageRange, bytes } from "./units.js";

const sum = (ages) => ages.reduce((total, row) => total + row.bytes, 0);

export class Ages {
  constructor() {
    this.bars = el("div", { class: "kinds" });
    this.body = el("tbody");
    const heading = (text, title) => el("th", { scope: "col", class: "number", title }, text);
    const table = el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, "Idle age"),
          heading("Resident"),
          heading(
            "Accessed again",
            "Bytes accessed again since the agent started, by the idle age they had then",
          ),
        ),
      ),
      this.body,
    );
    this.element = el(
      "div",
      {},
      ageLegend(),
      this.bars,
      el("details", {}, el("summary", {}, "Figures of every age"), el("div", { class: "table" }, table)),
    );
  }

  update(target) {
    const rows = [
      { kind: "all", ages: target.ages, unknown: target.unknown_bytes },
      ...target.kinds.map((kind) => ({ ...kind, unknown: 0 })),
    ];
    const full = sum(target.ages) + target.unknown_bytes;
    const make = () => el("div", { class: "kind" }, el("span"), ageBar(), el("span", { class: "number" }));
    reconcile(
      this.bars,
      rows,
      (row) => row.kind,
      make,
      (child, row) => {
        setText(child.children[0], row.kind);
        fillAgeBar(child.children[1], row.ages, row.unknown, full);
        setText(child.children[2], bytes(sum(row.ages) + row.unknown));
      },
    );
    const again = new Map(target.reaccess.map((row) => [row.min_s, row.bytes]));
    reconcile(
      this.body,
      target.ages,
      (row) => `${row.min_s}`,
      () =>
        el("tr", {}, el("th", { scope: "row" }), el("td", { class: "number" }), el("td", { class: "number" })),
      (child, row) => {
        setText(child.children[0], ageRange(row));
        setText(child.children[1], bytes(row.bytes));
        setText(child.children[2], bytes(again.get(row.min_s) ?? 0));
      },
    );
  }
}
