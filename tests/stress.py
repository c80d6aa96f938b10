"""The targets and checks of stress.sh. Usage: stress.py THERMO"""
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
# Maximum CPU use of monitoring in percent of one CPU, on a machine with other load.
CPU_LIMIT = 25.0
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def mapped(size):
    """Maps memory without touching it."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    start = libc.mmap(None, size, 3, flags, -1, 0)
    assert start not in (None, ctypes.c_void_p(-1).value), "mmap failed"
    return start


def keep_touching(start, size, seconds):
    """Writes a byte of every page repeatedly, more often than access checks occur."""
    view = memoryview((ctypes.c_ubyte * size).from_address(start)).cast("B")[::PAGE]
    ones = bytes([1]) * len(view)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        view[:] = ones


# The targets. Each prints start and size of its hot range.

def many_mappings():
    size = 5000 * 2 * PAGE
    start = mapped(size)
    # The kernel does not merge adjacent mappings with different permissions.
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


def large_mapping():
    start = mapped(20 << 30)
    hot = start + (10 << 30)
    print(hot, 64 * MIB, flush=True)
    keep_touching(hot, 64 * MIB, 8)


def short_lived():
    print(0, 0, flush=True)


TARGETS = {f.__name__: f for f in (many_mappings, many_threads, fork_storm, large_mapping, short_lived)}


def overlap(a, b):
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))


def best_snapshot(thermo, recording, hot):
    """The snapshot with the largest share of the hot range: the share, and the bytes wrongly reported hot."""
    report = subprocess.run([thermo, "report", "regions", recording, "--json"], capture_output=True, check=True).stdout
    best = (0.0, 0)
    for snapshot in json.loads(report)["snapshots"]:
        for target in snapshot["targets"]:
            regions = [(r["start"], r["end"]) for r in target["regions"]
                       if not r.get("unknown") and 2 * r["nr_accesses"] >= r["max_nr_accesses"]]
            correct = sum(overlap(region, hot) for region in regions)
            share = correct / max(hot[1] - hot[0], 1)
            wrong = sum(end - start for start, end in regions) - correct
            best = max(best, (share, -wrong))
    return best[0], -best[1]


def record(thermo, folder, name, flags):
    recording = os.path.join(folder, name + ".arrow")
    target = subprocess.Popen([sys.executable, __file__, "--target", name], stdout=subprocess.PIPE, text=True)
    start, size = map(int, target.stdout.readline().split())
    command = [thermo, "record", "--pid", str(target.pid), "-o", recording, *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    target.wait()
    return recording, (start, start + size), result


def check(name, thermo, folder, flags):
    recording, hot, result = record(thermo, folder, name, flags)
    errors = []
    if result.returncode != 0 or "panicked" in result.stderr:
        errors.append(f"record ended with {result.returncode}: {result.stderr.strip()}")
        share, wrong, cpu = 0.0, 0, 0.0
    else:
        share, wrong = best_snapshot(thermo, recording, hot)
        report = subprocess.run([thermo, "report", "info", recording, "--json"], capture_output=True, check=True).stdout
        cpu = json.loads(report)["own_cpu_percent"]
        if share < 0.8:
            errors.append("less than 80 % of the hot range was found")
        if cpu > CPU_LIMIT:
            errors.append(f"more than {CPU_LIMIT:.0f} % of a CPU was used")
    label = f"{name} {' '.join(flags)}"
    print(f"  {label:<28} {100 * share:7.1f} % {wrong / MIB:12.1f} MiB {cpu:9.2f} %   {'; '.join(errors) or 'ok'}", flush=True)
    return not errors


def check_short_lived(thermo, folder):
    """A command and a process that end before the first access check."""
    ok = True
    for n in range(20):
        done = subprocess.run([thermo, "record", "-o", os.path.join(folder, "gone.arrow"), "--", "true"], capture_output=True, text=True, timeout=60)
        ok &= done.returncode == 0 and "panicked" not in done.stderr
    short = subprocess.Popen([sys.executable, __file__, "--target", "short_lived"], stdout=subprocess.DEVNULL)
    done = subprocess.run([thermo, "record", "--pid", str(short.pid), "-o", os.path.join(folder, "gone.arrow")], capture_output=True, text=True, timeout=60)
    short.wait()
    # 0: the process ended during monitoring. 2: it had ended before.
    ok &= done.returncode in (0, 2) and "panicked" not in done.stderr
    print(f"  {'short_lived':<28} {'':>9} {'':>16} {'':>11}   {'ok' if ok else 'record ended with ' + str(done.returncode) + ': ' + done.stderr}")
    return ok


def main():
    if sys.argv[1] == "--target":
        TARGETS[sys.argv[2]]()
        return 0
    thermo = sys.argv[1]
    print(f"  {'target':<28} {'hot found':>9} {'wrongly hot':>16} {'own CPU':>11}")
    with tempfile.TemporaryDirectory() as folder:
        results = [
            check("many_mappings", thermo, folder, []),
            check("many_mappings", thermo, folder, ["--vma"]),
            check("many_threads", thermo, folder, []),
            check("fork_storm", thermo, folder, ["--children"]),
            check("large_mapping", thermo, folder, []),
            check("large_mapping", thermo, folder, ["--vma"]),
            check_short_lived(thermo, folder),
        ]
    return 0 if all(results) else 1


sys.exit(main())
