// The ledger: what each policy did to each target, what came back, what that saved and what it cost.

import { get } from "./api.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";
import { LedgerDays } from "./ledger-days.js";
import { figure, pageTitle, targetLink } from "./parts.js";
import { Table, filterField } from "./table.js";
import { bytes, date, duration, gibHours, percent, time } from "./units.js";

const GIB = 2 ** 30;
const EVERY_MS = 10000,
  DAYS_EVERY_MS = 60000;

const total = (named) => named.reduce((sum, one) => sum + one.bytes, 0);
const acted = (row) => total(row.acted_bytes);
const pagedOut = (row) => total(row.acted_bytes.filter((one) => one.name === "pageout"));
const meanSaved = (row) => (row.watched_s > 0 ? (row.net_saved_gib_hours * GIB) / (row.watched_s / 3600) : 0);
const cpu = (row) => row.watching_cpu_s + row.acting_cpu_s;

const bytesColumn = (id, label, value, title) => ({
  id,
  label,
  title,
  numeric: true,
  value,
  text: (row) => bytes(value(row)),
});

// The sum, and its parts by name.
function namedColumn(id, label, list, title) {
  const value = (row) => total(row[list]);
  const fill = (cell, row) => {
    if (!cell.firstChild) cell.append(el("details", {}, el("summary", {}), el("ul", { class: "parts" })));
    const [summary, parts] = cell.firstChild.children;
    setText(summary, bytes(value(row)));
    cell.classList.toggle("zero", value(row) === 0);
    reconcile(
      parts,
      row[list],
      (part) => part.name,
      () => el("li"),
      (child, part) => setText(child, `${part.name} ${bytes(part.bytes)}`),
    );
  };
  return { id, label, title, numeric: true, value, fill };
}

const COLUMNS = [
  { id: "target", label: "Target", isHeading: true, value: (row) => row.target, fill: fillTarget },
  { id: "policy", label: "Policy", value: (row) => row.policy, text: (row) => row.policy },
  {
    id: "saved",
    label: "Net saving",
    numeric: true,
    value: (row) => row.net_saved_gib_hours,
    text: (row) => gibHours(row.net_saved_gib_hours),
    title: "Net saving over time, in GiB times hours",
  },
  bytesColumn("mean", "Mean saving", meanSaved, "Net saving over time, divided by the time watched"),
  namedColumn("acted", "Acted on", "acted_bytes", "Bytes acted on, by action"),
  namedColumn("would", "Would act", "would_act_bytes", "Bytes that a dry run would have acted on"),
  bytesColumn(
    "back1",
    "Back ≤ 1 min",
    (row) => row.back_1min_bytes,
    "Came back within a minute after it was paged out",
  ),
  bytesColumn("back10", "≤ 10 min", (row) => row.back_10min_bytes, "Came back within ten minutes"),
  bytesColumn("back60", "≤ 1 h", (row) => row.back_1h_bytes, "Came back within an hour"),
  namedColumn("skipped", "Skipped", "skipped_bytes", "Bytes that matched and were left alone, by reason"),
  {
    id: "cpu",
    label: "CPU",
    numeric: true,
    value: cpu,
    title: "CPU time of watching and of acting",
    text: (row) =>
      row.acting_cpu_s > 0
        ? `${duration(row.watching_cpu_s)} + ${duration(row.acting_cpu_s)}`
        : duration(row.watching_cpu_s),
  },
  {
    id: "watched",
    label: "Watched",
    numeric: true,
    value: (row) => row.watched_s,
    text: (row) => duration(row.watched_s),
  },
];

function fillTarget(cell, row) {
  if (!cell.firstChild) cell.append(el("a", {}));
  setText(cell.firstChild, row.target);
  setAttribute(cell.firstChild, "href", targetLink(row.policy, row.target));
}

const sum = (rows, value) => rows.reduce((all, row) => all + value(row), 0);

export function ledger() {
  let filter = "",
    answer = null,
    problem = "Waiting for the agent.";
  const table = new Table("Ledger", COLUMNS, (row) => `${row.policy}/${row.target}`, {
    id: "saved",
    down: true,
  });
  const input = filterField("Filter the ledger by target or policy", (text) => {
    filter = text;
    update();
  });
  const days = new LedgerDays();
  let daysAt = 0;
  const since = el("span", { class: "count" });
  const figures = {
    saved: figure("Net saving", "saved"),
    acted: figure("Acted on", "acted"),
    back: figure("Back within 1 h", "back"),
    cpu: figure("CPU time", "cpu"),
  };
  const element = el(
    "div",
    { class: "page" },
    pageTitle("Ledger", since, input),
    el(
      "dl",
      { class: "figures" },
      Object.values(figures).map((one) => one.element),
    ),
    days.element,
    table.element,
  );

  function update() {
    const all = answer?.rows ?? [];
    const rows = all.filter((row) => `${row.target} ${row.policy}`.toLowerCase().includes(filter));
    if (answer) setText(since, `since ${date(answer.since_ms)}, ${time(answer.since_ms).split(" ").at(-1)}`);
    const out = sum(rows, pagedOut),
      back = sum(rows, (row) => row.back_1h_bytes);
    figures.saved.set(
      gibHours(sum(rows, (row) => row.net_saved_gib_hours)),
      `${bytes(sum(rows, meanSaved))} on average`,
    );
    figures.acted.set(
      bytes(sum(rows, acted)),
      `${bytes(sum(rows, (row) => total(row.would_act_bytes)))} in dry runs`,
    );
    figures.back.set(bytes(back), out > 0 ? `${percent(back / out)} of what was paged out` : "");
    figures.cpu.set(duration(sum(rows, cpu)), `${duration(sum(rows, (row) => row.acting_cpu_s))} for acting`);
    table.update(rows, all.length > 0 ? "No row matches the filter." : problem);
  }

  // A long answer of which only the last day changes.
  async function readDays() {
    if (Date.now() - daysAt < DAYS_EVERY_MS) return;
    daysAt = Date.now();
    try {
      days.set((await get("ledger", { by: "day" })).rows);
    } catch (error) {
      daysAt = 0;
      days.fail(error.message);
    }
  }

  async function read() {
    readDays();
    try {
      answer = await get("ledger");
      problem = "The ledger is empty: no target was watched yet.";
    } catch (error) {
      problem = error.message;
    }
    update();
  }

  const destroy = () => days.destroy();
  return { element, title: "Ledger", update, on: [], every: { ms: EVERY_MS, run: read }, destroy };
}
