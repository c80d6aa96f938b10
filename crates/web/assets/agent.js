// The agent itself: budget, cost and warnings.

import { refresh, state } from "./api.js";
import { el, reconcile, setText } from "./dom.js";
import { figure, pageTitle } from "./parts.js";
import { bytes, duration, percent, time } from "./units.js";

const EVERY_MS = 5000;

export function agent() {
  const figures = {
    watching: figure("Watching now", "watching", "CPU time of watching since the last reading, of one CPU"),
    mean: figure("Watching, mean", "watching-mean", "CPU time of watching since the start, of one CPU"),
    acting: figure("Acting, mean", "acting-mean", "CPU time of acting since the start, of one CPU"),
    all: figure("Whole agent, mean", "cpu-mean", "CPU time of the agent since its start, of one CPU"),
    memory: figure("Resident memory", "agent-resident"),
  };
  const meter = el("meter", { min: 0, max: 1, "aria-label": "CPU used, of the budget" });
  const budget = el("p", { class: "budget" }, el("span", { data: { field: "budget" } }), meter);
  const facts = el("dl", { class: "facts" });
  const warnings = el("ul", { class: "warnings", role: "status" });
  const none = el("p", { class: "empty" });
  const element = el(
    "div",
    { class: "page" },
    pageTitle("Agent"),
    el(
      "dl",
      { class: "figures" },
      Object.values(figures).map((one) => one.element),
    ),
    budget,
    el(
      "div",
      { class: "columns" },
      el("section", {}, el("h2", {}, "Budget"), budget, facts),
      el("section", {}, el("h2", {}, "Warnings"), warnings, none),
    ),
  );
  let before = null;

  function update() {
    const now = state.status;
    if (!now) return;
    const up = Math.max(0.001, (now.time_ms - now.started_ms) / 1000);
    updateNow(now);
    figures.mean.set(percent(now.watching_cpu_s / up), duration(now.watching_cpu_s));
    figures.acting.set(percent(now.acting_cpu_s / up), duration(now.acting_cpu_s));
    figures.all.set(percent(now.cpu_s / up), duration(now.cpu_s));
    figures.memory.set(bytes(now.resident_bytes));
    reconcile(
      warnings,
      now.warnings,
      (text) => text,
      (text) => el("li", {}, text),
      () => {},
    );
    setText(none, now.warnings.length === 0 ? "No warnings." : "");
    const rows = [
      ["Host", now.host],
      ["Version", now.version],
      ["Running for", `${duration(up)}, since ${time(now.started_ms)}`],
      ["Tracker", now.tracker],
      ["Ready", now.ready ? "yes: every policy runs" : "no: a policy does not run"],
    ];
    facts.replaceChildren(...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  }

  // The rate between two readings.
  function updateNow(now) {
    if (before && now.time_ms > before.time_ms && now.started_ms === before.started_ms) {
      const share = (now.watching_cpu_s - before.watching_cpu_s) / ((now.time_ms - before.time_ms) / 1000);
      const used = now.budget_cpu_share > 0 ? share / now.budget_cpu_share : 0;
      figures.watching.set(percent(share), `${percent(used)} of the budget`);
      meter.value = Math.min(1, used);
    } else if (!before) {
      figures.watching.set("…");
    }
    if (!before || now.time_ms !== before.time_ms) before = now;
    setText(
      element.querySelector("[data-field=budget]"),
      `Budget of watching: ${percent(now.budget_cpu_share)} of one CPU`,
    );
  }

  return {
    element,
    title: "Agent",
    update,
    on: ["status"],
    every: { ms: EVERY_MS, run: () => refresh("status").catch(() => {}) },
  };
}
