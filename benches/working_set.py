"""Measures a working set by the kernel's accessed bits, and compares the reports of a recording with it.

    working_set.py measure --pid PID --rounds 2 --out truth.jsonl [--windows 5,10,30]
    working_set.py compare NAME --truth truth.jsonl [--own own.jsonl] [--reports FOLDER]

`measure` appends one JSON line per window: it clears the accessed bits (clear_refs), waits, and reads Referenced of
smaps_rollup. It clears the bits that a recording reads, so do not run it during a recording.
`compare` prints a table. Without --reports it shows only the truth and its noise. --own is the exact count that
benches/random_pages.c prints, to check the truth itself. FOLDER contains wss.json, idle.json and info.json.
Exit code 1: a figure of the reports exceeds the limit, or is missing.
"""
import argparse
import json
import statistics
import sys
import time
from pathlib import Path

MIB = 1 << 20
PAGE = 4096
WINDOWS = (5, 10, 30)
LIMIT_PERCENT = 5.0


# Measuring

def rollup(pid):
    """Bytes of each field of smaps_rollup."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split(":")
        fields[name] = int(value.split()[0]) * 1024
    return fields


def measure_window(pid, seconds):
    # Clearing and reading walk the page tables, which takes tens of milliseconds per GiB. A window lasts from
    # the middle of one walk to the middle of the other.
    began = time.monotonic()
    Path(f"/proc/{pid}/clear_refs").write_text("1")
    start = (began + time.monotonic()) / 2
    time.sleep(max(0, start + seconds - time.monotonic()))
    reading = time.monotonic()
    fields = rollup(pid)
    elapsed = (reading + time.monotonic()) / 2 - start
    return {
        "window_s": seconds,
        "elapsed_s": round(elapsed, 3),
        "referenced_bytes": fields["Referenced"],
        "rss_bytes": fields["Rss"],
    }


def measure(options):
    with open(options.out, "a") as out:
        # Window lengths alternate, so that a slow change of the load affects all of them.
        for _ in range(options.rounds):
            for seconds in options.windows:
                try:
                    line = measure_window(options.pid, seconds)
                except (FileNotFoundError, ProcessLookupError):
                    sys.exit(f"process {options.pid} ended while its working set was measured")
                print(json.dumps(line), file=out, flush=True)
    return 0


# Reading

def read_lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


class Truth:
    """The measured windows: values in bytes, by length of the window."""

    def __init__(self, lines):
        self.rss = [line["rss_bytes"] for line in lines]
        self.resident = statistics.median(self.rss)
        self.accessed, self.idle = {}, {}
        for line in lines:
            window, referenced = line["window_s"], line["referenced_bytes"]
            self.accessed.setdefault(window, []).append(referenced)
            self.idle.setdefault(window, []).append(line["rss_bytes"] - referenced)


def own_counts(lines):
    """The exact counts of random_pages: bytes by length of the window."""
    counts = {}
    for line in lines:
        if "window_s" in line:
            counts.setdefault(line["window_s"], []).append(line["pages"] * PAGE)
    return counts


class Reports:
    """The reports of one recording. A missing figure is None."""

    def __init__(self, wss, idle, info):
        self.windows = {window["window_s"]: window["bytes"] for window in wss.get("windows", [])}
        self.ages = idle.get("ages", [])
        self.resident = idle.get("resident_bytes")
        self.unknown = idle.get("unknown_bytes")
        self.pass_s = idle.get("pass_s")
        self.method = idle.get("method")
        self.cpu_percent = info.get("own_cpu_percent")

    def idle_at_least(self, seconds):
        """Bytes idle for at least that long. None if no age class starts there."""
        if all(age["min_s"] != seconds for age in self.ages):
            return None
        return sum(age["bytes"] for age in self.ages if age["min_s"] >= seconds)


def read_reports(folder):
    def read(name):
        try:
            return json.loads((Path(folder) / name).read_text())
        except (OSError, ValueError) as error:
            print(f"  no {name}: {error}")
            return {}

    return Reports(read("wss.json"), read("idle.json"), read("info.json"))


# Comparing

def mib(value):
    return "-" if value is None else f"{value / MIB:.1f}"


def spread(values):
    return f"{mib(statistics.median(values))} ({mib(min(values))}-{mib(max(values))}, n={len(values)})"


def percent(difference, resident):
    return 100 * difference / resident


def row(name, truth, reported, resident):
    """A row of the table, and whether it is within the limit. `reported` is a pair of value and text."""
    value, printed = reported
    if value is None:
        return f"  {name:<18} {spread(truth):<34} {'missing':<26}", False
    difference = percent(value - statistics.median(truth), resident)
    within = abs(difference) <= LIMIT_PERCENT
    return f"  {name:<18} {spread(truth):<34} {printed:<26} {difference:+7.2f} %{'' if within else '  BEYOND'}", within


def reported_window(reports, window):
    figures = reports.windows.get(window)
    if figures is None:
        return None, ""
    return figures["p50"], f"{mib(figures['p50'])} ({mib(figures['min'])}-{mib(figures['max'])})"


def rows_of_reports(truth, reports):
    for window, values in truth.accessed.items():
        yield row(f"accessed in {window} s", values, reported_window(reports, window), truth.resident)
    for window, values in truth.idle.items():
        reported = reports.idle_at_least(window)
        # Only age classes of the report can be compared. The class of 30 s is required, because reclaim uses
        # it.
        if reported is not None or window == 30:
            yield row(f"idle >= {window} s", values, (reported, mib(reported)), truth.resident)
    yield row("resident", truth.rss, (reports.resident, mib(reports.resident)), truth.resident)


def cost_line(reports):
    shown = lambda value, form, unit: "-" if value is None else f"{value:{form}} {unit}"
    return (
        f"  unknown {mib(reports.unknown)} MiB, scan pass {shown(reports.pass_s, '.2f', 's')}, "
        f"own CPU {shown(reports.cpu_percent, '.2f', '%')}, method {reports.method or '-'}"
    )


def print_noise(truth):
    print("  noise of the truth, largest deviation from the median in % of resident:", end="")
    for window, values in truth.accessed.items():
        median = statistics.median(values)
        print(f" {window} s {percent(max(abs(value - median) for value in values), truth.resident):.2f} %", end="")
    print()


def print_own(truth, own):
    """Compares the truth with an exact count, which shows the error of clear_refs and smaps."""
    for window, values in truth.accessed.items():
        if window in own:
            error = statistics.median(values) - statistics.median(own[window])
            print(
                f"  exact count of the program in {window} s: {spread(own[window])}; "
                f"error of the truth {percent(error, truth.resident):+.2f} %"
            )


def compare(options):
    truth = Truth(read_lines(options.truth))
    print(f"{options.name}: resident {mib(truth.resident)} MiB; truth is median (min-max), MiB")
    within = True
    if options.reports:
        reports = read_reports(options.reports)
        print(f"  {'':<18} {'truth':<34} {'reported, p50 (min-max)':<26} difference in % of resident")
        for text, is_within in rows_of_reports(truth, reports):
            print(text)
            within = within and is_within
        print(cost_line(reports))
    else:
        for window, values in truth.accessed.items():
            print(f"  accessed in {window} s: {spread(values)}; idle >= {window} s: {spread(truth.idle[window])}")
    print_noise(truth)
    if options.own:
        print_own(truth, own_counts(read_lines(options.own)))
    return 0 if within else 1


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--pid", type=int, required=True)
    measuring.add_argument("--rounds", type=int, required=True)
    measuring.add_argument("--out", required=True)
    measuring.add_argument("--windows", type=lambda text: [int(word) for word in text.split(",")], default=WINDOWS)
    comparing = commands.add_parser("compare")
    comparing.add_argument("name")
    comparing.add_argument("--truth", required=True)
    comparing.add_argument("--own")
    comparing.add_argument("--reports")
    options = parser.parse_args(arguments)
    return {"measure": measure, "compare": compare}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
