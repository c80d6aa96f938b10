"""The page follows the agent, gives orders, and survives a lost connection and hostile names."""

import pathlib
import time

from browser import wait_for
from selenium.webdriver.support.ui import Select

ASSETS = pathlib.Path(__file__).resolve().parents[2] / "crates/web/assets"
LIMIT = 300 * 1024
HOSTILE = "<img src=x onerror=hacked=1>"


def live_update_arrives(page):
    page.open("targets", "main tbody tr")
    before = page.run("return document.querySelector('main .page').dataset.time")
    wait_for("newer figures", lambda: page.run("return document.querySelector('main .page').dataset.time") > before)


def policy(page, name):
    return next(one for one in page.agent.get("policies")["policies"] if one["name"] == name)


def order(page, button):
    """Gives an order, and the admin token if the page asks."""
    button.click()
    def token_or_done():
        return page.all("#ask-field") or page.all("#toast.shown")
    if (field := wait_for("dialog or answer", token_or_done)[0]).get_attribute("id") == "ask-field":
        field.send_keys(page.agent.token)
        page.one("dialog button[type=submit]").click()


def pause_and_resume_work(page):
    page.open("policies", ".card")
    name = page.agent.get("policies")["policies"][0]["name"]
    button = page.one(f'.card[data-policy="{name}"] [data-action=pause]')
    assert not page.errors()
    # A wrong token is asked for again.
    button.click()
    page.one("#ask-field").send_keys("a wrong token of some length")
    page.one("dialog button[type=submit]").click()
    wait_for("second question", lambda: "wrong" in page.text("dialog p"))
    page.one("#ask-field").send_keys(page.agent.token)
    page.one("dialog button[type=submit]").click()
    wait_for("pause", lambda: policy(page, name)["paused"] and button.text == "Resume")
    wait_for("state", lambda: page.text(f'.card[data-policy="{name}"] [data-field=state]') == "paused")
    refused = [error for error in page.errors() if "401" not in error and "403" not in error]
    assert not refused, refused
    order(page, button)
    wait_for("resume", lambda: not policy(page, name)["paused"] and button.text == "Pause")
    page.keys("2")
    wait_for("decision", lambda: "resumed" in page.texts(".decision .badge"))
    return "the page asks again after a wrong token"


def mode_is_changed_after_a_question(page):
    page.open("policies", ".card")
    one = page.agent.get("policies")["policies"][0]
    wanted = "observe" if one["mode"] != "observe" else "dry-run"
    def choose(mode):
        Select(page.one(f'.card[data-policy="{one["name"]}"] select')).select_by_value(mode)
    choose(wanted)
    page.one("dialog .actions button:not(.primary)").click()
    assert policy(page, one["name"])["mode"] == one["mode"], "Cancel changed the mode"
    choose(wanted)
    order(page, page.one("dialog button[type=submit]"))
    wait_for("new mode", lambda: policy(page, one["name"])["mode"] == wanted)
    page.errors()
    choose(one["mode"])
    order(page, page.one("dialog button[type=submit]"))
    wait_for("old mode", lambda: policy(page, one["name"])["mode"] == one["mode"])


def explanation_names_the_policy(page):
    target = page.agent.get("targets")["targets"][0]
    page.open("policies", ".card")
    page.one("#pid").send_keys(str(target["pids"][0]))
    page.one(".inline button").click()
    wait_for("explanation", lambda: f"Policy {target['policy']} has process {target['pids'][0]}" in page.text(".explanation"))


def filters_and_sorting_work(page):
    page.open("targets", "main tbody tr")
    names = [target["name"] for target in page.agent.get("targets")["targets"]]
    page.one("[data-filter]").send_keys("nginx")
    wait_for("filtered rows", lambda: list(page.rows()) == ["nginx.service"])
    page.one("[data-filter]").clear()
    page.one("[data-filter]").send_keys(" ")
    shown = lambda: page.texts("main tbody th")
    page.one("th[data-column=name] button").click()
    wait_for("ascending names", lambda: shown() == sorted(names, key=str.lower))
    page.one("th[data-column=name] button").click()
    wait_for("descending names", lambda: shown() == sorted(names, key=str.lower, reverse=True))


def time_travel_shows_the_past(page):
    page.open("target/databases/mariadb.service", ".curve tbody tr")
    page.one("[data-span='300000']").click()
    page.run("""
        const slider = document.querySelector(".travel");
        slider.value = Number(slider.max) - 3600000;
        slider.dispatchEvent(new Event("input"))""")
    end = int(page.run("return document.querySelector('.travel').value"))
    wait_for("heatmap of the past", lambda: (times := page.answer("heatmap")["times_ms"]) and times[0] < end - 300_000 <= end < times[-1] + 10_000)
    wait_for("history of the past", lambda: end - 310_000 <= page.answer("history")["points"][0]["time_ms"] <= end)
    assert page.one(".live").get_attribute("aria-pressed") == "false"
    page.one(".live").click()
    wait_for("present", lambda: page.answer("history")["points"][-1]["time_ms"] > end + 3_000_000)


def lost_connection_is_shown_and_retried(page):
    page.open("targets", "main tbody tr")
    assert not page.errors()
    page.agent.stop()
    wait_for("banner", lambda: page.one("#banner").is_displayed() and "Not connected" in page.text("#connection"))
    page.agent.restart()
    page.one("#banner button").click()
    wait_for("connection", lambda: page.all("#connection.good"))
    assert not page.one("#banner").is_displayed()
    before = page.run("return document.querySelector('main .page').dataset.time")
    wait_for("live figures", lambda: page.run("return document.querySelector('main .page').dataset.time") != before)
    page.errors()


def names_are_never_markup(page):
    sources = [path for path in ASSETS.glob("*.js") if path.name != "uplot.js"]
    for path in sources:
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in path.read_text(), f"{path.name} uses {word}"
    script = "const parse = JSON.parse; JSON.parse = (text) => parse(text.replaceAll('nginx.service', '%s'));" % HOSTILE
    added = page.command("Page.addScriptToEvaluateOnNewDocument", source=script)
    try:
        page.open("targets", "main tbody tr")
        wait_for("hostile name as text", lambda: HOSTILE in page.rows())
        assert page.run("return window.hacked === undefined && !document.querySelector('main img')")
    finally:
        page.command("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])
    page.open("target/web/%3Cimg%20src%3Dx%20onerror%3Dhacked%3D1%3E")
    wait_for("name as text", lambda: page.text("h1") == HOSTILE)
    # The agent has no such target, and the console says so.
    wait_for("refusal", lambda: "no target" in page.text(".heatmap .message"))
    time_of_refusals = time.monotonic() + 2
    wait_for("refusals", lambda: time.monotonic() > time_of_refusals)
    errors = [error for error in page.errors() if "404" not in error]
    assert not errors, errors


def assets_are_small(_page):
    size = sum(path.stat().st_size for path in ASSETS.iterdir())
    assert size <= LIMIT, f"{size} bytes"
    return f"{size / 1024:.0f} KiB of 300"


CHECKS = [
    live_update_arrives, pause_and_resume_work, mode_is_changed_after_a_question, explanation_names_the_policy,
    filters_and_sorting_work, time_travel_shows_the_past, names_are_never_markup, assets_are_small,
    lost_connection_is_shown_and_retried,
]
