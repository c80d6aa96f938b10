#!/usr/bin/env python3
"""Measures recordings beside hostile or very many processes. neighbours.sh calls it."""

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
PAGE = 4096
# A look at what is known every so many seconds.
LOOK_S = 4
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    LIBC.prctl(1, signal.SIGKILL)


def wait_for_end():
    while True:
        signal.pause()


def idle():
    """A small process that does nothing."""
    os.execvp("sleep", ["sleep", "infinity"])


def many_mappings(nr):
    """One process with `nr` mappings of a page each."""
    memory = mmap.mmap(-1, 2 * nr * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for at in range(0, 2 * nr, 2):
        memory[at * PAGE] = 1
        # Every second page is read-only, so each is a mapping of its own.
        if LIBC.mprotect(ctypes.c_void_p(start + (at + 1) * PAGE), PAGE, mmap.PROT_READ) != 0:
            break
    print("ready", flush=True)
    wait_for_end()


def sparse(tib):
    """A reservation of `tib` TiB with one page of each GiB."""
    LIBC.mmap.restype = ctypes.c_void_p
    MAP_NORESERVE = 0x4000
    start = LIBC.mmap(None, ctypes.c_size_t(tib << 40), mmap.PROT_READ | mmap.PROT_WRITE,
                      mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1, ctypes.c_long(0))
    for at in range(0, tib << 40, 1 << 30):
        ctypes.c_char.from_address(start + at).value = b"x"
    print("ready", flush=True)
    wait_for_end()


def forks(rate):
    """Starts `rate` children a second, each of which lives for a second."""
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if os.fork() == 0:
            time.sleep(1)
            os._exit(0)
        time.sleep(1 / rate)


class Scene:
    """Processes in control groups of their own, which end with it."""

    def __init__(self, name):
        base = "/sys/fs/cgroup/memory" if os.path.exists("/sys/fs/cgroup/memory") else "/sys/fs/cgroup"
        own = next(line.split(":", 2)[2].strip() for line in open("/proc/self/cgroup")
                   if line.split(":")[1] in ("memory", ""))
        self.path = f"{own.rstrip('/')}/neighbours-{os.getpid()}-{name}"
        self.folder = pathlib.Path(base + self.path)
        self.folder.mkdir()
        self.groups, self.pids = [], []

    def group(self, nth):
        folder = self.folder / f"g{nth}"
        folder.mkdir()
        self.groups.append(folder)
        return folder

    def start(self, work, folder=None, says_ready=True):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent()
                ((folder or self.folder) / "cgroup.procs").write_text("0")
                os.dup2(writer, 1)
                os.close(reader)
                work()
            finally:
                os._exit(1)
        os.close(writer)
        self.pids.append(pid)
        if says_ready and not os.read(reader, 5):
            sys.exit("neighbours: a process of the scene has failed")
        os.close(reader)

    def end(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self.pids:
            os.waitpid(pid, 0)
        for folder in [*self.groups, self.folder]:
            # Grandchildren may still be ending.
            for _ in range(100):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.05)


def cpu_s(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def info(thermo, recording):
    command = [thermo, "report", "info", "--json", recording]
    return json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL))


def record(thermo, scene, seconds, work):
    """Records the scene for so long."""
    recording = work / "r.arrow"
    command = [thermo, "record", "--cgroup", scene.path, "--duration", f"{seconds}s", "-o", str(recording)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(work / "errors", "w"))
    begin, samples, memory, half_known, next_look = time.monotonic(), [], 0, None, LOOK_S
    while running.poll() is None:
        at = time.monotonic() - begin
        with contextlib.suppress(OSError, IndexError):
            samples.append((at, cpu_s(running.pid)))
            status = open(f"/proc/{running.pid}/status").read()
            memory = max(memory, int(status.split("VmHWM:")[1].split()[0]) << 10)
        if half_known is None and at >= next_look:
            next_look = at + LOOK_S
            now = info(thermo, recording)
            if now["snapshots"] > 0 and now["unknown_share"] < 0.5:
                half_known = at
        time.sleep(0.5)
    for line in (work / "errors").read_text().splitlines():
        if "the recording is" not in line:
            print(f"  {line}", file=sys.stderr)
    return samples, memory, half_known, info(thermo, recording)


def share(samples, begin, end):
    """Percent of a CPU between these times."""
    part = [sample for sample in samples if begin <= sample[0] <= end]
    return 100 * (part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--thermo", required=True)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--processes", type=int, default=5000)
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--only", help="only this scene")
    options = parser.parse_args()

    def processes(scene):
        groups = [scene.group(nth) for nth in range(options.groups)]
        for nth in range(options.processes):
            scene.start(idle, groups[nth % len(groups)], says_ready=False)

    scenes = {
        "processes": (f"{options.processes} processes in {options.groups} groups", processes),
        "mappings": ("64,000 mappings in one process", lambda scene: scene.start(lambda: many_mappings(32_000))),
        "sparse": ("14 TiB, a page of each GiB", lambda scene: scene.start(lambda: sparse(14))),
        "forks": ("20 forks a second", lambda scene: scene.start(lambda: forks(20))),
    }
    print(f"{'scene':<34} {'CPU, 1st minute':>15} {'after':>8} {'monitoring':>10} {'memory':>10} {'half known':>10}"
          f" {'snapshots':>9}")
    for name, (title, start) in scenes.items():
        if options.only and name != options.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            scene = Scene(name)
            try:
                start(scene)
                samples, memory, half_known, end = record(options.thermo, scene, options.seconds, pathlib.Path(folder))
            finally:
                scene.end()
            minute = min(60, options.seconds / 2)
            print(f"{title:<34} {share(samples, 0, minute):>13.2f} % {share(samples, minute, options.seconds):>6.2f} %"
                  f" {end['steady_monitoring_cpu_percent'] or 0:>8.2f} % {memory / MIB:>6.1f} MiB"
                  f" {f'{half_known:.0f} s' if half_known else 'none':>10} {end['snapshots']:>9}", flush=True)


main()
