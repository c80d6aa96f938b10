"""Frame rate, keyboard, phone, colours, and screenshots."""

import re
import time

from browser import wait_for
from selenium.webdriver.common.keys import Keys

TARGET = "target/databases/mariadb.service"
PAGES = ["targets", TARGET, "decisions", "ledger", "policies", "agent"]
READY = {"targets": "main tbody tr", TARGET: ".curve tbody tr", "decisions": ".decision", "ledger": "main tbody tr",
         "policies": ".card", "agent": ".facts dd"}
PHONE, DESKTOP = (360, 740), (1440, 1000)
FRAMES_S = 4

# Lengths of frames in milliseconds while the page is busy.
MEASURE = """
window.frames_ms = [];
let last = performance.now();
const next = (now) => {
  window.frames_ms.push(now - last);
  last = now;
  if (window.frames_ms !== null && !window.stopped) requestAnimationFrame(next);
};
window.stopped = false;
requestAnimationFrame(next);
"""


def measured(page, work):
    page.run(MEASURE)
    end = time.monotonic() + FRAMES_S
    step = 0
    while time.monotonic() < end:
        work(step)
        step += 1
    frames = sorted(page.run("window.stopped = true; return window.frames_ms.slice(5)"))
    mean = sum(frames) / len(frames)
    return f"{1000 / mean:.1f} frames/s, 95 % within {frames[int(len(frames) * 0.95)]:.1f} ms, longest {frames[-1]:.1f} ms"


def heatmap_is_smooth(page):
    page.open(TARGET, ".curve tbody tr")
    canvas = page.one(".heatmap canvas")
    wait_for("cells", lambda: int(canvas.get_attribute("data-cells") or 0) >= 10_000)
    box = canvas.rect
    y = box["y"] + 100
    def mouse(kind, x, buttons=1):
        page.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1)
    mouse("mousePressed", box["x"] + 300)
    # To and fro, so that the cells stay in view.
    panning = measured(page, lambda step: mouse("mouseMoved", box["x"] + 300 + abs(step * 2 % 400 - 200)))
    cells = int(canvas.get_attribute("data-cells"))
    mouse("mouseReleased", box["x"] + 300)
    assert cells >= 10_000, f"{cells} cells were in view"
    scrub = """
        const slider = document.querySelector(".travel");
        slider.value = Number(slider.max) - arguments[0] * Number(slider.step);
        slider.dispatchEvent(new Event("input"))"""
    scrubbing = measured(page, lambda step: page.run(scrub, step % 40))
    return f"{cells} cells; panning {panning}; scrubbing {scrubbing}"


def phone_needs_no_sideways_scrolling(page):
    page.resize(*PHONE)
    try:
        for name in PAGES:
            page.open(name, READY[name])
            width = page.run("return document.documentElement.scrollWidth")
            assert width <= PHONE[0], f"{name} is {width} pixels wide"
    finally:
        page.resize(*DESKTOP)
    return f"{len(PAGES)} pages at {PHONE[0]} pixels"


def keyboard_reaches_everything(page):
    page.open("targets", "main tbody tr")
    page.keys(Keys.TAB)
    focused = "return document.activeElement.textContent + (document.activeElement.dataset.filter ?? '')"
    assert page.run(focused) == "Skip to content", "the first stop is not the skip link"
    page.keys(Keys.TAB, Keys.TAB)
    assert page.run(focused) == "Targets", "the navigation does not follow"
    outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", f"the focus is not visible: {outline}"
    page.keys("/")
    assert page.run("return document.activeElement.matches('[data-filter]')"), "/ does not lead to the filter"
    page.keys("nginx")
    wait_for("filtered rows", lambda: list(page.rows()) == ["nginx.service"])
    page.keys(Keys.ESCAPE)
    wait_for("all rows", lambda: len(page.rows()) > 1)
    page.keys("/", "nginx", Keys.TAB)
    # Past the headings, to the link of the row.
    for _ in range(12):
        if page.run("return document.activeElement.closest('tbody') !== null"):
            break
        page.keys(Keys.TAB)
    page.keys(Keys.ENTER)
    wait_for("page of the target", lambda: page.text("h1") == "nginx.service")
    for key, title in (("2", "Decisions"), ("3", "Ledger"), ("4", "Policies"), ("5", "Agent"), ("1", "Targets")):
        page.keys(key)
        wait_for(title, lambda title=title: page.text("h1") == title)
    return "skip link, / and Escape, row, 1 to 5"


def controls_have_names(page):
    unnamed = """
        const named = (one) => one.ariaLabel || one.labels?.length || one.textContent.trim() || one.title;
        return [...document.querySelectorAll("a, button, input, select, canvas, [role=img]")]
            .filter((one) => one.checkVisibility() && !named(one) && !one.parentElement.closest("[role=img]")).map((one) => one.outerHTML)"""
    for name in PAGES:
        page.open(name, READY[name])
        assert not (found := page.run(unnamed)), f"{name}: {found}"


def luminance(colour):
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(page, selector):
    colour, back = page.run("""
        const one = document.querySelector(arguments[0]);
        let at = one;
        while (getComputedStyle(at).backgroundColor === "rgba(0, 0, 0, 0)") at = at.parentElement;
        return [getComputedStyle(one).color, getComputedStyle(at).backgroundColor]""", selector)
    light, dark = sorted((luminance(colour), luminance(back)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def colours_follow_the_system_and_the_button(page):
    background = "return getComputedStyle(document.body).backgroundColor"
    least = 21
    try:
        for scheme in ("light", "dark"):
            page.colours(scheme)
            page.open("targets", "main tbody tr")
            is_dark = luminance(page.run(background)) < 0.1
            assert is_dark == (scheme == "dark"), f"{scheme}: {page.run(background)}"
            for selector in ("td.number", "thead th", ".legend", "nav a:not([aria-current])", ".badge", "tbody th a"):
                value = contrast(page, selector)
                least = min(least, value)
                assert value >= 4.5, f"{scheme}: contrast of {selector} is {value:.2f}"
        # auto, light, dark.
        page.one("#theme").click()
        assert luminance(page.run(background)) > 0.5, "Light is not light"
        page.one("#theme").click()
        assert luminance(page.run(background)) < 0.1, "Dark is not dark"
        page.one("#theme").click()
    finally:
        page.colours("light")
    return f"least contrast {least:.1f}"


def save_screenshots(page, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for scheme, (width, height) in (("light", (1440, 1900)), ("dark", (1440, 1900)), ("phone", (360, 2600))):
        page.colours("light" if scheme == "phone" else scheme)
        page.resize(width, height)
        for name in PAGES:
            page.open(name, READY[name])
            time.sleep(1.5)
            page.driver.save_screenshot(str(folder / f"{scheme}-{name.split('/')[0]}.png"))


CHECKS = [
    heatmap_is_smooth, phone_needs_no_sideways_scrolling, keyboard_reaches_everything, controls_have_names,
    colours_follow_the_system_and_the_button,
]
