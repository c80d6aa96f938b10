// Building the page. Text from the agent only ever becomes a text node or an attribute's value: there is no
// way from here to markup.

// An element. Properties: `class`, `data` (an object), `on` (listeners), or any attribute.
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "data") {
      Object.assign(element.dataset, value);
    } else {
      element.setAttribute(name === "class" ? "class" : name, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// Writes `text` only if it changed, so that screen readers and the layout stay calm.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// Keeps one child of `parent` for each item, in order: `make(item)` builds it, `update(child, item)` fills it.
export function reconcile(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let previous = null;
  for (const item of items) {
    const id = key(item);
    let child = old.get(id);
    old.delete(id);
    if (!child) {
      child = make(item);
      child.dataset.key = id;
    }
    update(child, item);
    const place = previous ? previous.nextSibling : parent.firstChild;
    if (place !== child) parent.insertBefore(child, place);
    previous = child;
  }
  for (const child of old.values()) child.remove();
}

export function button(label, onClick, properties = {}) {
  return el("button", { type: "button", ...properties, on: { click: onClick } }, label);
}

const tip = () => document.getElementById("tip");

// A note beside the pointer.
export function showTip(x, y, lines) {
  const note = tip();
  note.replaceChildren(...lines.map((line) => el("div", {}, line)));
  note.hidden = false;
  const { width, height } = note.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? x - 14 - width : x + 14;
  const top = y + 14 + height > innerHeight ? y - 14 - height : y + 14;
  note.style.left = `${Math.max(4, left)}px`;
  note.style.top = `${Math.max(4, top)}px`;
}

export function hideTip() {
  tip().hidden = true;
}

let toastTimer = 0;

// A short message, also read out.
export function toast(text) {
  const note = document.getElementById("toast");
  note.textContent = text;
  note.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => note.classList.remove("shown"), 6000);
}

// Asks for one text. Resolves to it, or to null if the user cancels.
export function ask(title, text, confirm, field) {
  return new Promise((resolve) => {
    const input =
      field && el("input", { type: "password", autocomplete: "off", required: true, id: "ask-field" });
    const cancel = button("Cancel", () => dialog.close());
    const form = el(
      "form",
      {},
      el("h2", { id: "ask-title" }, title),
      el("p", {}, text),
      field ? el("label", { for: "ask-field" }, field) : null,
      input,
      el("div", { class: "actions" }, cancel, el("button", { type: "submit", class: "primary" }, confirm)),
    );
    const dialog = el("dialog", { "aria-labelledby": "ask-title" }, form);
    let answer = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      answer = input ? input.value : "";
      dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
