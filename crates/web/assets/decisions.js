// Decisions and their reasons, the newest first.

import { state } from "./api.js";
import { button, el, reconcile, setText } from "./dom.js";
import { pageTitle, targetLink } from "./parts.js";
import { filterField } from "./table.js";
import { bytes, time } from "./units.js";

const PAGE = 100;

// Words and colour of each kind.
const KINDS = {
  acted: ["acted", "good"],
  "would-act": ["would act", "idle"],
  skipped: ["skipped", "idle"],
  suspended: ["suspended", "warn"],
  resumed: ["resumed", "good"],
  paused: ["paused", "warn"],
  "mode-changed": ["mode changed", "info"],
  "age-chosen": ["age chosen", "info"],
  reloaded: ["reloaded", "info"],
  warning: ["warning", "bad"],
};

function row(decision) {
  const [word, kind] = KINDS[decision.kind] ?? [decision.kind, "idle"];
  const subject =
    decision.target === null
      ? el("span", {}, decision.policy)
      : el("a", { href: targetLink(decision.policy, decision.target) }, decision.target);
  const amount = decision.bytes > 0 ? bytes(decision.bytes) : "";
  return el(
    "li",
    { class: "decision" },
    el("time", { datetime: new Date(decision.time_ms).toISOString() }, time(decision.time_ms)),
    el("span", { class: `badge ${kind}` }, word),
    el("span", { class: "subject", title: decision.target }, subject),
    el("span", { class: "policy" }, decision.target === null ? "" : decision.policy),
    el("span", { class: "action" }, decision.action),
    el("span", { class: "amount number" }, amount),
    el("span", { class: "why" }, decision.why),
  );
}

// A list of decisions. `update(decisions, empty)` shows the newest.
export function decisionList(length) {
  let shown = length;
  const list = el("ol", { class: "decisions" });
  const empty = el("p", { class: "empty" });
  const more = button("Show older", () => {
    shown += PAGE;
    update(last, "");
  });
  let last = [];
  function update(decisions, why) {
    last = decisions;
    const newest = decisions.slice(-shown).reverse();
    reconcile(
      list,
      newest,
      (decision) => `${decision.number}`,
      row,
      () => {},
    );
    more.hidden = decisions.length <= shown;
    setText(empty, decisions.length === 0 ? why : "");
  }
  return { element: el("div", {}, list, empty, more), update };
}

function selectOf(label, onChange) {
  const select = el("select", { "aria-label": label, on: { change: onChange } });
  const setOptions = (all, values) => {
    const entries = [["", all], ...values.map((value) => [value, KINDS[value]?.[0] ?? value])];
    reconcile(
      select,
      entries,
      ([value]) => value,
      ([value, text]) => el("option", { value }, text),
      () => {},
    );
  };
  return { select, setOptions };
}

export function decisions() {
  const chosen = { policy: "", kind: "", text: "" };
  const policy = selectOf("Policy", () => {
    chosen.policy = policy.select.value;
    update();
  });
  const kind = selectOf("Kind", () => {
    chosen.kind = kind.select.value;
    update();
  });
  const input = filterField("Filter decisions by target or reason", (text) => {
    chosen.text = text;
    update();
  });
  const count = el("span", { class: "count", role: "status" });
  const list = decisionList(PAGE);
  const element = el(
    "div",
    { class: "page" },
    pageTitle("Decisions", count, policy.select, kind.select, input),
    list.element,
  );

  function matches(decision) {
    return (
      (chosen.policy === "" || decision.policy === chosen.policy) &&
      (chosen.kind === "" || decision.kind === chosen.kind) &&
      (chosen.text === "" || `${decision.target ?? ""} ${decision.why}`.toLowerCase().includes(chosen.text))
    );
  }

  function update() {
    const all = state.decisions;
    policy.setOptions(
      "all policies",
      (state.policies?.policies ?? []).map((one) => one.name),
    );
    kind.setOptions("all kinds", Object.keys(KINDS));
    const shown = all.filter(matches);
    setText(
      count,
      shown.length === all.length ? `${all.length} decisions` : `${shown.length} of ${all.length} decisions`,
    );
    list.update(shown, all.length === 0 ? "No decision since the agent started." : "No decision matches.");
  }

  return { element, title: "Decisions", update, on: ["decisions", "policies"] };
}
