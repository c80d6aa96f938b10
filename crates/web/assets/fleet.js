// The first page: all targets, with idle share and net saving.

import { IDLE_S, idleBytes } from "./age-colours.js";
import { state } from "./api.js";
import { el, setAttribute, setText } from "./dom.js";
import {
  ageBar,
  ageLegend,
  figure,
  fillAgeBar,
  fillMode,
  fillState,
  pageTitle,
  targetLink,
  targetState,
} from "./parts.js";
import { Table, filterField } from "./table.js";
import { age, bytes, percent } from "./units.js";

const idleShare = (target) => (target.resident_bytes > 0 ? idleBytes(target.ages) / target.resident_bytes : 0);
const policyOf = (target) => state.policies?.policies.find((policy) => policy.name === target.policy);

const COLUMNS = [
  { id: "name", label: "Target", isHeading: true, value: (t) => t.name, fill: fillName },
  { id: "policy", label: "Policy", value: (t) => t.policy, text: (t) => t.policy },
  { id: "mode", label: "Mode", value: (t) => t.mode, fill: (cell, t) => fillMode(cell, t.mode) },
  {
    id: "resident",
    label: "Resident",
    numeric: true,
    value: (t) => t.resident_bytes,
    text: (t) => bytes(t.resident_bytes),
  },
  {
    id: "idle",
    label: `Idle ≥ ${age(IDLE_S)}`,
    numeric: true,
    value: idleShare,
    text: (t) => percent(idleShare(t)),
    title: "Share of resident memory that was not accessed for a minute",
  },
  { id: "ages", label: "By idle age", fill: fillAges },
  {
    id: "net",
    label: "Net saving",
    numeric: true,
    value: (t) => t.net_saved_bytes,
    text: (t) => bytes(t.net_saved_bytes),
    title: "Bytes paged out and not back, less what they occupy in compressed swap",
  },
  {
    id: "refaults",
    label: "Refaults/min",
    numeric: true,
    value: (t) => t.refault_bytes_per_min,
    text: (t) => bytes(t.refault_bytes_per_min),
    title: "Bytes that came back in the last minute after they were paged out",
  },
  {
    id: "state",
    label: "State",
    value: (t) => targetState(t, policyOf(t)).join(" "),
    fill: (cell, t) => fillState(cell, targetState(t, policyOf(t))),
  },
];

function fillName(cell, target) {
  if (!cell.firstChild) cell.append(el("a", {}));
  setText(cell.firstChild, target.name);
  setAttribute(cell.firstChild, "href", targetLink(target.policy, target.name));
}

function fillAges(cell, target) {
  if (!cell.firstChild) cell.append(ageBar());
  fillAgeBar(cell.firstChild, target.ages, target.unknown_bytes, target.resident_bytes);
}

const sum = (targets, value) => targets.reduce((total, target) => total + value(target), 0);

export function fleet() {
  let filter = "";
  const table = new Table("Targets", COLUMNS, (t) => `${t.policy}/${t.name}`, { id: "resident", down: true });
  const input = filterField("Filter targets by name, policy, mode or state", (text) => {
    filter = text;
    update();
  });
  const count = el("span", { class: "count", role: "status" });
  const figures = {
    resident: figure("Resident", "resident"),
    idle: figure(`Idle ≥ ${age(IDLE_S)}`, "idle"),
    net: figure("Net saving", "net"),
    refaults: figure("Refaults/min", "refaults"),
    state: figure("Policies", "policies"),
  };
  const element = el(
    "div",
    { class: "page" },
    pageTitle("Targets", count, input),
    el(
      "dl",
      { class: "figures" },
      Object.values(figures).map((one) => one.element),
    ),
    ageLegend(),
    table.element,
  );

  function update() {
    if (!state.targets) return table.update([], "Waiting for the agent.");
    const all = state.targets.targets;
    const words = (t) =>
      `${t.name} ${t.policy} ${t.mode} ${targetState(t, policyOf(t)).join(" ")}`.toLowerCase();
    const shown = filter === "" ? all : all.filter((target) => words(target).includes(filter));
    const resident = sum(shown, (t) => t.resident_bytes),
      idle = sum(shown, (t) => idleBytes(t.ages));
    setText(
      count,
      shown.length === all.length ? `${all.length} targets` : `${shown.length} of ${all.length} targets`,
    );
    figures.resident.set(bytes(resident), `${bytes(sum(shown, (t) => t.swap_bytes))} in swap`);
    figures.idle.set(percent(resident > 0 ? idle / resident : 0), bytes(idle));
    figures.net.set(bytes(sum(shown, (t) => t.net_saved_bytes)));
    figures.refaults.set(bytes(sum(shown, (t) => t.refault_bytes_per_min)));
    updatePolicies();
    element.dataset.time = state.targets.time_ms;
    table.update(
      shown,
      all.length === 0
        ? "No process matches a policy yet. `thermo agent explain PID` says why."
        : "No target matches the filter.",
    );
  }

  function updatePolicies() {
    const policies = state.policies?.policies ?? [];
    const held = policies.filter((policy) => policy.suspended || policy.paused || policy.error).length;
    figures.state.set(String(policies.length), held === 0 ? "none suspended" : `${held} suspended or paused`);
  }

  return { element, title: "Targets", update, on: ["targets", "policies"] };
}
