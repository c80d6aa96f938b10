"""The hard targets of stress.sh. Usage: stress.py THERMO"""
import ctypes
import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time

PAGE = 4096
MIB = 1 << 20
# Of one CPU: what watching may cost, on a machine that does other things too.
CPU_BOUND = 25.0
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def mapped(size):
    """Fresh memory without a page in it."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    start = libc.mmap(None, size, 3, flags, -1, 0)
    assert start not in (None, ctypes.c_void_p(-1).value), "mmap failed"
    return start


def keep_touching(start, size, seconds):
    """Writes a byte of every page, again and again: more often than anybody looks."""
    view = memoryview((ctypes.c_ubyte * size).from_address(start)).cast("B")[::PAGE]
    ones = bytes([1]) * len(view)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        view[:] = ones


# What a target does. Each prints the range that is hot, as soon as it is there.

def many_mappings():
    size = 5000 * 2 * PAGE
    start = mapped(size)
    # Neighbours with other rights cannot be one mapping.
    for n in range(1, 5000, 2):
        assert libc.mprotect(start + n * 2 * PAGE, 2 * PAGE, 1) == 0
    hot = mapped(8 * MIB)
    print(hot, 8 * MIB, flush=True)
    keep_touching(hot, 8 * MIB, 6)


def many_threads():
    hot = mapped(16 * MIB)
    print(hot, 16 * MIB, flush=True)
    threads = [threading.Thread(target=keep_touching, args=(hot, 16 * MIB, 6)) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def fork_storm():
    hot = mapped(8 * MIB)
    print(hot, 8 * MIB, flush=True)
    begin = time.monotonic()
    children = []
    for n in range(200):
        time.sleep(max(0.0, begin + n * 0.01 - time.monotonic()))
        pid = os.fork()
        if pid == 0:
            time.sleep(0.3)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    keep_touching(hot, 8 * MIB, 4)


def vast():
    start = mapped(20 << 30)
    hot = start + (10 << 30)
    print(hot, 64 * MIB, flush=True)
    keep_touching(hot, 64 * MIB, 8)


def at_once():
    print(0, 0, flush=True)


TARGETS = {f.__name__: f for f in (many_mappings, many_threads, fork_storm, vast, at_once)}


def overlap(a, b):
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))


def picture(thermo, recording, hot):
    """The largest share of the hot range that one snapshot found hot, and how much else was hot in it, in bytes."""
    told = subprocess.run([thermo, "report", "regions", recording, "--json"], capture_output=True, check=True).stdout
    best = (0.0, 0)
    for snapshot in json.loads(told)["snapshots"]:
        for target in snapshot["targets"]:
            regions = [(r["start"], r["end"]) for r in target["regions"]
                       if not r.get("unknown") and 2 * r["nr_accesses"] >= r["max_nr_accesses"]]
            right = sum(overlap(region, hot) for region in regions)
            share = right / max(hot[1] - hot[0], 1)
            wrong = sum(end - start for start, end in regions) - right
            best = max(best, (share, -wrong))
    return best[0], -best[1]


def watch(thermo, folder, name, flags):
    recording = os.path.join(folder, name + ".arrow")
    target = subprocess.Popen([sys.executable, __file__, "--be", name], stdout=subprocess.PIPE, text=True)
    start, size = map(int, target.stdout.readline().split())
    command = [thermo, "record", "--pid", str(target.pid), "-o", recording, *flags]
    watcher = subprocess.run(command, capture_output=True, text=True, timeout=120)
    target.wait()
    return recording, (start, start + size), watcher


def check(name, thermo, folder, flags):
    recording, hot, watcher = watch(thermo, folder, name, flags)
    faults = []
    if watcher.returncode != 0 or "panicked" in watcher.stderr:
        faults.append(f"ended with {watcher.returncode}: {watcher.stderr.strip()}")
        share, wrong, cpu = 0.0, 0, 0.0
    else:
        share, wrong = picture(thermo, recording, hot)
        told = subprocess.run([thermo, "report", "info", recording, "--json"], capture_output=True, check=True).stdout
        cpu = json.loads(told)["own_cpu_percent"]
        if share < 0.8:
            faults.append("the hot range was not found")
        if cpu > CPU_BOUND:
            faults.append(f"it took more than {CPU_BOUND:.0f} % of a CPU")
    label = f"{name} {' '.join(flags)}"
    print(f"  {label:<28} {100 * share:7.1f} % {wrong / MIB:12.1f} MiB {cpu:9.2f} %   {'; '.join(faults) or 'good'}", flush=True)
    return not faults


def check_at_once(thermo, folder):
    """A command that is gone before it can be looked at, and a process that is."""
    good = True
    for n in range(20):
        done = subprocess.run([thermo, "record", "-o", os.path.join(folder, "gone.arrow"), "--", "true"], capture_output=True, text=True, timeout=60)
        good &= done.returncode == 0 and "panicked" not in done.stderr
    short = subprocess.Popen([sys.executable, __file__, "--be", "at_once"], stdout=subprocess.DEVNULL)
    done = subprocess.run([thermo, "record", "--pid", str(short.pid), "-o", os.path.join(folder, "gone.arrow")], capture_output=True, text=True, timeout=60)
    short.wait()
    # Either it was seen to end, or it was not there any more.
    good &= done.returncode in (0, 2) and "panicked" not in done.stderr
    print(f"  {'gone at once':<28} {'':>9} {'':>16} {'':>11}   {'good' if good else 'ended with ' + str(done.returncode) + ': ' + done.stderr}")
    return good


def main():
    if sys.argv[1] == "--be":
        TARGETS[sys.argv[2]]()
        return 0
    thermo = sys.argv[1]
    print(f"  {'target':<28} {'hot found':>9} {'also hot':>16} {'our CPU':>11}")
    with tempfile.TemporaryDirectory() as folder:
        good = [
            check("many_mappings", thermo, folder, []),
            check("many_mappings", thermo, folder, ["--vma"]),
            check("many_threads", thermo, folder, []),
            check("fork_storm", thermo, folder, ["--children"]),
            check("vast", thermo, folder, []),
            check("vast", thermo, folder, ["--vma"]),
            check_at_once(thermo, folder),
        ]
    return 0 if all(good) else 1


sys.exit(main())
