"""Runs damo on control files, step by step, and checks each step against the real accesses of the target.

Usage: check.py [--pace N] [--kernel] DAMO THERMO_LAB FOLDER [STEP...]

The script does not depend on the implementation of the control files: run on those of a kernel it checks that
kernel. The truth comes from `thermo-lab workload`, which logs its accesses, and from /proc.

--pace N   multiply intervals, ages and deadlines by N, for emulated machines
--kernel   the control files are those of Linux 6.12: print known differences of that kernel as `differs`, not as
           failures
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


OPTIONS = arguments()
DAMO, THERMO_LAB, FOLDER, PACE = OPTIONS.damo, OPTIONS.thermo_lab, OPTIONS.folder, OPTIONS.pace
# Timeout in seconds. Long, because machines are busy and no step tests speed.
TIMEOUT = 180 if PACE == 1 else 60 * PACE
# damo's default intervals, multiplied by PACE.
INTERVALS = () if PACE == 1 else ("--monitoring_intervals", f"{5 * PACE}ms", f"{100 * PACE}ms", f"{PACE}s")
# Known differences of Linux 6.12, by step.
KERNEL_DIFFERENCES = {
    "report_json": "damo cannot write JSON for a kernel without sz_filter_passed (before 6.14): it ends with a TypeError",
    "record_snapshots": "damo saves snapshots as JSON, which fails without sz_filter_passed",
    "tune": "this kernel has no update_tuned_intervals",
    "watermarks": "a kdamond deactivated by watermarks handles no commit before the end of an aggregation, so damo tune hangs",
    "filters": "this kernel applies page filters to physical memory only, so they let everything through for processes",
}
# Number of writes that found the control files busy.
nr_busy = 0


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def check(condition, message):
    if not condition:
        raise Failed(message)


def damo(*arguments, timeout=4 * TIMEOUT):
    """Runs damo and returns its output."""
    command_line = f"damo {' '.join(map(str, arguments))}"
    # A file, not a pipe: programs that damo starts inherit it and may live longer than damo.
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [DAMO, *map(str, arguments)], cwd=FOLDER, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )  # fmt: skip
        try:
            status = process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            # Do not wait for its end: the process may be in an uninterruptible sleep.
            process.kill()
            raise Failed(f"{command_line}: timed out after {timeout} s") from None
        output.seek(0)
        text = output.read()
    check(status == 0, f"{command_line}: {status}: {text[-600:]}")
    return text


def eventually(condition, function):
    """Waits until `function` returns a true value, and returns it. `condition` describes it in the error."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        result = function()
        if result:
            return result
        check(time.monotonic() < deadline, f"timed out after {TIMEOUT} s waiting until {condition}")
        time.sleep(0.2)


def read(path):
    with open(path) as file:
        return file.read().strip()


def state():
    try:
        return read(f"{TREE}/state")
    except FileNotFoundError:
        # damo removes the kdamond directory when it stops.
        return "off"


def command(word):
    """Writes to `state`. While another command runs the kernel returns EBUSY, so the write is tried again."""

    def accepted():
        global nr_busy
        try:
            with open(f"{TREE}/state", "w") as file:
                file.write(word)
            return True
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            nr_busy += 1

    eventually(f"{word} is accepted", accepted)


def stat(name, scheme=0):
    command("update_schemes_stats")
    return int(read(f"{TREE}/contexts/0/schemes/{scheme}/stats/{name}"))


def applied():
    """Bytes applied by the first scheme. 0 if damo has not started the kdamond yet."""
    return stat("sz_applied") if state() == "on" else 0


def effective_bytes():
    command("update_schemes_effective_quotas")
    return int(read(f"{TREE}/contexts/0/schemes/0/quotas/effective_bytes"))


def resident(pid):
    """Resident bytes of anonymous memory."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


class Workload:
    """Touches HOT bytes all the time, and COLD bytes only at its start."""

    def __init__(self):
        self.truth = os.path.join(FOLDER, "truth.jsonl")
        # Remove the truth of the previous workload, which would be read until this one starts.
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.truth)
        config = os.path.join(FOLDER, "hot-cold.cfg")
        with open(config, "w") as file:
            file.write(f"hot, {HOT}\ncold, {COLD}\n\nall\n{1000 + 500 * PACE}\nhot, 0, 4096, 1\ncold, 0, 4096, 1\n\n")
            file.write("hot only\n900000\nhot, 0, 4096, 1, wo\n")
        self.process = subprocess.Popen([THERMO_LAB, "workload", "--quiet", "--truth", self.truth, config])
        self.pid = self.process.pid
        # On a busy machine the workload does not touch all of its hot part in every span.
        self.hot = eventually("the workload has touched all of its hot part in a span", self.all_hot)

    def ranges(self):
        try:
            with open(self.truth) as file:
                lines = file.read().splitlines()
            return [tuple(pair) for pair in json.loads(lines[-1])["ranges"]]
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
    """A workload that damo monitors."""
    workload = Workload()
    try:
        damo("start", workload.pid, *INTERVALS, *options)
        check(state() == "on", "the kdamond is off after damo start")
        yield workload
    finally:
        with contextlib.suppress(Failed):
            damo("stop")
        workload.end()


# A machine-readable report format that damo supports for the control files of every kernel.
REPORT_FORMAT = ("--raw_number", "--format", "set", "region", "region <start address> <end address> <access rate>")
for part in ("record_head", "snapshot_tail", "record_tail"):
    REPORT_FORMAT += ("--format", "set", part, "")
REPORT_FORMAT += ("--format", "set", "snapshot_head", "snapshot")


def snapshots(*arguments):
    """The regions of each snapshot: start, end, access rate in percent of the access checks."""
    parsed = []
    output = damo("report", "access", *REPORT_FORMAT, *arguments)
    for word, *numbers in map(str.split, filter(str.strip, output.splitlines())):
        if word == "snapshot":
            parsed.append([])
        elif word == "region":
            start, end, rate = numbers
            parsed[-1].append((int(start), int(end), float(rate)))
    check(parsed, "report access shows no snapshot")
    return parsed


def hot_regions(snapshot):
    """Regions with at least a quarter of the highest access rate. On a busy machine the target does not run between
    many of the access checks, so even hot memory has a low rate."""
    highest = max((rate for _, _, rate in snapshot), default=0)
    return [(start, end) for start, end, rate in snapshot if rate and rate >= highest / 4]


def overlap(found, truth):
    return sum(max(0, min(e, end) - max(s, start)) for s, e in found for start, end in truth)


def precision_and_recall(found, truth):
    correct = overlap(found, truth)
    return correct / max(1, sum(e - s for s, e in found)), correct / max(1, sum(e - s for s, e in truth))


def need_swap():
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("SwapFree"))
    if free < 2 * (HOT + COLD):
        raise Skipped("anonymous memory cannot be paged out without swap")


def sysinfo():
    output = damo("report", "sysinfo")
    check("DAMON version: " in output, output)
    return next(line for line in output.splitlines() if line.startswith("DAMON version"))


def start_and_access():
    with running() as workload:
        scores = []

        def is_accurate():
            latest = snapshots()[-1]
            scores.append(precision_and_recall(hot_regions(latest), workload.hot))
            return min(scores[-1]) >= 0.9

        try:
            eventually("damo report access shows the hot memory", is_accurate)
        except Failed as failed:
            raise Failed(f"{failed}; precision and recall were {scores[-5:]}") from failed
        return "precision {:.0%}, recall {:.0%}".format(*scores[-1])


def styles():
    with running():
        for style in STYLES:
            check(damo("report", "access", "--style", style).strip(), f"style {style} shows nothing")
        return f"{len(STYLES)} styles"


def report_json():
    with running() as workload:
        output = damo("report", "access", "--json", "--raw_form")
        check(output.startswith("["), f"not a list of records: {output[:300]}")
        (record,) = json.loads(output)
        regions = record["snapshots"][-1]["regions"]
        total = sum(int(region["end"].replace(",", "")) - int(region["start"].replace(",", "")) for region in regions)
        check(total >= resident(workload.pid), f"{len(regions)} regions cover {total} bytes, less than the resident memory")
        return f"{len(regions)} regions"


def report_damon():
    with running("--damos_action", "stat"):
        for options in ([], ["--damos_stats"], ["--kdamonds_summary"], ["--damon_params"]):
            check(damo("report", "damon", *options).strip(), f"report damon {options} shows nothing")
        report = json.loads(damo("report", "damon", "--format", "json"))
        kdamond = (report["kdamonds"] if isinstance(report, dict) else report)[0]
        check(kdamond["state"] == "on", str(kdamond)[:400])


def tune():
    with running() as workload:
        damo("tune", workload.pid, "--monitoring_intervals", f"{10 * PACE}ms", f"{200 * PACE}ms", f"{PACE}s")
        with open(f"{TREE}/contexts/0/monitoring_attrs/intervals/sample_us", "w") as file:
            file.write("1")
        command("update_tuned_intervals")
        sample = read(f"{TREE}/contexts/0/monitoring_attrs/intervals/sample_us")
        check(sample == str(10_000 * PACE), f"the sampling interval is {sample} us after tuning to {10 * PACE} ms")


def start_command():
    damo("start", "sleep 3600", *INTERVALS)
    pid = int(read(f"{TREE}/contexts/0/targets/0/pid_target"))
    program = read(f"/proc/{pid}/cmdline").split("\0")
    check("sleep" in program, f"the command is sleep, but the target is {program}")
    try:
        check(state() == "on", "the kdamond is off after damo start with a command")
    finally:
        os.kill(pid, signal.SIGTERM)
    eventually("the kdamond is off after the end of the command", lambda: state() == "off")


def check_record(workload, skipped, *options):
    """Records the workload and checks reports of the recording."""
    path = os.path.join(FOLDER, "record")
    damo("record", workload.pid, "-o", path, *INTERVALS, *options)
    # The first snapshots are excluded: their regions are still wide.
    wss = damo("report", "wss", "-i", path, "--raw_number", "--range", 50, 51, 1, "--exclude_samples", skipped)
    percentiles = [line.split() for line in wss.splitlines() if line.split()[:1] == ["50"]]
    check(percentiles, f"no median in {wss}")
    median = int(percentiles[0][1])
    check(HOT // 2 <= median <= 2 * HOT, f"the median working set is {median} bytes, but {HOT} bytes are hot")
    check("x-axis: space" in damo("report", "heatmap", "-i", path), "no heatmap")
    shown = snapshots("-i", path)
    # The median over the later half: on a busy machine the target does not run during some snapshots.
    later = shown[len(shown) // 2 :]
    scores = sorted((precision_and_recall(hot_regions(snapshot), workload.hot) for snapshot in later), key=min)
    precision, recall = scores[len(scores) // 2]
    check(min(precision, recall) >= 0.8, f"precision {precision}, recall {recall} in the later half")
    return f"wss {median // MIB} of {HOT // MIB} MiB, precision {precision:.0%}, recall {recall:.0%}"


def check_records(skipped, attempts):
    """Records for longer each time, until the result is accurate: a busy machine finds little in a short time."""
    workload = Workload()
    try:
        for options in attempts:
            try:
                return f"{check_record(workload, skipped, *options)}, {' '.join(map(str, options[:3]))}"
            except Failed as failed:
                last = failed
        raise last
    finally:
        workload.end()


def record_tracepoints():
    if not shutil.which("perf"):
        raise Skipped("perf is not installed, which damo uses to record events")
    seconds = 6 + 6 * PACE
    summary = check_records(5, [("--timeout", times * seconds) for times in (1, 2, 4)])
    footprints = damo("report", "footprints", "rss", "-i", os.path.join(FOLDER, "record.mem_footprint"))
    check(footprints.strip(), "no footprints")
    return summary


def record_snapshots():
    return check_records(0, [("--snapshot", 0.3 * PACE, count, "--do_record", "access") for count in (10, 20, 30)])


# Page out memory that was idle for PACE half seconds.
PAGEOUT = ("--damos_action", "pageout", "--damos_access_rate", "0%", "0%", "--damos_age", f"{500 * PACE}ms", "max")


def scheme_file():
    """The same as a scheme file, with twice the age."""
    pattern = {
        "sz_bytes": {"min": "0", "max": "max"},
        "nr_accesses": {"min": "0 samples", "max": "0 samples"},
        "age": {"min": f"{PACE} s", "max": "max"},
    }
    path = os.path.join(FOLDER, "pageout.json")
    with open(path, "w") as file:
        json.dump([{"action": "pageout", "access_pattern": pattern}], file)
    return path


def stable_resident(pid):
    """Resident bytes, if most of the hot part stays resident for a second. None otherwise."""
    for _ in range(5):
        time.sleep(0.2)
        size = resident(pid)
        if size < HOT * 8 // 10:
            return None
    return size


def schemes():
    """`damo schemes -c`, ended by SIGINT."""
    need_swap()
    workload = Workload()
    before = resident(workload.pid)
    # Not all of the cold part: on a busy machine the kdamond is too slow for that.
    enough = (before - HOT) * 7 // 10
    process = subprocess.Popen(
        [DAMO, "schemes", *INTERVALS, "-c", scheme_file(), str(workload.pid)], cwd=FOLDER, stdout=subprocess.DEVNULL
    )
    try:
        eventually(
            "most of the cold part is paged out and counted as applied",
            lambda: before - resident(workload.pid) > enough <= applied(),
        )
        check(process.poll() is None, f"damo ended with {process.returncode} before SIGINT")
        after = eventually("the hot part stays in memory", lambda: stable_resident(workload.pid))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=TIMEOUT)
        workload.end()
    check(state() == "off", "the kdamond still runs after SIGINT")
    return f"{before // MIB} MiB became {after // MIB} MiB"


def quota():
    need_swap()
    limit, window = 2 * MIB, 500 * PACE
    options = (*PAGEOUT, "--damos_quotas", "0ms", limit, f"{window}ms", "0%", "0%", "100%")
    with running(*options):
        eventually("a region was tried", lambda: stat("sz_tried") > 0)
        begin, before = time.monotonic(), stat("sz_tried")
        time.sleep(3 * PACE)
        tried = stat("sz_tried") - before
        windows = (time.monotonic() - begin) * 1000 / window + 2
        check(tried <= windows * limit, f"{tried} bytes tried in {windows:.0f} windows of {limit}")
        eventually("the quota was exceeded", lambda: stat("qt_exceeds") > 0)
        return f"{tried // MIB} MiB in {windows:.0f} windows of {limit // MIB} MiB"


def goal():
    def options(current):
        # The scheme matches nothing: only the tuning of the quota is tested.
        return (
            "--damos_action", "stat", "--damos_quotas", "0ms", "1G", f"{100 * PACE}ms", "0%", "0%", "0%",
            "--damos_quota_goal", "user_input", "10000", current,
        )

    with running(*options(1)) as workload:
        first = eventually("there is an effective quota", effective_bytes)
        eventually("the quota grows below the goal", lambda: effective_bytes() > 2 * first)
        grown = effective_bytes()
        damo("tune", workload.pid, *INTERVALS, *options(30000))
        eventually("the quota shrinks above the goal", lambda: effective_bytes() < grown)


def filters():
    need_swap()
    with running(*PAGEOUT, "--damos_filter", "reject", "anon") as workload:
        before = resident(workload.pid)
        eventually("more bytes than the cold part were tried", lambda: stat("sz_tried") > COLD)
        lost = before - resident(workload.pid)
        check(lost < COLD // 10, f"the filter rejects anonymous memory, but {lost} bytes of it were paged out")


def watermarks():
    with running("--damos_action", "stat", "--damos_wmarks", "free_mem_rate", f"{100 * PACE}ms", 1, 1, 0) as workload:

        def is_inactive():
            # Free memory is above the high watermark of 1 permille. The scheme may run until the first check.
            before = stat("nr_tried")
            time.sleep(1.5 * PACE)
            return stat("nr_tried") == before

        eventually("the scheme is inactive above its high watermark", is_inactive)
        before = stat("nr_tried")
        damo("tune", workload.pid, *INTERVALS, "--damos_action", "stat", timeout=TIMEOUT)
        eventually("the scheme is active without watermarks", lambda: stat("nr_tried") > before)


STEPS = [
    sysinfo, start_and_access, report_json, styles, report_damon, tune, start_command, record_tracepoints, record_snapshots,
    schemes, quota, goal, filters, watermarks,
]  # fmt: skip


def run(step):
    """Runs a step and prints its result. Returns False for a failure."""
    name, begin = step.__name__, time.monotonic()
    try:
        summary = step() or ""
        print(f"ok    {name} ({time.monotonic() - begin:.1f} s) {summary}", flush=True)
    except Skipped as reason:
        print(f"SKIP: {name}: {reason}", flush=True)
    except (Failed, OSError, ValueError, KeyError, StopIteration, subprocess.TimeoutExpired) as error:
        if OPTIONS.kernel and name in KERNEL_DIFFERENCES:
            # The last line of the error: it may contain a traceback of damo.
            print(f"differs {name}: {KERNEL_DIFFERENCES[name]} ({str(error).strip().splitlines()[-1]})", flush=True)
        else:
            print(f"FAIL  {name}: {type(error).__name__}: {error}", flush=True)
            return False
    finally:
        # Stop a kdamond that a failed step left running. It may also end by itself at this moment.
        if state() == "on":
            with contextlib.suppress(PermissionError, FileNotFoundError):
                command("off")
    return True


def main():
    chosen = [step for step in STEPS if not OPTIONS.steps or step.__name__ in OPTIONS.steps]
    unknown = set(OPTIONS.steps) - {step.__name__ for step in chosen}
    if unknown:
        names = ", ".join(step.__name__ for step in STEPS)
        sys.exit(f"check.py: unknown step {' '.join(sorted(unknown))}: use {names}")
    passed = [run(step) for step in chosen]
    print(f"# a command found the control files busy {nr_busy} times", flush=True)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
