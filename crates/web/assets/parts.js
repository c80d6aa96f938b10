// Small parts that several pages show.

import { GROUPS, cssColour, grouped } from "./age-colours.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";
import { bytes, percent } from "./units.js";

export const targetLink = (policy, name) =>
  `#/target/${encodeURIComponent(policy)}/${encodeURIComponent(name)}`;

export function pageTitle(text, ...tools) {
  return el(
    "div",
    { class: "title" },
    el("h1", {}, text),
    tools.length > 0 ? el("div", { class: "tools" }, tools) : null,
  );
}

// A labelled figure. `set(text, note)` changes it.
export function figure(label, field, title) {
  const value = el("dd", { data: { field } });
  const note = el("dd", { class: "note" });
  const element = el("div", { class: "figure", title }, el("dt", {}, label), value, note);
  return {
    element,
    set(text, small = "") {
      setText(value, text);
      setText(note, small);
    },
  };
}

// A bar of bytes by idle age: the youngest on the left, unknown memory last.
export function ageBar() {
  return el("div", { class: "ages", role: "img" }, [
    ...GROUPS.map((_, index) => el("i", { class: `age-${index}` })),
    el("i", { class: "unknown" }),
  ]);
}

// `of`: the bytes of a full bar.
export function fillAgeBar(bar, ages, unknown, of) {
  const parts = [...grouped(ages), unknown];
  const sum = parts.reduce((a, b) => a + b, 0);
  parts.forEach((part, index) => {
    const width = of > 0 ? `${((part / of) * 100).toFixed(2)}%` : "0";
    const segment = bar.children[index];
    if (segment.style.width !== width) segment.style.width = width;
  });
  const names = [...GROUPS.map((group) => group.name), "unknown"];
  const text = names.map((name, index) => `${name}: ${bytes(parts[index])}`).join(", ");
  setAttribute(bar, "aria-label", sum === 0 ? "No memory" : `By idle age: ${text}`);
  setAttribute(
    bar,
    "title",
    names
      .map((name, index) => `${name}: ${bytes(parts[index])} (${percent(sum > 0 ? parts[index] / sum : 0)})`)
      .join("\n"),
  );
}

// What the colours of ages mean.
export function ageLegend() {
  const entry = (name, index) =>
    el("li", {}, el("i", { class: index === null ? "unknown" : `age-${index}` }), name);
  return el(
    "ul",
    { class: "legend", "aria-label": "Idle age" },
    el("li", { class: "about" }, "Idle for"),
    GROUPS.map((group, index) => entry(group.name, index)),
    entry("unknown", null),
  );
}

export const ageColours = () => GROUPS.map((_, index) => cssColour(`--age-${index}`));

function modeBadge(mode) {
  return el("span", { class: `badge mode-${mode}` }, mode);
}

export function fillMode(cell, mode) {
  reconcile(
    cell,
    [mode],
    (name) => name,
    modeBadge,
    () => {},
  );
}

// A state as [class, word, reason].
export function targetState(target, policy) {
  if (policy?.error) return ["bad", "cannot run", policy.error];
  if (policy?.paused) return ["warn", "paused", "A user paused the policy."];
  if (target.suspended) return ["warn", "suspended", target.suspended];
  if (target.pass_s === null) return ["idle", "first scan pass", ""];
  if (target.mode === "act") return ["good", "acting", ""];
  return ["idle", "watching", ""];
}

export function fillState(cell, [kind, word, reason]) {
  const id = `${kind} ${word}`;
  reconcile(
    cell,
    [{ id }],
    (part) => part.id,
    () =>
      el(
        "div",
        { class: "state" },
        el("span", { class: `badge ${kind}` }, word),
        el("span", { class: "reason" }),
      ),
    (child) => {
      setText(child.lastChild, reason);
      setAttribute(child.lastChild, "title", reason);
    },
  );
}
