// One target: its figures, its heatmap and history with time travel, its idle ages, the advice, and what was
// decided about it.

import { Ages } from "./ages.js";
import { state } from "./api.js";
import { AgeCurve } from "./curve.js";
import { decisionList } from "./decisions.js";
import { el, setText } from "./dom.js";
import { figure, fillMode, fillState, targetState } from "./parts.js";
import { Past } from "./past.js";
import { bytes, duration, percent } from "./units.js";

const SHOWN_DECISIONS = 12;

const section = (title, ...children) => el("section", {}, el("h2", {}, title), children);

// The figures of now.
class Figures {
  constructor() {
    const net = "Bytes paged out and not back, less what they occupy in compressed swap";
    this.all = {
      resident: figure("Resident", "resident"),
      set: figure("Working set", "working-set", "Accessed within the last minute"),
      net: figure("Net saving", "net", net),
      refaults: figure("Refaults/min", "refaults"),
      swap: figure("In swap", "swap"),
      unknown: figure("Age unknown", "unknown", "Resident bytes whose idle age is not known"),
      pass: figure("Scan pass", "pass", "The resolution of all ages"),
      pids: figure("Processes", "processes"),
    };
    const elements = Object.values(this.all).map((one) => one.element);
    this.element = el("dl", { class: "figures" }, elements);
  }

  update(target) {
    const { resident, set, net, refaults, swap, unknown, pass, pids } = this.all;
    const share = target.resident_bytes > 0 ? target.working_set_bytes / target.resident_bytes : 0;
    resident.set(bytes(target.resident_bytes));
    set.set(bytes(target.working_set_bytes), `${percent(share)} of resident`);
    net.set(bytes(target.net_saved_bytes));
    refaults.set(bytes(target.refault_bytes_per_min));
    swap.set(bytes(target.swap_bytes));
    unknown.set(bytes(target.unknown_bytes));
    pass.set(target.pass_s === null ? "not complete" : duration(target.pass_s));
    const some = target.pids.slice(0, 4).join(", ");
    pids.set(String(target.pids.length), target.pids.length > 4 ? `${some}, …` : some);
    pids.element.title = `Processes: ${target.pids.join(", ")}`;
  }
}

class TargetPage {
  constructor(policy, name) {
    Object.assign(this, { policy, name, title: name, on: ["targets", "policies", "decisions"] });
    this.figures = new Figures();
    this.mode = el("span");
    this.badge = el("span");
    this.gone = el("p", { class: "empty" });
    this.ages = new Ages();
    this.curve = new AgeCurve();
    this.decisions = decisionList(SHOWN_DECISIONS);
    this.past = new Past({ target: name, policy }, this.curve);
    this.element = el("div", { class: "page" }, this.heading(), this.sections());
    this.every = { ms: 1000, run: () => this.past.tick() };
  }

  heading() {
    const policy = el("span", { class: "count" }, "policy ", el("a", { href: "#/policies" }, this.policy));
    return [
      el("p", { class: "path" }, el("a", { href: "#/targets" }, "Targets"), " /"),
      el("div", { class: "title" }, el("h1", {}, this.name), this.mode, this.badge, policy),
      this.gone,
    ];
  }

  sections() {
    const all = el("p", {}, el("a", { href: "#/decisions" }, "All decisions"));
    const basis = el("p", { class: "note" }, "From the period shown above.");
    return [
      this.figures.element,
      section("Memory over time", this.past.element),
      el(
        "div",
        { class: "columns" },
        section("Minimum age", basis, this.curve.element),
        el(
          "div",
          {},
          section("Idle ages", this.ages.element),
          section("Decisions", this.decisions.element, all),
        ),
      ),
    ];
  }

  update(what) {
    const target = state.targets?.targets.find((one) => one.name === this.name && one.policy === this.policy);
    const isGone = state.targets && !target;
    setText(this.gone, isGone ? "This target has no process now. Its history stays." : "");
    if (what === undefined || what === "decisions") this.updateDecisions();
    if (!target) return;
    this.element.dataset.time = state.targets.time_ms;
    const policy = state.policies?.policies.find((one) => one.name === this.policy);
    fillMode(this.mode, target.mode);
    fillState(this.badge, targetState(target, policy));
    this.figures.update(target);
    this.ages.update(target);
  }

  updateDecisions() {
    const isOwn = (one) => one.policy === this.policy && (one.target === null || one.target === this.name);
    this.decisions.update(
      state.decisions.filter(isOwn),
      "Nothing was decided about this target since the agent started.",
    );
  }

  destroy() {
    this.past.destroy();
    this.curve.destroy();
  }
}

export const targetPage = (policy, name) => new TargetPage(policy, name);
