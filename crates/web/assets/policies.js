// Policies: what each matches and does, its state, pause and resume, and its mode.

import { get, pause, setMode, state } from "./api.js";
import { ask, button, el, reconcile, setText, toast } from "./dom.js";
import { fillMode, pageTitle } from "./parts.js";
import { duration, time } from "./units.js";

const MODES = ["observe", "dry-run", "act"];

const MEANING = {
  observe: "watches only.",
  "dry-run": "watches, and counts what it would act on.",
  act: "watches and acts on the memory of these processes.",
};

const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`;
const sizeOf = (policy) =>
  `${plural(policy.targets, "target", "targets")}, ${plural(policy.processes, "process", "processes")}`;

// Runs an order of the user, and shows how it ended.
async function order(control, run, done) {
  control.disabled = true;
  try {
    await run();
    toast(done);
  } catch (error) {
    toast(error.message);
  } finally {
    control.disabled = false;
  }
}

async function changeMode(select, policy) {
  const mode = select.value;
  const text = `The policy ${policy.name} (${sizeOf(policy)}) then ${MEANING[mode]} This lasts until the agent ends or reads its configuration again.`;
  const answer = await ask(`Change ${policy.name} to ${mode}?`, text, `Change to ${mode}`);
  if (answer !== null)
    await order(select, () => setMode(policy.name, mode), `${policy.name} is now in mode ${mode}.`);
  select.value = state.policies.policies.find((one) => one.name === policy.name)?.mode ?? policy.mode;
}

function list(texts, empty) {
  return texts.length === 0
    ? [el("span", { class: "note" }, empty)]
    : [
        el(
          "ul",
          {},
          texts.map((text) => el("li", {}, text)),
        ),
      ];
}

// `why` as [class, word, sentence].
function policyState(policy) {
  if (policy.error) return ["bad", "cannot run", policy.error];
  if (policy.paused) return ["warn", "paused", "A user paused it. It acts again after resume."];
  if (policy.suspended) return ["warn", "suspended", policy.suspended];
  const some = policy.suspended_targets ?? 0;
  if (some > 0) return ["warn", "acting", `The guard suspended ${some} of ${policy.targets} targets.`];
  return policy.mode === "act" ? ["good", "acting", ""] : ["idle", "watching", ""];
}

function resumes(policy) {
  if (!policy.suspended || policy.paused || policy.resumes_at_ms === null) return "";
  const left = (policy.resumes_at_ms - Date.now()) / 1000;
  return left > 0.5
    ? `The guard tries again in ${duration(Math.round(left))}, at ${time(policy.resumes_at_ms)}.`
    : "The guard tries again now.";
}

function card(policy) {
  let now = policy;
  const name = el("h2", {}, policy.name);
  const mode = el("span"),
    badge = el("span", { data: { field: "state" } }),
    size = el("span", { class: "count", data: { field: "size" } });
  const toggle = button(
    "",
    () => {
      const paused = !now.paused;
      order(toggle, () => pause(now.name, paused), `${now.name} is ${paused ? "paused" : "resumed"}.`);
    },
    { data: { action: "pause" } },
  );
  const select = el(
    "select",
    { "aria-label": `Mode of ${policy.name}`, on: { change: () => changeMode(select, now) } },
    MODES.map((one) => el("option", { value: one }, one)),
  );
  const reason = el("p", { class: "reason", data: { field: "reason" } }),
    again = el("p", { class: "reason", data: { field: "resumes" } });
  const configured = el("span", { class: "note" });
  const matches = el("dd"),
    does = el("dd"),
    guard = el("dd");
  const element = el(
    "article",
    { class: "card", data: { policy: policy.name } },
    el(
      "header",
      {},
      name,
      mode,
      badge,
      size,
      el("span", { class: "actions" }, configured, el("label", {}, "Mode ", select), toggle),
    ),
    reason,
    again,
    el("dl", {}, el("dt", {}, "Matches"), matches, el("dt", {}, "Does"), does, el("dt", {}, "Guard"), guard),
  );

  element.update = (next) => {
    now = next;
    const [kind, word, why] = policyState(next);
    fillMode(mode, next.mode);
    badge.className = `badge ${kind}`;
    setText(badge, word);
    setText(size, sizeOf(next));
    setText(reason, why);
    setText(again, resumes(next));
    setText(toggle, next.paused ? "Resume" : "Pause");
    toggle.setAttribute("aria-label", `${next.paused ? "Resume" : "Pause"} ${next.name}`);
    setText(configured, next.mode === next.configured_mode ? "" : `configured: ${next.configured_mode}`);
    if (document.activeElement !== select) select.value = next.mode;
    setText(matches, next.matches);
    does.replaceChildren(...list(next.does, "nothing"));
    guard.replaceChildren(...list(next.guard, "no bounds: the policy does not act"));
  };
  return element;
}

function explainForm() {
  const output = el("div", { role: "status", class: "explanation" });
  const pid = el("input", { type: "number", min: 1, required: true, inputmode: "numeric", id: "pid" });
  const form = el(
    "form",
    { class: "inline" },
    el("label", { for: "pid" }, "Which policy has process"),
    pid,
    el("button", { type: "submit" }, "Explain"),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      output.replaceChildren(...explanation(await get("explain", { pid: pid.value })));
    } catch (error) {
      output.replaceChildren(el("p", {}, error.message));
    }
  });
  return el("section", {}, form, output);
}

function explanation(answer) {
  const owner =
    answer.policy === null
      ? `No policy has process ${answer.pid}.`
      : `Policy ${answer.policy} has process ${answer.pid}${answer.target === null ? "" : `, as target ${answer.target}`}.`;
  const row = ({ policy, matches, why }) =>
    el("li", {}, el("b", {}, policy), matches ? " matches: " : " does not match: ", why);
  return [
    el("p", {}, owner, " ", answer.rule),
    el("ul", {}, answer.policies.map(row)),
    el("p", { class: "note" }, answer.facts.map(([name, value]) => `${name}: ${value}`).join(" · ")),
  ];
}

export function policies() {
  const count = el("span", { class: "count" });
  const all = (label, paused) => {
    const control = button(label, () =>
      order(
        control,
        () => pause(null, paused),
        paused ? "All policies are paused." : "All policies are resumed.",
      ),
    );
    return control;
  };
  const cards = el("div", { class: "cards" });
  const empty = el("p", { class: "empty" });
  const element = el(
    "div",
    { class: "page" },
    pageTitle("Policies", count, all("Pause all", true), all("Resume all", false)),
    cards,
    empty,
    explainForm(),
  );

  function update() {
    const rows = state.policies?.policies ?? [];
    setText(count, `${plural(rows.length, "policy", "policies")}, the first that matches a process has it`);
    setText(
      empty,
      rows.length > 0 ? "" : state.policies ? "The configuration has no policy." : "Waiting for the agent.",
    );
    reconcile(
      cards,
      rows,
      (policy) => policy.name,
      card,
      (child, policy) => child.update(policy),
    );
  }

  return { element, title: "Policies", update, on: ["policies"], every: { ms: 1000, run: update } };
}
