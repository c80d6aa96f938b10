// The agent's HTTP API: requests, the live stream, and the newest figures.

import { ask } from "./dom.js";

// The agent sends a comment after 15 s without a change.
const SILENCE_MS = 20000;
const LONGEST_WAIT_MS = 10000;
const KEPT_DECISIONS = 2000;
const SCHEMA = 1;

// Only in memory: closing or reloading the page forgets it.
let token = null;

// The newest figures. `null` until the first answer.
export const state = {
  targets: null,
  policies: null,
  decisions: [],
  status: null,
  connected: false,
  since: 0,
  retryAt: 0,
  error: null,
  needsToken: false,
};

const listeners = new Set();

// Calls `listener(what)` after each change until the returned function is called. `what` is the name of a field
// of `state`.
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed(what) {
  for (const listener of [...listeners]) listener(what);
}

// An answer other than 2xx. The agent explains itself in one sentence.
export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }

  // The agent has too much to do now.
  get isBusy() {
    return this.status === 429 || this.status === 503;
  }
}

function send(path, options, bearer) {
  const headers = bearer ? { ...options.headers, authorization: `Bearer ${bearer}` } : options.headers;
  return fetch(path, { ...options, headers, cache: "no-store" });
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

// Why a request was refused.
async function explain(response) {
  const text = await response.text();
  try {
    return sentence(JSON.parse(text).error ?? text);
  } catch {
    return text || `The agent answered ${response.status}.`;
  }
}

const isDenied = (response) => response.status === 401 || response.status === 403;

const askToken = (why) => ask("Token needed", why, "Send", "Token (kept until this page is closed)");

// Asks for a token only for what the user ordered, never for what the page does on its own.
async function request(path, options = {}) {
  let response = await send(path, options, token);
  while (isDenied(response) && options.method === "POST") {
    const given = await askToken(await explain(response));
    if (given === null) throw new ApiError(response.status, "Nothing was changed: no token was given.");
    response = await send(path, options, given);
    if (!isDenied(response)) token = given;
  }
  if (!response.ok) throw new ApiError(response.status, await explain(response));
  return response;
}

// GET of `/api/v1/NAME`. Parameters that are null are left out.
export async function get(name, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(
    Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined),
  );
  const tail = query.size > 0 ? `?${query}` : "";
  const answer = await (await request(`api/v1/${name}${tail}`, { signal })).json();
  if (answer.schema > SCHEMA) throw new Error("The agent is newer than this page: reload the page.");
  return answer;
}

const policyPath = (policy, verb) =>
  policy === null ? `api/v1/${verb}` : `api/v1/policies/${encodeURIComponent(policy)}/${verb}`;

// Pauses or resumes a policy; all without a name.
export async function pause(policy, paused) {
  await request(policyPath(policy, paused ? "pause" : "resume"), { method: "POST" });
  await refresh("policies");
}

// Changes the mode of a policy.
export async function setMode(policy, mode) {
  const body = JSON.stringify({ mode });
  await request(policyPath(policy, "mode"), {
    method: "POST",
    body,
    headers: { "content-type": "application/json" },
  });
  await refresh("policies");
}

// Reads `state.NAME` anew.
export async function refresh(name) {
  const answer = await get(name);
  if (name === "decisions") state.decisions = answer.decisions.slice(-KEPT_DECISIONS);
  else state[name] = answer;
  changed(name);
}

function onEvent(event, text) {
  const data = JSON.parse(text);
  if (event === "targets" || event === "policies") {
    state[event] = data;
    changed(event);
  } else if (event === "decision") {
    const last = state.decisions.at(-1);
    if (last && data.number <= last.number) return;
    state.decisions = [...state.decisions.slice(1 - KEPT_DECISIONS), data];
    changed("decisions");
  }
}

// Splits the text of a stream into events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
// EventSource cannot send a token, and hides why a connection was refused.
function parser(emit) {
  let buffer = "",
    event = "message",
    data = [];
  return (chunk) => {
    buffer += chunk;
    const lines = buffer.split(/\r\n|\n|\r/);
    buffer = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0) emit(event, data.join("\n"));
        event = "message";
        data = [];
      } else if (line.startsWith("event:")) {
        event = line.slice(6).trim();
      } else if (line.startsWith("data:")) {
        data.push(line.slice(5).replace(/^ /, ""));
      }
    }
  };
}

let current = null;

async function stream(abort) {
  const response = await request("api/v1/stream", {
    signal: abort.signal,
    headers: { accept: "text/event-stream" },
  });
  // Read everything after the stream is open, so that no change falls between the two.
  await Promise.all(["targets", "policies", "decisions", "status"].map(refresh));
  state.connected = true;
  changed("connection");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const feed = parser(onEvent);
  let alive = setTimeout(() => abort.abort(), SILENCE_MS);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(alive);
      alive = setTimeout(() => abort.abort(), SILENCE_MS);
      state.since = Date.now();
      feed(value);
    }
  } finally {
    clearTimeout(alive);
  }
}

let wake = () => {};

// Waits until `ms` have gone by or `retryNow` is called.
function pauseFor(ms) {
  state.retryAt = Date.now() + ms;
  changed("connection");
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

export function retryNow() {
  wake();
}

// For an agent that shows nothing without a token.
export async function giveToken() {
  token = await askToken(state.error ?? "");
  retryNow();
}

const isVisible = () =>
  new Promise((resolve) => {
    if (!document.hidden) return resolve();
    document.addEventListener("visibilitychange", () => resolve(), { once: true });
  });

// Follows the agent for as long as the page is open. A hidden page lets go of the stream, which costs the agent
// CPU time.
export async function follow() {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) current?.abort();
    else retryNow();
  });
  addEventListener("online", retryNow);
  for (let wait = 1000; ; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
    await isVisible();
    current = new AbortController();
    try {
      await stream(current);
      state.error = null;
    } catch (error) {
      state.error = error instanceof ApiError ? error.message : null;
      state.needsToken = error instanceof ApiError && isDenied(error);
    }
    if (state.connected) wait = 1000;
    current.abort();
    state.connected = false;
    if (!document.hidden) await pauseFor(wait);
  }
}
