"""Every number shown is that of the API."""

import datetime

import texts
from browser import wait_for

TARGET = "target/databases/mariadb.service"


def idle(target):
    return sum(row["bytes"] for row in target["ages"] if row["min_s"] >= 60)


def equal(shown, expected, what):
    assert shown == expected, f"{what}: shown {shown!r}, the API says {expected!r}"


def at_one_moment(page, read):
    """Figures of the API and what the page showed of the same moment: (targets, what `read` returned)."""
    def attempt():
        answer = page.agent.get("targets")
        time, shown = page.run("""
            const time = document.querySelector("main .page").dataset.time;
            return [time, (%s)()]""" % read)
        return (answer["targets"], shown) if str(answer["time_ms"]) == time else None
    return wait_for("moment that the page and the API share", attempt)


ROWS = """() => [...document.querySelectorAll("main .page > .table tbody tr")].map((row) =>
    Object.fromEntries([...row.cells].map((cell) => [cell.dataset.column, cell.textContent])))"""
FIELDS = """() => Object.fromEntries([...document.querySelectorAll("main .figure [data-field]")].map((value) =>
    [value.dataset.field, value.textContent]))"""
KINDS = """() => [...document.querySelectorAll(".kinds .kind")].map((row) => [...row.children].map((cell) => cell.textContent))"""
ALL_AGES = """() => [...document.querySelectorAll("details tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent))"""


def targets_are_those_of_the_api(page):
    page.open("targets", "main tbody tr")
    targets, rows = at_one_moment(page, ROWS)
    shown = {row["name"]: row for row in rows}
    equal(sorted(shown), sorted(target["name"] for target in targets), "names")
    for target in targets:
        row, name = shown[target["name"]], target["name"]
        equal(row["policy"], target["policy"], name)
        equal(row["mode"], target["mode"], name)
        equal(row["resident"], texts.size(target["resident_bytes"]), name)
        equal(row["idle"], texts.percent(idle(target) / target["resident_bytes"]), name)
        equal(row["net"], texts.size(target["net_saved_bytes"]), name)
        equal(row["refaults"], texts.size(target["refault_bytes_per_min"]), name)
        if target["suspended"]:
            assert target["suspended"] in row["state"] or "paused" in row["state"], f"{name}: {row['state']}"
    return f"{len(targets)} targets"


def sums_are_those_of_the_targets(page):
    page.open("targets", "main tbody tr")
    targets, shown = at_one_moment(page, FIELDS)
    resident = sum(target["resident_bytes"] for target in targets)
    equal(shown["resident"], texts.size(resident), "resident")
    equal(shown["idle"], texts.percent(sum(map(idle, targets)) / resident), "idle")
    equal(shown["net"], texts.size(sum(target["net_saved_bytes"] for target in targets)), "net")
    equal(shown["refaults"], texts.size(sum(target["refault_bytes_per_min"] for target in targets)), "refaults")
    equal(shown["policies"], str(len(page.agent.get("policies")["policies"])), "policies")


def find(targets):
    return next(target for target in targets if target["name"] == "mariadb.service")


def target_has_the_figures_of_the_api(page):
    page.open(TARGET, "main .kind")
    targets, shown = at_one_moment(page, FIELDS)
    target = find(targets)
    for field, key in (("resident", "resident_bytes"), ("working-set", "working_set_bytes"), ("net", "net_saved_bytes"),
                       ("refaults", "refault_bytes_per_min"), ("swap", "swap_bytes"), ("unknown", "unknown_bytes")):
        equal(shown[field], texts.size(target[key]), field)
    equal(shown["processes"], str(len(target["pids"])), "processes")
    equal(shown["pass"], texts.duration(target["pass_s"]), "pass")


def ages_are_those_of_the_api(page):
    page.open(TARGET, "main .kind")
    targets, shown = at_one_moment(page, KINDS)
    target = find(targets)
    kinds = [["all", "", texts.size(target["resident_bytes"])]]
    kinds += [[kind["kind"], "", texts.size(sum(row["bytes"] for row in kind["ages"]))] for kind in target["kinds"]]
    equal(shown, kinds, "kinds")
    targets, shown = at_one_moment(page, ALL_AGES)
    target = find(targets)
    again = {row["min_s"]: row["bytes"] for row in target["reaccess"]}
    rows = [[texts.size(row["bytes"]), texts.size(again.get(row["min_s"], 0))] for row in target["ages"]]
    equal([row[1:] for row in shown], rows, "ages")


def advice_at_each_age_is_that_of_the_api(page):
    page.open(TARGET, ".curve tbody tr")
    advice = page.answer("advice")
    equal(page.text("[data-field=advice]"), advice["advice"]["why"], "sentence")
    known = [row for row in advice["table"] if row["known"]]
    shown = [[cell for cell in row] for row in page.run(
        "return [...document.querySelectorAll('.curve tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))")]
    rows = [[texts.age(row["min_age_s"]), texts.size(row["leaves_bytes"]), texts.size(row["compressed_bytes"]["mid"]),
             texts.size(row["net_saved_bytes"]["mid"]), texts.size(row["refault_bytes_per_min"]["mid"]),
             texts.percent(row["share_per_min"]["mid"])] for row in known]
    equal(shown, rows, "table")
    for index, row in enumerate(known):
        at = page.run("""
            const slider = document.getElementById("age-slider");
            slider.value = arguments[0];
            slider.dispatchEvent(new Event("input"));
            return document.querySelector("[data-field=at]").textContent""", index)
        equal(at, f"at {texts.age(row['min_age_s'])}: {texts.size(row['net_saved_bytes']['mid'])}, "
                  f"{texts.percent(row['share_per_min']['mid'])}/min", "slider")
    return f"{len(known)} ages"


def heatmap_cells_are_those_of_the_api(page):
    page.open(TARGET)
    heatmap = page.answer("heatmap")
    cells = wait_for("heatmap", lambda: int(page.one(".heatmap canvas").get_attribute("data-cells") or 0))
    assert cells >= 10_000, f"{cells} cells are shown"
    # The cell under the pointer says what the API says of it.
    page.one(".heatmap canvas").send_keys("\ue015", "\ue015", "\ue014")
    lines = wait_for("note", lambda: page.texts("#tip div"))
    # Readers get offsets, which are unique in a mapping of a process only.
    row = next(row for row in heatmap["rows"] if lines[3].startswith(f"{row['start']} – {row['end']} (")
               and lines[2] == f"{row['name'] or '[anon]'} of process {row['pid']}")
    column = next(index for index, ms in enumerate(heatmap["times_ms"]) if texts.time(ms) == lines[0])
    heat = row["heat"][column]
    expected = "not known" if heat < 0 else "idle" if heat == 0 else f"accessed at {heat} % of checks"
    equal(lines[1], expected, "heat")
    return f"{cells} cells in view"


def history_is_that_of_the_api(page):
    page.open(TARGET)
    last = page.answer("history")["points"][-1]
    expected = f"{texts.time(last['time_ms'])}: resident {texts.size(last['resident_bytes'])}, in swap {texts.size(last['swap_bytes'])}"
    wait_for(expected, lambda: page.text(".readout").startswith(expected))


def ledger_is_that_of_the_api(page):
    page.open("ledger", "main tbody tr")
    rows, shown = page.answer("ledger")["rows"], page.rows()
    for row in rows:
        cells, name = shown[row["target"]], row["target"]
        total = lambda list_name: sum(part["bytes"] for part in row[list_name])
        equal(cells["saved"], texts.gib_hours(row["net_saved_gib_hours"]), name)
        for column, key in (("back1", "back_1min_bytes"), ("back10", "back_10min_bytes"), ("back60", "back_1h_bytes")):
            equal(cells[column], texts.size(row[key]), name)
        for column, key in (("acted", "acted_bytes"), ("would", "would_act_bytes"), ("skipped", "skipped_bytes")):
            parts = "".join(f"{part['name']} {texts.size(part['bytes'])}" for part in row[key])
            equal(cells[column], texts.size(total(key)) + parts, name)
        acting = f" + {texts.duration(row['acting_cpu_s'])}" if row["acting_cpu_s"] > 0 else ""
        equal(cells["cpu"], texts.duration(row["watching_cpu_s"]) + acting, name)
        equal(cells["watched"], texts.duration(row["watched_s"]), name)
    equal(page.text("[data-field=saved]"), texts.gib_hours(sum(row["net_saved_gib_hours"] for row in rows)), "sum")
    return f"{len(rows)} rows"


DAY_ROWS = """return [...document.querySelectorAll("details.days tbody tr")].map((row) =>
    [...row.cells].map((cell) => cell.textContent))"""
# The plot, and in the middle of each of `arguments[0]` days how many pixels have the colour of each policy.
BARS = """
    const canvas = document.querySelector("section canvas"), over = document.querySelector("section .u-over");
    const rgb = (one) => getComputedStyle(one).backgroundColor.match(/[0-9]+/g).map(Number);
    const colours = [...document.querySelectorAll("section .legend i")].map(rgb);
    const left = over.getBoundingClientRect().left - canvas.getBoundingClientRect().left, width = canvas.width;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, canvas.height);
    const column = (day) => {
        const x = Math.floor(left + (day + 0.5) * over.clientWidth / arguments[0]);
        return colours.map((colour) => {
            let count = 0;
            for (let at = 4 * x; at < data.length; at += 4 * width)
                count += colour.every((value, channel) => data[at + channel] === value);
            return count;
        });
    };
    return [over.clientHeight, Array.from({ length: arguments[0] }, (_, day) => column(day))]"""
EMPTY_DAYS = """
    const done = arguments[arguments.length - 1];
    import("/assets/ledger-days.js").then(({ LedgerDays }) => {
        const days = new LedgerDays();
        days.set([]);
        done([...days.element.children].filter((one) => !one.hidden).map((one) => one.textContent));
    })"""


def days_of_the_ledger_are_those_of_the_api(page):
    page.open("ledger", "section canvas")
    rows = page.answer("ledger-by-day")["rows"]
    page.run("document.querySelector('details.days').open = true")
    shown = wait_for("table of days", lambda: page.run(DAY_ROWS))
    acted = lambda row: sum(part["bytes"] for part in row["acted_bytes"])
    newest_first = sorted(sorted(rows, key=lambda row: row["policy"]), key=lambda row: row["day"], reverse=True)
    equal(shown, [[row["day"], row["policy"], texts.gib_hours(row["net_saved_gib_hours"]), texts.size(acted(row)),
                   texts.size(row["back_1h_bytes"]), texts.duration(row["watching_cpu_s"]),
                   texts.duration(row["acting_cpu_s"])] for row in newest_first], "table")
    first, last = (datetime.date.fromisoformat(rows[at]["day"]) for at in (0, -1))
    days = [str(first + datetime.timedelta(days=nth)) for nth in range((last - first).days + 1)]
    policies = sorted({row["policy"] for row in rows})
    saved = {(row["day"], row["policy"]): row["net_saved_gib_hours"] for row in rows}
    equal(page.texts("section .legend span"), policies, "legend")
    bars_have_the_height_of_their_figures(page, days, policies, saved)
    for day in (days[0], days[-12], days[-20], days[-1]):
        point_at(page, days.index(day), len(days))
        own = [(policy, saved[day, policy]) for policy in policies if (day, policy) in saved]
        parts = ", ".join(f"{policy} {texts.gib_hours(value)}" for policy, value in own)
        text = f"{texts.gib_hours(sum(value for _, value in own))}: {parts}" if own else "the agent did not run"
        wait_for(f"{day}: {text}", lambda: page.text("section .readout") == f"{day}: {text}")
    page.driver.set_script_timeout(10)
    equal(page.driver.execute_async_script(EMPTY_DAYS), [
        "Net saving by day (UTC)", "No day has a sum yet: the first minute of watching begins one."], "no day")
    return f"{len(rows)} rows of {len(days)} days, {len(policies)} policies"


def bars_have_the_height_of_their_figures(page, days, policies, saved):
    height, bars = page.run(BARS, len(days))
    ends = [sum(value for policy in policies if sign * (value := saved.get((day, policy), 0)) > 0)
            for day in days for sign in (1, -1)]
    scale = height / ((max(0, *ends) - min(0, *ends)) * 1.05)
    for day, counts in zip(days, bars):
        for policy, count in zip(policies, counts):
            expected = abs(saved.get((day, policy), 0)) * scale
            assert abs(count - expected) <= 2, f"{day}, {policy}: {count} pixels instead of {expected:.1f}"


def point_at(page, day, days):
    box = page.one("section .u-over").rect
    scroll = page.run("return scrollY")
    page.command("Input.dispatchMouseEvent", type="mouseMoved", x=box["x"] + (day + 0.5) * box["width"] / days,
                 y=box["y"] - scroll + box["height"] / 2)


def policies_are_those_of_the_api(page):
    page.open("policies", ".card")
    for policy in page.agent.get("policies")["policies"]:
        card = page.one(f'.card[data-policy="{policy["name"]}"]').get_property("textContent")
        for text in (policy["name"], policy["mode"], policy["matches"], *policy["does"], *policy["guard"],
                     policy["suspended"] or "", policy["error"] or ""):
            assert text in card, f"{policy['name']}: {text!r} is not shown"
    return None


def decisions_are_those_of_the_api(page):
    page.open("decisions", ".decision")
    shown = page.run("""
        return [...document.querySelectorAll(".decision")].map((row) => [row.dataset.key,
            row.querySelector("time").textContent, row.querySelector(".action").textContent,
            row.querySelector(".amount").textContent, row.querySelector(".why").textContent])""")
    known = {str(one["number"]): one for one in page.agent.get("decisions")["decisions"]}
    for number, when, action, amount, why in shown:
        one = known[number]
        equal([when, action, amount, why], [texts.time(one["time_ms"]), one["action"],
              texts.size(one["bytes"]) if one["bytes"] else "", one["why"]], f"decision {number}")
    assert [int(row[0]) for row in shown] == sorted((int(row[0]) for row in shown), reverse=True), "the newest is not first"
    return f"{len(shown)} decisions"


def agent_is_that_of_the_api(page):
    page.open("agent", "[data-field=watching-mean]")
    status = wait_for("status", lambda: page.answer("status"))
    up = (status["time_ms"] - status["started_ms"]) / 1000
    wait_for("figures", lambda: page.text("[data-field=cpu-mean]"))
    for field, key in (("watching-mean", "watching_cpu_s"), ("acting-mean", "acting_cpu_s"), ("cpu-mean", "cpu_s")):
        equal(page.text(f"[data-field={field}]"), texts.percent(status[key] / up), field)
    equal(page.text("[data-field=agent-resident]"), texts.size(status["resident_bytes"]), "memory")
    equal(page.texts(".warnings li"), status["warnings"], "warnings")
    assert texts.percent(status["budget_cpu_share"]) in page.text("[data-field=budget]")
    for fact in (status["host"], status["version"], status["tracker"]):
        assert fact in page.text(".facts"), f"{fact} is not shown"


CHECKS = [
    targets_are_those_of_the_api, sums_are_those_of_the_targets, target_has_the_figures_of_the_api,
    ages_are_those_of_the_api, advice_at_each_age_is_that_of_the_api, heatmap_cells_are_those_of_the_api,
    history_is_that_of_the_api, ledger_is_that_of_the_api, days_of_the_ledger_are_those_of_the_api,
    policies_are_those_of_the_api, decisions_are_those_of_the_api, agent_is_that_of_the_api,
]
