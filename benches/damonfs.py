"""Times the control files from inside `thermo fs`. Usage: damonfs.py DAMO"""

import os
import subprocess
import sys
import threading
import time

TREE = "/sys/kernel/mm/damon/admin/kdamonds"
CONTEXT = f"{TREE}/0/contexts/0"
REGIONS = 1000


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


def timed(what, command, runs=5):
    spans = []
    for _ in range(runs):
        begin = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        spans.append(time.monotonic() - begin)
    spans.sort()
    print(f"{what:44} {spans[len(spans) // 2]:10.2f} s ({spans[0]:.2f} to {spans[-1]:.2f}, {runs} runs)")


def cpu_time():
    """Seconds of CPU time of this program, and of the one that serves the files."""
    fields = read(f"/proc/{os.getppid()}/stat").rsplit(")", 1)[1].split()
    return sum(os.times()[:2]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_all(folder):
    return sum(len(read(os.path.join(at, name))) for at, _, names in os.walk(folder) for name in names)


def main():
    damo = sys.argv[1]
    write(f"{TREE}/nr_kdamonds", 1)
    write(f"{TREE}/0/contexts/nr_contexts", 1)
    sample = f"{CONTEXT}/monitoring_attrs/intervals/sample_us"
    rate("open, read, close", lambda: read(sample))
    rate("open, read, close; 4 threads", lambda: read(sample), threads=4)
    rate("open, write, close", lambda: write(sample, 5000))
    rate("a new scheme", lambda: write(f"{CONTEXT}/schemes/nr_schemes", 1))
    write(f"{TREE}/nr_kdamonds", 0)

    # So many mappings that there are as many regions.
    target = subprocess.Popen([sys.executable, "-c", "import time; b = bytearray(1 << 28); time.sleep(600)"])
    try:
        time.sleep(1)
        start = [damo, "start", str(target.pid), "-n", str(REGIONS), "-m", str(REGIONS * 2)]
        begin = time.monotonic()
        subprocess.run(start, check=True, stdin=subprocess.DEVNULL)
        print(f"{'damo start':44} {time.monotonic() - begin:10.2f} s, of which 0.5 s are a sleep of its own")
        write(f"{CONTEXT}/schemes/nr_schemes", 1)
        for pattern in ("sz", "nr_accesses", "age"):
            write(f"{CONTEXT}/schemes/0/access_pattern/{pattern}/max", (1 << 64) - 1)
        write(f"{TREE}/0/state", "commit")
        time.sleep(1)
        begin = time.monotonic()
        write(f"{TREE}/0/state", "update_schemes_tried_regions")
        tried = f"{CONTEXT}/schemes/0/tried_regions"
        nr_regions = len(os.listdir(tried)) - 1
        collected, before = time.monotonic(), cpu_time()
        read_all(tried)
        print(f"{f'collecting {nr_regions} tried regions':44} {collected - begin:10.2f} s")
        print(f"{f'reading {nr_regions} tried regions':44} {time.monotonic() - collected:10.2f} s")
        ours, theirs = (after - began for after, began in zip(cpu_time(), before))
        print(f"{'  of which CPU time':44} {ours:10.2f} s here, {theirs:.2f} s of who serves the files")
        timed(f"damo report access, {nr_regions} regions", [damo, "report", "access"])
        subprocess.run([damo, "stop"], check=True, stdin=subprocess.DEVNULL)
    finally:
        target.kill()


main()
