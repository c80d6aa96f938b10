#!/usr/bin/env python3
"""Three commands run for long beside constant change. See churn.sh.

* record: follows a process that starts 20 children a second, each with 2,000 mappings;
* reclaim: waits for a control group that is created and removed every few seconds;
* lifecycle: applications of that group and of those children, whose states a client sets twice a second.

Each command has a control group of its own with a memory limit of 64 MiB. Every two minutes all commands are
stopped for three seconds, as when a machine is suspended, and between that the process that they follow.

A clock beside them notes when the machine itself stood still: a process that wanted to run every tenth of a
second did not for more than half a second. A snapshot that is late by that is not missed.

usage: churn.py THERMO SECONDS
"""
import contextlib
import ctypes
import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

MEMORY = "/sys/fs/cgroup/memory"
LIMIT = 64 << 20
RANGES, FORKS_PER_SECOND, CHILD_LIFE = 2000, 20, 1.0
SUSPEND_EVERY, SUSPEND_FOR = 120.0, 3.0
# Growth below this is noise, whatever the slope: memory of the allocator, a descriptor that is open for a
# moment.
NOISE = {"resident KiB": 1024, "descriptors": 2, "threads": 1}


def churn():
    """The process that is followed. Ends with its standard input."""
    libc = ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, RANGES * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory[::4096] = b"x" * RANGES
    # The kernel does not merge adjacent mappings with different permissions.
    for page in range(0, RANGES, 2):
        assert libc.mprotect(ctypes.c_void_p(start + page * 4096), ctypes.c_size_t(4096), 1) == 0
    print("ready", flush=True)
    due, pids, forked = time.monotonic(), set(), 0
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(max(0.0, due - time.monotonic())):
        due = max(due + 1 / FORKS_PER_SECOND, time.monotonic() - 1)
        pid = os.fork()
        if pid == 0:
            memory[4096::8192] = b"y" * (RANGES // 2)
            time.sleep(CHILD_LIFE)
            os._exit(0)
        pids.add(pid)
        forked += 1
        while pids and (done := os.waitpid(-1, os.WNOHANG)[0]):
            pids.discard(done)
    for pid in pids:
        os.waitpid(pid, 0)
    print(forked, flush=True)


def clock():
    """Prints the intervals in which this process did not run, until it is killed."""
    last = time.monotonic_ns()
    while True:
        time.sleep(0.1)
        now = time.monotonic_ns()
        if now - last > 6 * 10 ** 8:
            print(last, now, flush=True)
        last = now


class Subject:
    """A command under test in a control group of its own."""

    def __init__(self, name, group, command, log):
        self.name, self.samples = name, []
        self.group = os.path.join(group, name)
        os.mkdir(self.group)
        write(f"{self.group}/memory.limit_in_bytes", LIMIT)
        self.log = open(log, "w+")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        preexec_fn=lambda: write(f"{self.group}/cgroup.procs", os.getpid()))

    def sample(self):
        pid = self.process.pid
        assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}: {self.output()}"
        with open(f"/proc/{pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        self.samples.append((time.monotonic(), {
            "resident KiB": int(fields["VmRSS"].split()[0]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": int(fields["Threads"]),
        }))

    def output(self):
        self.log.seek(0)
        return self.log.read()[-2000:]

    def end(self):
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(120)
        if self.process.poll() is None:
            self.process.kill()
            raise AssertionError(f"{self.name} did not end within 120 s of Ctrl-C")

    def peak_mib(self):
        with open(f"{self.group}/memory.max_usage_in_bytes") as file:
            return int(file.read()) >> 20


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def slope(points):
    """Growth per second by least squares, and its standard error. Samples that follow each other are alike,
    so the error is that of the means of 20 blocks."""
    size = max(1, len(points) // 20)
    blocks = [points[at:at + size] for at in range(0, len(points) - size + 1, size)]
    means = [(sum(t for t, _ in block) / len(block), sum(v for _, v in block) / len(block)) for block in blocks]
    count = len(means)
    mean_t, mean_v = (sum(values) / count for values in zip(*means))
    spread = sum((t - mean_t) ** 2 for t, _ in means)
    rate = sum((t - mean_t) * (v - mean_v) for t, v in means) / spread
    residual = sum((v - mean_v - rate * (t - mean_t)) ** 2 for t, v in means)
    return rate, (residual / max(1, count - 2) / spread) ** 0.5


def groups_come_and_go(path, stop, counts):
    """Creates the group with a process in it, and removes both, again and again."""
    while not stop.is_set():
        os.makedirs(path, exist_ok=True)
        worker = subprocess.Popen([sys.executable, "-c", "import sys; m = bytearray(8 << 20); print(1, flush=True); sys.stdin.read()"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  preexec_fn=lambda: write(f"{path}/cgroup.procs", os.getpid()))
        worker.stdout.readline()
        stop.wait(4)
        worker.communicate()
        remove_group(path)
        counts["groups"] += 1
        stop.wait(2)


def remove_group(path):
    """A group can be busy for a moment after its last process."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return os.rmdir(path)
        except OSError as error:
            if not os.path.isdir(path):
                return
            assert time.monotonic() < deadline, f"cannot remove {path}: {error}"
            time.sleep(0.1)


def set_states(path, stop, counts):
    client = None
    while not stop.is_set():
        for app in ("group", "churn"):
            for state in ("cached", "foreground"):
                if client is None:
                    client = socket.socket(socket.AF_UNIX)
                    client.settimeout(60)
                    client.connect(path)
                client.sendall(json.dumps({"verb": "set", "app": app, "state": state}).encode() + b"\n")
                answer = b""
                while not answer.endswith(b"\n"):
                    part = client.recv(65536)
                    assert part, "the life cycle daemon closed the connection"
                    answer += part
                assert json.loads(answer)["ok"], answer
                counts["states"] += 1
                if counts["states"] % 50 == 0:
                    client.close()
                    client = None
                stop.wait(0.5)


def guarded(failures, stop, function, *arguments):
    def run():
        try:
            function(*arguments)
        except Exception as error:  # every failure is a result of the soak
            failures.append(f"{function.__name__}: {error!r}")
            stop.set()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def suspend(pids, intervals):
    start = time.monotonic_ns()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(SUSPEND_FOR)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    intervals.append((start, time.monotonic_ns()))


def missed_snapshots(thermo, recording, suspended, stalled):
    """Number of snapshots, and of gaps of two seconds or more outside of suspended and stalled time."""
    report = subprocess.Popen([thermo, "report", "regions", recording, "--csv"], stdout=subprocess.PIPE, text=True)
    next(report.stdout)
    times, last = [], None
    for line in report.stdout:
        at = line.split(",", 1)[0]
        if at != last:
            times.append(int(at))
            last = at
    assert report.wait() == 0, "the recording cannot be read"
    second = 10 ** 9
    missed = 0
    for before, after in zip(times, times[1:]):
        paused = sum(max(0, min(after, end + second) - max(before, start - second)) for start, end in suspended)
        paused += sum(max(0, min(after, end) - max(before, start)) for start, end in stalled)
        missed += after - before - paused >= 2 * second
    return len(times), missed


def check_flat(subjects):
    print(f"{'command':<10} {'':<13} {'first':>8} {'last':>8} {'growth':>16}   (measured over the last two thirds)")
    violations = []
    for subject in subjects:
        samples = subject.samples[len(subject.samples) // 3:]
        seconds = samples[-1][0] - samples[0][0]
        for name, noise in NOISE.items():
            points = [(at, values[name]) for at, values in samples]
            rate, error = slope(points)
            growth, uncertain = rate * seconds, error * seconds
            is_flat = growth <= max(noise, 3 * uncertain)
            print(f"{subject.name:<10} {name:<13} {points[0][1]:>8} {points[-1][1]:>8} {growth:>+8.1f} ± {uncertain:<6.1f} {'ok' if is_flat else 'GROWS'}")
            if not is_flat:
                violations.append(f"{subject.name}: {name} grew by {growth:.1f} ± {uncertain:.1f} in {seconds:.0f} s")
        peak = subject.peak_mib()
        print(f"{subject.name:<10} {'peak of group':<13} {peak:>8} MiB of {LIMIT >> 20}")
    return violations


def start_subjects(thermo, folder, group, app_group, parent):
    config = f"{folder}/apps.toml"
    path = os.path.realpath(sys.executable)
    write(config, f"poll = \"1s\"\n[[app]]\nname = \"group\"\ncgroup = \"{app_group}\"\nmin_anon_rss = \"1M\"\nmin_change = \"0\"\n"
                  f"[[app]]\nname = \"churn\"\ncommand = \"^{path} .*churn.py --churn\"\nprofile = \"file\"\n")
    return [
        Subject("record", group, [thermo, "record", "--pid", str(parent), "--children", "-o", f"{folder}/r.arrow"], f"{folder}/record.log"),
        Subject("reclaim", group, [thermo, "reclaim", "--cgroup", app_group, "--min-age", "1s", "--wmarks-high", "1000",
                                   "--wmarks-mid", "1000", "--wmarks-low", "0"], f"{folder}/reclaim.log"),
        Subject("lifecycle", group, [thermo, "lifecycle", "run", config, "--socket", f"{folder}/s"], f"{folder}/lifecycle.log"),
    ]


def run(thermo, seconds, folder, group):
    app_group = f"{group}/app"
    os.mkdir(app_group)
    stop, failures, counts, suspended = threading.Event(), [], {"groups": 0, "states": 0}, []
    target = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--churn"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert target.stdout.readline() == "ready\n"
    subjects, stalls = [], open(f"{folder}/clock", "w+")
    watch = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--clock"], stdout=stalls)
    try:
        subjects = start_subjects(thermo, folder, group, app_group, target.pid)
        deadline = time.monotonic() + 120
        while not (os.path.exists(f"{folder}/s") and os.path.exists(f"{folder}/r.arrow")):
            assert time.monotonic() < deadline, [subject.output() for subject in subjects]
            time.sleep(0.1)
        threads = [guarded(failures, stop, groups_come_and_go, app_group, stop, counts),
                   guarded(failures, stop, set_states, f"{folder}/s", stop, counts)]
        end, next_suspension, turn = time.monotonic() + seconds, time.monotonic() + SUSPEND_EVERY / 2, 0
        while time.monotonic() < end and not stop.wait(2):
            for subject in subjects:
                subject.sample()
            if time.monotonic() > next_suspension:
                commands = [subject.process.pid for subject in subjects]
                suspend(commands if turn % 2 == 0 else [target.pid], suspended)
                next_suspension, turn = time.monotonic() + SUSPEND_EVERY / 2, turn + 1
        stop.set()
        for thread in threads:
            thread.join(120)
        for subject in subjects:
            subject.end()
        forked = target.communicate()[0].split()[-1]
    finally:
        stop.set()
        for process in [target, watch] + [subject.process for subject in subjects]:
            if process.poll() is None:
                process.kill()
                process.wait()
    stalls.seek(0)
    stalled = [tuple(map(int, line.split())) for line in stalls]
    snapshots, missed = missed_snapshots(thermo, f"{folder}/r.arrow", suspended, stalled)
    print(f"{seconds:.0f} s: {forked} children of {RANGES} mappings, {counts['groups']} groups, {counts['states']} changes of state, "
          f"{len(suspended)} suspensions; the machine stood still {len(stalled)} times, {sum(b - a for a, b in stalled) / 1e9:.0f} s; "
          f"{snapshots} snapshots, {missed} missed")
    violations = failures + check_flat(subjects)
    if missed:
        violations.append(f"{missed} snapshots are missing")
    return violations


def main():
    if sys.argv[1] == "--churn":
        return churn()
    if sys.argv[1] == "--clock":
        return clock()
    if os.geteuid() != 0 or not os.path.exists(f"{MEMORY}/memory.limit_in_bytes"):
        return print("SKIP: this soak needs root and the memory controller of cgroup version 1")
    thermo, seconds = sys.argv[1], float(sys.argv[2])
    folder = tempfile.mkdtemp(prefix="thermo-churn-")
    group = f"{MEMORY}/{os.path.basename(folder)}"
    os.mkdir(group)
    try:
        violations = run(thermo, seconds, folder, group)
    finally:
        for name in ("record", "reclaim", "lifecycle", "app", ""):
            if os.path.isdir(os.path.join(group, name)):
                remove_group(os.path.join(group, name))
        shutil.rmtree(folder)
    for violation in violations:
        print(f"not ok - {violation}")
    return 1 if violations else print("ok")


sys.exit(main())
