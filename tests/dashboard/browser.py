"""An agent with made-up figures, and a page of its dashboard in Chromium."""

import json
import pathlib
import secrets
import shutil
import subprocess
import time
import urllib.parse
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

DEADLINE_S = 30
# Keeps what the page was answered, so that figures of the past can be compared with what is shown.
RECORD = """
window.answers = {};
const original = Response.prototype.json;
Response.prototype.json = async function () {
  const answer = await original.call(this);
  const url = new URL(this.url), by = url.searchParams.get("by");
  window.answers[url.pathname.split("/").pop() + (by ? `-by-${by}` : "")] = answer;
  return answer;
};
"""


def wait_for(what, condition, deadline=DEADLINE_S):
    """The first true value of `condition`."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        try:
            value = condition()
        except StaleElementReferenceException:
            continue
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"after {deadline} s: no {what}")


class Agent:
    """The program `fake_agent`, at a free port of the loopback interface."""

    def __init__(self, program, work):
        self.program = program
        self.token = secrets.token_hex(16)
        self.token_file = pathlib.Path(work) / "token"
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(self.token)
        self.url = None
        self.start("127.0.0.1:0")

    def start(self, address):
        command = [self.program, "--listen", address, "--admin-token", self.token_file, "--age", "7200"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://"), "fake_agent did not start"

    def stop(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.stop()

    def restart(self):
        self.start(urllib.parse.urlsplit(self.url).netloc)

    def get(self, name, **parameters):
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}api/v1/{name}?{query}") as answer:
            return json.load(answer)


class Page:
    """A tab of Chromium."""

    def __init__(self, agent):
        self.agent = agent
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.binary_location = shutil.which("chromium")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.command("Page.addScriptToEvaluateOnNewDocument", source=RECORD)
        self.resize(1440, 1000)

    def command(self, name, **parameters):
        return self.driver.execute_cdp_cmd(name, parameters)

    def resize(self, width, height):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def colours(self, scheme):
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, page, ready="#connection.good"):
        """Opens a page as a new document, and waits until the agent has answered."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.agent.url}#/{page}")
        wait_for(f"{ready} at {page}", lambda: self.all(ready))

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return wait_for(selector, lambda: self.all(selector))[0]

    def text(self, selector):
        return self.one(selector).get_property("textContent")

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)

    def rows(self):
        """The cells of the page's table, by the text of the first cell."""
        return self.run("""
            return Object.fromEntries([...document.querySelectorAll("main .page > .table tbody tr")].map((row) => [
                row.cells[0].textContent,
                Object.fromEntries([...row.cells].map((cell) => [cell.dataset.column, cell.textContent]))]))""")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def answer(self, name):
        """What the page was answered last at this route."""
        return wait_for(f"answer of {name}", lambda: self.run("return window.answers[arguments[0]]", name))

    def keys(self, *keys):
        self.driver.switch_to.active_element.send_keys(*keys)

    def errors(self):
        """Console messages since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.driver.quit()
