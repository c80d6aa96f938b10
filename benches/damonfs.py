"""Times the control files from inside `thermo fs`, or a kernel's own.

Usage: damonfs.py DAMO
       damonfs.py DAMO --turn >>FILE
       damonfs.py --medians NAME FILE NAME FILE

The first prints operations a second, and medians of several turns with damo. To compare two kinds of control files, turns of
both are made one after the other, each printing a line of JSON, and their medians are put beside each other.
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
# It is the files that are timed: looking at memory is to cost little.
INTERVALS = ("--monitoring_intervals", "100ms", "200ms", "1s")
# Without the picture, for each dot of which damo copies all regions: minutes of its own. There is no JSON of a kernel before
# 6.14.
LINES = ("--raw_number", "--format", "set", "snapshot_head", "", "--format", "set", "region", "<start address> <access rate>")
TURNS = 5


def write(path, text):
    with open(path, "w") as file:
        file.write(str(text))


def read(path):
    with open(path) as file:
        return file.read()


def rate(what, operation, threads=1, seconds=2.0):
    """Prints how often a second `operation` is done by so many threads; each opens, works and closes."""
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
    print(f"{what:44} {sum(counts) / seconds:10.0f} a second")


def read_all(folder):
    return sum(len(read(os.path.join(at, name))) for at, _, names in os.walk(folder) for name in names)


def span(operation):
    begin = time.monotonic()
    operation()
    return time.monotonic() - begin


class Target:
    """A process with a mapping so wide that there are as many regions as are asked for."""

    def __enter__(self):
        program = "import time; b = bytearray(1 << 28); print('ready', flush=True); time.sleep(3600)"
        self.process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        self.process.stdout.readline()
        return str(self.process.pid)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def watch_all():
    """In the place of what is set up, a scheme that all regions are tried regions of."""
    write(f"{CONTEXT}/schemes/nr_schemes", 1)
    for pattern in ("sz", "nr_accesses", "age"):
        write(f"{CONTEXT}/schemes/0/access_pattern/{pattern}/max", (1 << 64) - 1)
    write(f"{TREE}/0/state", "commit")


def collect():
    """Seconds. A kdamond that comes to nothing in time, on a machine that is too busy, has fewer: then once more."""
    deadline = time.monotonic() + 300
    while True:
        seconds = span(lambda: write(f"{TREE}/0/state", "update_schemes_tried_regions"))
        found = sum(name.isdigit() for name in os.listdir(TRIED))
        if found >= REGIONS * 9 // 10:
            return seconds
        if time.monotonic() > deadline:
            sys.exit(f"there are {found} tried regions, not some {REGIONS}")


def turn(damo):
    """What damo and the files take, once each: pairs of what and seconds."""

    def run(*arguments):
        return span(lambda: subprocess.run([damo, *arguments], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL))

    range_of_regions = ("--monitoring_nr_regions_range", str(REGIONS), str(2 * REGIONS))
    with Target() as pid:
        yield "damo start (it sleeps 0.5 s itself)", run("start", pid, *INTERVALS)
        yield "damo report access, damo's default of regions", run("report", "access")
        yield "damo stop", run("stop")
        yield f"damo start, {REGIONS} regions", run("start", pid, *INTERVALS, *range_of_regions)
        watch_all()
        yield f"collecting {REGIONS} tried regions", collect()
        yield f"reading {REGIONS} tried regions, a file each value", span(lambda: read_all(TRIED))
        yield f"damo report access, {REGIONS} regions in lines", run("report", "access", *LINES)
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
    """Seconds of CPU time so far of the program that serves the files: the one that runs this."""
    fields = read(f"/proc/{os.getppid()}/stat").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def told(spans):
    """The same, with a line each for who waits: emulated, a turn takes minutes."""
    for what, seconds in spans:
        print(f"{what} {seconds:.2f} s", file=sys.stderr, flush=True)
        yield what, seconds


def medians(turns):
    """Of each thing the median, the least and the most."""
    return {what: (statistics.median(of), min(of), max(of)) for what in turns[0] for of in [[turn[what] for turn in turns]]}


def several(damo):
    cpu = serving_cpu()
    turns = [dict(turn(damo)) for _ in range(TURNS)]
    for what, (median, least, most) in medians(turns).items():
        print(f"{what:50} {median:6.2f} s ({least:.2f} to {most:.2f}, {TURNS} turns)")
    print(f"{'CPU time of who serves the files, a turn':50} {(serving_cpu() - cpu) / TURNS:6.2f} s")


def compare(*named):
    """A table of the medians of two files of turns."""
    names = named[::2]
    both = [medians([json.loads(line) for line in read(path).splitlines()]) for path in named[1::2]]
    print(f"| seconds: median (least to most) | {' | '.join(names)} |\n| --- | --- | --- |")
    for what in both[0]:
        cells = (f"{median:.2f} ({least:.2f} to {most:.2f})" for median, least, most in (each[what] for each in both))
        print(f"| {what} | {' | '.join(cells)} |")


def main():
    match sys.argv[1:]:
        case ["--medians", first, path, second, other]:
            compare(first, path, second, other)
        case [damo, "--turn"]:
            print(json.dumps(dict(told(turn(damo)))), flush=True)
        case [damo]:
            rates()
            several(damo)
        case _:
            sys.exit(__doc__)


main()
