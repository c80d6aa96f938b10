// The dashboard: which page is shown, the connection, the theme, and the keys.

import { agent } from "./agent.js";
import { follow, giveToken, retryNow, state, subscribe } from "./api.js";
import { decisions } from "./decisions.js";
import { button, el, hideTip, setText } from "./dom.js";
import { fleet } from "./fleet.js";
import { ledger } from "./ledger.js";
import { policies } from "./policies.js";
import { targetPage } from "./target.js";
import { time } from "./units.js";

const PAGES = [
  ["targets", "Targets", fleet],
  ["decisions", "Decisions", decisions],
  ["ledger", "Ledger", ledger],
  ["policies", "Policies", policies],
  ["agent", "Agent", agent],
];
const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "thermo-theme";

const main = document.getElementById("main"),
  nav = document.getElementById("nav");
const banner = document.getElementById("banner"),
  connection = document.getElementById("connection");
let page = null,
  timer = 0;

const links = PAGES.map(([id, label], index) =>
  el("a", { href: `#/${id}`, title: `${label} ( ${index + 1} )` }, label),
);
nav.append(...links);

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// The page of an address, for example `#/target/web/nginx.service`.
function pageOf(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (parts[0] === "target" && parts.length === 3)
    return { id: "targets", make: () => targetPage(parts[1], parts[2]) };
  const [id, , make] = PAGES.find(([name]) => name === parts[0]) ?? PAGES[0];
  return { id, make };
}

function navigate() {
  const { id, make } = pageOf(location.hash);
  const isFirst = page === null;
  page?.destroy?.();
  clearInterval(timer);
  hideTip();
  page = make();
  main.replaceChildren(page.element);
  document.title = `${page.title} – Thermocline`;
  PAGES.forEach(([name], index) => {
    if (name === id) links[index].setAttribute("aria-current", "page");
    else links[index].removeAttribute("aria-current");
  });
  page.update();
  if (page.every) {
    page.every.run();
    timer = setInterval(() => {
      if (!document.hidden) page.every.run();
    }, page.every.ms);
  }
  if (!isFirst) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

const retry = button("Try now", retryNow),
  login = button("Enter token", giveToken);
const bannerText = el("span");
banner.append(bannerText, retry, login);

function showConnection() {
  document.body.classList.toggle("lost", !state.connected);
  setText(connection, state.connected ? "Live" : "Not connected");
  connection.className = state.connected ? "good" : "bad";
  banner.hidden = state.connected || state.retryAt === 0;
  login.hidden = !state.needsToken;
  const since = state.since > 0 ? ` The figures are of ${time(state.since)}.` : "";
  setText(bannerText, `${state.error ?? "The agent does not answer."}${since} Trying again.`);
  if (state.status) setText(document.getElementById("host"), state.status.host);
}

function theme() {
  try {
    return localStorage.getItem(THEME_KEY) ?? "auto";
  } catch {
    return document.documentElement.dataset.theme ?? "auto";
  }
}

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem(THEME_KEY, name);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  const control = document.getElementById("theme");
  setText(control, { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[name]);
  control.setAttribute("aria-label", `Colours: ${name}`);
  document.dispatchEvent(new Event("themechange"));
}

document
  .getElementById("theme")
  .addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  document.dispatchEvent(new Event("themechange")),
);

const isTyping = (element) =>
  element instanceof HTMLElement &&
  (element.matches("input:not([type=range]), select, textarea") || element.closest("dialog"));

// `/`: the filter; 1 to 5: the pages; Escape: clears the filter.
document.addEventListener("keydown", (event) => {
  const filter = main.querySelector("[data-filter]");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && event.target === filter) {
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    filter.blur();
  } else if (isTyping(event.target)) {
    return;
  } else if (event.key === "/" && filter) {
    event.preventDefault();
    filter.focus();
  } else if (/^[1-5]$/.test(event.key)) {
    location.hash = `#/${PAGES[Number(event.key) - 1][0]}`;
  }
});

// The address of a page is after `#`, which the link would replace.
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

subscribe((what) => {
  if (what === "connection" || what === "status") showConnection();
  if (page.on.includes(what)) page.update(what);
});
addEventListener("hashchange", navigate);
setTheme(theme());
navigate();
showConnection();
follow();
