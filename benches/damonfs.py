"""Measures the speed of DAMON's control files: those of `thermo fs` when run inside it, otherwise the kernel's.

Usage: damonfs.py DAMO
       damonfs.py DAMO --turn >>FILE
       damonfs.py --medians NAME FILE NAME FILE

The first form prints operations per second, and medians of several turns with damo. To compare two
implementations, alternate turns of both, each of which prints a line of JSON, and print a table of the
medians with the third form.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time

TREE = "/sys/kernel/mm/damon/admin/kdamonds"
CONTEXT = f"{TREE}/0/contexts/0"
TRIED = f"{CONTEXT}/schemes/0/tried_regions"
REGIONS = 1000
# Long intervals, so that monitoring takes little CPU time away from the files.
INTERVALS = ("--monitoring_intervals", "100ms", "200ms", "1s")
# Without the drawing, for each character of which damo copies all regions, which takes minutes. JSON needs
# Linux 6.14.
LINES = ("--raw_number", "--format", "set", "snapshot_head", "", "--format", "set", "region", "<start address> <access rate>")
TURNS = 5


def write(path, text):
    with open(path, "w") as file:
        file.write(str(text))


def read(path):
    with open(path) as file:
        return file.read()


def rate(label, operation, threads=1, seconds=2.0):
    """Prints operations per second, run by so many threads at once."""
    counts = [0] * threads
    end = time.monotonic() + seconds

    def work(nth):
        while time.monotonic() < end:
            operation()
            counts[nth] += 1

    workers = [threading.Thread(target=work, args=(nth,)) for nth in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{label:44} {sum(counts) / seconds:10.0f} per second")


def read_all(folder):
    return sum(len(read(os.path.join(at, name))) for at, _, names in os.walk(folder) for name in names)


def duration(operation):
    begin = time.monotonic()
    operation()
    return time.monotonic() - begin


class Target:
    """A process with a mapping that is large enough for REGIONS regions."""

    def __enter__(self):
        program = "import time; b = bytearray(1 << 28); print('ready', flush=True); time.sleep(3600)"
        self.process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        self.process.stdout.readline()
        return str(self.process.pid)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def match_all_regions():
    """Replaces the schemes by one that matches every region."""
    write(f"{CONTEXT}/schemes/nr_schemes", 1)
    for pattern in ("sz", "nr_accesses", "age"):
        write(f"{CONTEXT}/schemes/0/access_pattern/{pattern}/max", (1 << 64) - 1)
    write(f"{TREE}/0/state", "commit")


def collect():
    """Collects tried regions and returns the seconds. Repeats if a busy machine has split too few regions yet."""
    deadline = time.monotonic() + 300
    while True:
        seconds = duration(lambda: write(f"{TREE}/0/state", "update_schemes_tried_regions"))
        found = sum(name.isdigit() for name in os.listdir(TRIED))
        if found >= REGIONS * 9 // 10:
            return seconds
        if time.monotonic() > deadline:
            sys.exit(f"only {found} tried regions after 300 s, about {REGIONS} are required")


def turn(damo):
    """Yields label and seconds of each measurement."""

    def run(*arguments):
        return duration(lambda: subprocess.run([damo, *arguments], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL))

    range_of_regions = ("--monitoring_nr_regions_range", str(REGIONS), str(2 * REGIONS))
    with Target() as pid:
        yield "damo start (includes a sleep of 0.5 s)", run("start", pid, *INTERVALS)
        yield "damo report access, default number of regions", run("report", "access")
        yield "damo stop", run("stop")
        yield f"damo start, {REGIONS} regions", run("start", pid, *INTERVALS, *range_of_regions)
        match_all_regions()
        yield f"collecting {REGIONS} tried regions", collect()
        yield f"reading {REGIONS} tried regions, one file per value", duration(lambda: read_all(TRIED))
        yield f"damo report access, {REGIONS} regions as lines", run("report", "access", *LINES)
        yield f"damo stop, {REGIONS} regions", run("stop")


def rates():
    write(f"{TREE}/nr_kdamonds", 1)
    write(f"{TREE}/0/contexts/nr_contexts", 1)
    sample = f"{CONTEXT}/monitoring_attrs/intervals/sample_us"
    rate("open, read, close", lambda: read(sample))
    rate("open, read, close; 4 threads", lambda: read(sample), threads=4)
    rate("open, write, close", lambda: write(sample, 5000))
    rate("a new scheme", lambda: write(f"{CONTEXT}/schemes/nr_schemes", 1))
    write(f"{TREE}/nr_kdamonds", 0)


def serving_cpu():
    """CPU time in seconds of the parent process, which serves the files."""
    fields = read(f"/proc/{os.getppid()}/stat").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def with_progress(measurements):
    """Prints each measurement as progress: a turn in an emulated machine takes minutes."""
    for label, seconds in measurements:
        print(f"{label} {seconds:.2f} s", file=sys.stderr, flush=True)
        yield label, seconds


def medians(turns):
    """Median, minimum and maximum of each measurement, by label."""
    values = {label: [turn[label] for turn in turns] for label in turns[0]}
    return {label: (statistics.median(seconds), min(seconds), max(seconds)) for label, seconds in values.items()}


def several(damo):
    cpu = serving_cpu()
    turns = [dict(turn(damo)) for _ in range(TURNS)]
    for label, (median, least, most) in medians(turns).items():
        print(f"{label:50} {median:6.2f} s ({least:.2f} to {most:.2f}, {TURNS} turns)")
    print(f"{'CPU time of the serving process, per turn':50} {(serving_cpu() - cpu) / TURNS:6.2f} s")


def compare(*arguments):
    """Prints a table of the medians of two files of turns: NAME FILE NAME FILE."""
    names = arguments[::2]
    both = [medians([json.loads(line) for line in read(path).splitlines()]) for path in arguments[1::2]]
    print(f"| seconds: median (min to max) | {' | '.join(names)} |\n| --- | --- | --- |")
    for label in both[0]:
        cells = (f"{median:.2f} ({least:.2f} to {most:.2f})" for median, least, most in (each[label] for each in both))
        print(f"| {label} | {' | '.join(cells)} |")


def main():
    match sys.argv[1:]:
        case ["--medians", first, path, second, other]:
            compare(first, path, second, other)
        case [damo, "--turn"]:
            print(json.dumps(dict(with_progress(turn(damo)))), flush=True)
        case [damo]:
            rates()
            several(damo)
        case _:
            sys.exit(__doc__)


main()
