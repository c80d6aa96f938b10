"""What damo does over control files, step by step, each checked against what the target really did.

Usage: check.py [--pace N] [--kernel] DAMO THERMO_LAB FOLDER [STEP...]

It knows nothing of who stands behind the control files: run over those of a kernel it checks that kernel. Truth comes
from `thermo-lab workload`, which writes which bytes it touched when, and from /proc.

--pace N   intervals, ages and deadlines are N times as long: for emulated machines
--kernel   the control files are those of Linux 6.12: what is known to be otherwise there is told as a difference, in a line
           `differs`, and is no failure
"""

import argparse
import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TREE = "/sys/kernel/mm/damon/admin/kdamonds/0"
MIB = 1 << 20
HOT, COLD = 32 * MIB, 96 * MIB
STYLES = (
    "detailed simple-boxes temperature-sz-hist recency-sz-hist cold-memory-tail recency-percentiles "
    "idle-time-percentiles temperature-percentiles cold hot"
).split()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pace", type=int, default=1)
    parser.add_argument("--kernel", action="store_true")
    for name in ("damo", "thermo_lab", "folder"):
        parser.add_argument(name)
    parser.add_argument("steps", nargs="*")
    return parser.parse_args()


GIVEN = arguments()
DAMO, THERMO_LAB, FOLDER, PACE = GIVEN.damo, GIVEN.thermo_lab, GIVEN.folder, GIVEN.pace
# Seconds; machines are busy, and nothing is proved by how soon it is.
PATIENCE = 180 if PACE == 1 else 60 * PACE
# damo's own, or as many times as long.
INTERVALS = () if PACE == 1 else ("--monitoring_intervals", f"{5 * PACE}ms", f"{100 * PACE}ms", f"{PACE}s")
# What Linux 6.12 is known to do otherwise, by step.
OTHERWISE = {
    "report_json": "damo has no JSON of a kernel without sz_filter_passed (before 6.14): it ends with a TypeError",
    "record_snapshots": "damo keeps them as JSON, which it has none of without sz_filter_passed",
    "tune": "it has no update_tuned_intervals",
    "watermarks": "a kdamond that rests takes no commit before it has ended an aggregation, so damo tune waits on and on",
    "filters": "it asks filters on pages of physical memory only, so they let everything through for processes",
}
# How often the control files were busy.
busy = 0


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def check(so, why):
    if not so:
        raise Failed(why)


def damo(*arguments, within=4 * PATIENCE):
    """What damo printed."""
    words = f"damo {' '.join(map(str, arguments))}"
    # A file, for what damo starts has it open, too, and may live longer.
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [DAMO, *map(str, arguments)], cwd=FOLDER, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )  # fmt: skip
        try:
            status = process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            # Nobody waits for its end: the kernel may have it wait where no signal reaches.
            process.kill()
            raise Failed(f"{words}: it was not through after {within} s") from None
        output.seek(0)
        told = output.read()
    check(status == 0, f"{words}: {status}: {told[-600:]}")
    return told


def eventually(what, is_so):
    """Waits until `is_so` gives something true, and returns that."""
    deadline = time.monotonic() + PATIENCE
    while True:
        got = is_so()
        if got:
            return got
        check(time.monotonic() < deadline, f"waited {PATIENCE} s in vain: {what}")
        time.sleep(0.2)


def read(path):
    with open(path) as file:
        return file.read().strip()


def state():
    try:
        return read(f"{TREE}/state")
    except FileNotFoundError:
        # damo takes away what it made.
        return "off"


def command(word):
    """Writes to `state`. Other commands at work make the kernel's busy, which is no more than to be tried again."""

    def taken():
        global busy
        try:
            with open(f"{TREE}/state", "w") as file:
                file.write(word)
            return True
        except OSError as why:
            if why.errno != errno.EBUSY:
                raise
            busy += 1

    eventually(f"{word} is taken", taken)


def stat(name, scheme=0):
    command("update_schemes_stats")
    return int(read(f"{TREE}/contexts/0/schemes/{scheme}/stats/{name}"))


def applied():
    """By the scheme of a damo that may not have begun yet."""
    return stat("sz_applied") if state() == "on" else 0


def effective_bytes():
    command("update_schemes_effective_quotas")
    return int(read(f"{TREE}/contexts/0/schemes/0/quotas/effective_bytes"))


def resident(pid):
    """Bytes of anonymous memory."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


class Workload:
    """Touches HOT bytes all the time, and COLD bytes at its beginning."""

    def __init__(self):
        self.truth = os.path.join(FOLDER, "truth.jsonl")
        # That of the one before would be believed until this one has begun.
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.truth)
        config = os.path.join(FOLDER, "hot-cold.cfg")
        with open(config, "w") as file:
            file.write(f"hot, {HOT}\ncold, {COLD}\n\nall\n{1000 + 500 * PACE}\nhot, 0, 4096, 1\ncold, 0, 4096, 1\n\n")
            file.write("hot only\n900000\nhot, 0, 4096, 1, wo\n")
        self.process = subprocess.Popen([THERMO_LAB, "workload", "--quiet", "--truth", self.truth, config])
        self.pid = self.process.pid
        # A busy machine gives it no time now and then: then less is touched in a span.
        self.hot = eventually("the workload is at its hot part", self.all_hot)

    def ranges(self):
        try:
            with open(self.truth) as file:
                lines = file.read().splitlines()
            return [tuple(found) for found in json.loads(lines[-1])["ranges"]]
        except (FileNotFoundError, IndexError, ValueError):
            return []

    def all_hot(self):
        ranges = self.ranges()
        return ranges if sum(end - start for start, end in ranges) == HOT else None

    def end(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(*options):
    """A workload that damo was started on."""
    workload = Workload()
    try:
        damo("start", workload.pid, *INTERVALS, *options)
        check(state() == "on", "started, and it is not on")
        yield workload
    finally:
        with contextlib.suppress(Failed):
            damo("stop")
        workload.end()


# Of the many forms that a report may have, one to be read by programs that damo can make of every kernel's files.
FORM = ("--raw_number", "--format", "set", "region", "region <start address> <end address> <access rate>")
for part in ("record_head", "snapshot_tail", "record_tail"):
    FORM += ("--format", "set", part, "")
FORM += ("--format", "set", "snapshot_head", "snapshot")


def snapshots(*arguments):
    """Of each the regions: start, end, percent of looks that found it accessed."""
    found = []
    for word, *numbers in map(str.split, filter(str.strip, damo("report", "access", *FORM, *arguments).splitlines())):
        if word == "snapshot":
            found.append([])
        elif word == "region":
            start, end, rate = numbers
            found[-1].append((int(start), int(end), float(rate)))
    check(found, "report access shows no snapshot")
    return found


def hot_of(snapshot):
    """Regions found accessed at least a quarter as often as the one that most often was. On a busy machine a target is given
    no time for most of the looks, and what it touches then is still hot where it is."""
    most = max((rate for _, _, rate in snapshot), default=0)
    return [(start, end) for start, end, rate in snapshot if rate and rate >= most / 4]


def overlap(found, truth):
    return sum(max(0, min(e, end) - max(s, start)) for s, e in found for start, end in truth)


def precision_and_recall(found, truth):
    both = overlap(found, truth)
    return both / max(1, sum(e - s for s, e in found)), both / max(1, sum(e - s for s, e in truth))


def need_swap():
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("SwapFree"))
    if free < 2 * (HOT + COLD):
        raise Skipped("what is anonymous cannot be paged out without swap")


def sysinfo():
    told = damo("report", "sysinfo")
    check("DAMON version: " in told, told)
    return next(line for line in told.splitlines() if line.startswith("DAMON version"))


def start_and_access():
    with running() as workload:
        judged = []

        def good():
            latest = snapshots()[-1]
            judged.append(precision_and_recall(hot_of(latest), workload.hot))
            return min(judged[-1]) >= 0.9

        try:
            eventually("damo report access shows what is hot", good)
        except Failed as failed:
            raise Failed(f"{failed}; precision and recall were {judged[-5:]}") from failed
        return "precision {:.0%}, recall {:.0%}".format(*judged[-1])


def styles():
    with running():
        for style in STYLES:
            check(damo("report", "access", "--style", style).strip(), f"style {style} shows nothing")
        return f"{len(STYLES)} styles"


def report_json():
    with running() as workload:
        told = damo("report", "access", "--json", "--raw_form")
        check(told.startswith("["), f"this is no list of records: {told[:300]}")
        (record,) = json.loads(told)
        regions = record["snapshots"][-1]["regions"]
        total = sum(int(region["end"].replace(",", "")) - int(region["start"].replace(",", "")) for region in regions)
        check(total >= resident(workload.pid), f"{len(regions)} regions of {total} bytes hold less than is resident")
        return f"{len(regions)} regions"


def report_damon():
    with running("--damos_action", "stat"):
        for options in ([], ["--damos_stats"], ["--kdamonds_summary"], ["--damon_params"]):
            check(damo("report", "damon", *options).strip(), f"report damon {options} shows nothing")
        told = json.loads(damo("report", "damon", "--format", "json"))
        kdamond = (told["kdamonds"] if isinstance(told, dict) else told)[0]
        check(kdamond["state"] == "on", str(kdamond)[:400])


def tune():
    with running() as workload:
        damo("tune", workload.pid, "--monitoring_intervals", f"{10 * PACE}ms", f"{200 * PACE}ms", f"{PACE}s")
        with open(f"{TREE}/contexts/0/monitoring_attrs/intervals/sample_us", "w") as file:
            file.write("1")
        command("update_tuned_intervals")
        sample = read(f"{TREE}/contexts/0/monitoring_attrs/intervals/sample_us")
        check(sample == str(10_000 * PACE), f"tuned to {10 * PACE} ms, and it samples every {sample} us")


def start_command():
    damo("start", "sleep 3600", *INTERVALS)
    pid = int(read(f"{TREE}/contexts/0/targets/0/pid_target"))
    program = read(f"/proc/{pid}/cmdline").split("\0")
    check("sleep" in program, f"started on a sleep, and its target is {program}")
    try:
        check(state() == "on", "started on a command, and it is not on")
    finally:
        os.kill(pid, signal.SIGTERM)
    eventually("it is off when the command has ended", lambda: state() == "off")


def recorded(workload, skipped, *options):
    """Records, and judges what reports say of it."""
    path = os.path.join(FOLDER, "record")
    damo("record", workload.pid, "-o", path, *INTERVALS, *options)
    # The first are left out: regions are still wide then.
    wss = damo("report", "wss", "-i", path, "--raw_number", "--range", 50, 51, 1, "--exclude_samples", skipped)
    percentiles = [line.split() for line in wss.splitlines() if line.split()[:1] == ["50"]]
    check(percentiles, f"no median in {wss}")
    median = int(percentiles[0][1])
    check(HOT // 2 <= median <= 2 * HOT, f"the median working set is {median}, and {HOT} bytes are hot")
    check("x-axis: space" in damo("report", "heatmap", "-i", path), "no heatmap")
    shown = snapshots("-i", path)
    # In the later half, and of one that is neither better nor worse than most: now and then nothing is given time.
    judged = sorted((precision_and_recall(hot_of(one), workload.hot) for one in shown[len(shown) // 2 :]), key=min)
    precision, recall = judged[len(judged) // 2]
    check(min(precision, recall) >= 0.8, f"precision {precision}, recall {recall} in the later half")
    return f"wss {median // MIB} of {HOT // MIB} MiB, precision {precision:.0%}, recall {recall:.0%}"


def records(skipped, tries):
    """Longer each time until it is right: a busy machine finds little in the same time."""
    workload = Workload()
    try:
        for options in tries:
            try:
                return f"{recorded(workload, skipped, *options)}, {' '.join(map(str, options[:3]))}"
            except Failed as failed:
                why = failed
        raise why
    finally:
        workload.end()


def record_tracepoints():
    if not shutil.which("perf"):
        raise Skipped("there is no perf to record events of a kernel with")
    seconds = 6 + 6 * PACE
    told = records(5, [("--timeout", times * seconds) for times in (1, 2, 4)])
    footprints = damo("report", "footprints", "rss", "-i", os.path.join(FOLDER, "record.mem_footprint"))
    check(footprints.strip(), "no footprints")
    return told


def record_snapshots():
    return records(0, [("--snapshot", 0.3 * PACE, count, "--do_record", "access") for count in (10, 20, 30)])


# Page out what was not touched for half a second, when nothing is slower than usual.
PAGEOUT = ("--damos_action", "pageout", "--damos_access_rate", "0%", "0%", "--damos_age", f"{500 * PACE}ms", "max")


def scheme_file():
    """The same as a file, for twice as long."""
    pattern = {
        "sz_bytes": {"min": "0", "max": "max"},
        "nr_accesses": {"min": "0 samples", "max": "0 samples"},
        "age": {"min": f"{PACE} s", "max": "max"},
    }
    path = os.path.join(FOLDER, "pageout.json")
    with open(path, "w") as file:
        json.dump([{"action": "pageout", "access_pattern": pattern}], file)
    return path


def stays(pid):
    """What is resident at the last of several looks, when it was most of the hot part at each."""
    for _ in range(5):
        time.sleep(0.2)
        left = resident(pid)
        if left < HOT * 8 // 10:
            return None
    return left


def schemes():
    """`damo schemes -c`, until it is interrupted."""
    need_swap()
    workload = Workload()
    before = resident(workload.pid)
    # On a busy machine it had no time for all of it.
    most = (before - HOT) * 7 // 10
    process = subprocess.Popen(
        [DAMO, "schemes", *INTERVALS, "-c", scheme_file(), str(workload.pid)], cwd=FOLDER, stdout=subprocess.DEVNULL
    )
    try:
        eventually("most of the cold part is out, and said to be", lambda: before - resident(workload.pid) > most <= applied())
        check(process.poll() is None, f"damo ended with {process.returncode} before it was interrupted")
        left = eventually("the hot part is in memory and stays there", lambda: stays(workload.pid))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE)
        workload.end()
    check(state() == "off", "interrupted, and it still runs")
    return f"{before // MIB} MiB became {left // MIB} MiB"


def quota():
    need_swap()
    limit, window = 2 * MIB, 500 * PACE
    options = (*PAGEOUT, "--damos_quotas", "0ms", limit, f"{window}ms", "0%", "0%", "100%")
    with running(*options):
        eventually("something was tried", lambda: stat("sz_tried") > 0)
        begin, tried = time.monotonic(), stat("sz_tried")
        time.sleep(3 * PACE)
        more = stat("sz_tried") - tried
        windows = (time.monotonic() - begin) * 1000 / window + 2
        check(more <= windows * limit, f"{more} bytes in {windows:.0f} windows of {limit}")
        eventually("the quota was used up", lambda: stat("qt_exceeds") > 0)
        return f"{more // MIB} MiB in {windows:.0f} windows of {limit // MIB} MiB"


def goal():
    def options(current):
        # Nothing matches: only the tuning of the quota is looked at.
        return (
            "--damos_action", "stat", "--damos_quotas", "0ms", "1G", f"{100 * PACE}ms", "0%", "0%", "0%",
            "--damos_quota_goal", "user_input", "10000", current,
        )

    with running(*options(1)) as workload:
        least = eventually("there is a limit", effective_bytes)
        eventually("it grows while the goal is missed", lambda: effective_bytes() > 2 * least)
        grown = effective_bytes()
        damo("tune", workload.pid, *INTERVALS, *options(30000))
        eventually("it shrinks when there is too much", lambda: effective_bytes() < grown)


def filters():
    need_swap()
    with running(*PAGEOUT, "--damos_filter", "reject", "anon") as workload:
        before = resident(workload.pid)
        eventually("much was tried", lambda: stat("sz_tried") > COLD)
        lost = before - resident(workload.pid)
        check(lost < COLD // 10, f"anonymous memory is to be left alone, and {lost} bytes are out")


def watermarks():
    with running("--damos_action", "stat", "--damos_wmarks", "free_mem_rate", f"{100 * PACE}ms", 1, 1, 0) as workload:

        def rests():
            # More than a thousandth of memory is free: it rests, but for what it did before its first look.
            before = stat("nr_tried")
            time.sleep(1.5 * PACE)
            return stat("nr_tried") == before

        eventually("it rests above its high watermark", rests)
        before = stat("nr_tried")
        damo("tune", workload.pid, *INTERVALS, "--damos_action", "stat", within=PATIENCE)
        eventually("it works without watermarks", lambda: stat("nr_tried") > before)


STEPS = [
    sysinfo, start_and_access, report_json, styles, report_damon, tune, start_command, record_tracepoints, record_snapshots,
    schemes, quota, goal, filters, watermarks,
]  # fmt: skip


def run(step):
    """Runs it and prints what came of it; whether that is no failure."""
    name, begin = step.__name__, time.monotonic()
    try:
        told = step() or ""
        print(f"ok    {name} ({time.monotonic() - begin:.1f} s) {told}", flush=True)
    except Skipped as why:
        print(f"SKIP: {name}: {why}", flush=True)
    except (Failed, OSError, ValueError, KeyError, StopIteration, subprocess.TimeoutExpired) as why:
        if GIVEN.kernel and name in OTHERWISE:
            # Of a traceback the last words.
            print(f"differs {name}: {OTHERWISE[name]} ({str(why).strip().splitlines()[-1]})", flush=True)
        else:
            print(f"FAIL  {name}: {type(why).__name__}: {why}", flush=True)
            return False
    finally:
        # What it left half-way is not the next one's; it may end by itself meanwhile.
        if state() == "on":
            with contextlib.suppress(PermissionError, FileNotFoundError):
                command("off")
    return True


def main():
    wanted = [step for step in STEPS if not GIVEN.steps or step.__name__ in GIVEN.steps]
    unknown = set(GIVEN.steps) - {step.__name__ for step in wanted}
    if unknown:
        sys.exit(f"check.py: no step is called {' or '.join(sorted(unknown))}")
    passed = [run(step) for step in wanted]
    print(f"# a command found the control files busy {busy} times", flush=True)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
