// A sortable table that keeps its rows while their figures change.

import { button, el, reconcile, setAttribute, setText } from "./dom.js";

// Columns: { id, label, title, numeric, value(row), text(row) or fill(cell, row) }. `value` sorts; a column
// without it cannot be sorted by. Columns of one table have different ids.
export class Table {
  constructor(caption, columns, key, sort) {
    this.columns = columns;
    this.key = key;
    this.sort = sort;
    this.rows = [];
    this.headings = columns.map((column) => this.heading(column));
    this.body = el("tbody");
    this.empty = el("p", { class: "empty" });
    this.table = el(
      "table",
      {},
      el("caption", { class: "hidden" }, caption),
      el("thead", {}, el("tr", {}, this.headings)),
      this.body,
    );
    this.element = el("div", { class: "table" }, this.sorter(), this.table, this.empty);
  }

  heading(column) {
    const label = column.value
      ? button(column.label, () => this.sortBy(column), { title: column.title })
      : el("span", { title: column.title }, column.label);
    return el(
      "th",
      { scope: "col", class: column.numeric ? "number" : "", data: { column: column.id } },
      label,
    );
  }

  // On a phone the headings are hidden, and this takes their place.
  sorter() {
    const options = this.columns
      .filter((column) => column.value)
      .map((column) => el("option", { value: column.id }, column.label));
    this.select = el(
      "select",
      {
        on: { change: () => this.sortBy(this.columns.find((column) => column.id === this.select.value)) },
      },
      options,
    );
    return el("label", { class: "sorter" }, "Sort by ", this.select);
  }

  // Numbers begin with the largest, texts with A.
  sortBy(column) {
    const down = this.sort.id === column.id ? !this.sort.down : Boolean(column.numeric);
    this.sort = { id: column.id, down };
    this.update(this.rows);
  }

  sorted(rows) {
    const { value } = this.columns.find((column) => column.id === this.sort.id);
    const sign = this.sort.down ? -1 : 1;
    const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b));
    return [...rows].sort(
      (a, b) => sign * compare(value(a), value(b)) || this.key(a).localeCompare(this.key(b)),
    );
  }

  // Shows `rows`, or the text `empty` if there are none.
  update(rows, empty = "") {
    this.rows = rows;
    this.select.value = this.sort.id;
    for (const heading of this.headings) {
      const isSorted = heading.dataset.column === this.sort.id;
      setAttribute(heading, "aria-sort", isSorted ? (this.sort.down ? "descending" : "ascending") : "none");
    }
    reconcile(
      this.body,
      this.sorted(rows),
      this.key,
      () => this.makeRow(),
      (child, row) => this.fillRow(child, row),
    );
    this.table.hidden = rows.length === 0;
    setText(this.empty, rows.length === 0 ? empty : "");
  }

  makeRow() {
    const cells = this.columns.map((column) =>
      el(column.isHeading ? "th" : "td", {
        class: column.numeric ? "number" : "",
        scope: column.isHeading ? "row" : null,
        data: { column: column.id, label: column.label },
      }),
    );
    return el("tr", {}, cells);
  }

  fillRow(element, row) {
    this.columns.forEach((column, index) => {
      const cell = element.children[index];
      if (column.fill) column.fill(cell, row);
      else {
        setText(cell, column.text(row));
        if (column.numeric) cell.classList.toggle("zero", column.value(row) === 0);
      }
    });
  }
}

// The field that filters a page. `/` moves the focus to it.
export function filterField(label, onInput) {
  const input = el("input", {
    type: "search",
    placeholder: "Filter",
    "aria-label": label,
    title: `${label} ( / )`,
    autocomplete: "off",
    spellcheck: "false",
    data: { filter: "" },
    on: { input: () => onInput(input.value.trim().toLowerCase()) },
  });
  return input;
}
