"""Compares the speed of a program with and without monitoring, alternately.

Usage: overhead.py WORKLOAD THERMO FOLDER | overhead.py redis THERMO FOLDER SOCKET PID
"""
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time

ROUNDS = 3
SECONDS = 3.0


def regions(least, most):
    name = f"{most}" if least == most else f"{least} to {most}"
    options = ["--sample", "5ms", "--aggr", "100ms", "--min-regions", f"{least}", "--max-regions", f"{most}"]
    return f"{name} regions", options, 0.3


# Name, options of record, and seconds to wait before measuring the speed.
SETTINGS = [
    # The first scan pass costs more than later ones.
    ("--cpu 1%", ["--cpu", "1%"], 12),
    # Equal numbers: a fixed number of regions.
    regions(10, 10),
    regions(100, 100),
    regions(1000, 1000),
    regions(10, 1000),
]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Workload:
    """A workload of thermo-lab, which prints its number of accesses every tenth of a second."""

    def __init__(self, thermo, name):
        self.lines = []
        configuration = f"workloads/{name}.cfg"
        lab = pathlib.Path(thermo).with_name("thermo-lab")
        command = [lab, "workload", "--log-interval", "100ms", "--duration", "1000s", configuration]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            found = re.match(r'phase "([^"]+)": .*, (\d+) a ms', line)
            # Skip the first phase, which touches everything once and is slower.
            if found and found[1] != "all":
                self.lines.append((time.monotonic(), int(found[2])))

    def speed(self):
        begin = time.monotonic()
        time.sleep(SECONDS)
        made = [speed for when, speed in self.lines if when > begin + 0.1]
        return statistics.mean(made) if made else None

    def has_ended(self):
        return self.process.poll() is not None

    def end(self):
        self.process.kill()
        self.process.wait()


class Redis:
    """redis-server with redis-benchmark, which prints requests per second."""

    def __init__(self, socket, pid):
        self.socket, self.pid = socket, pid
        self.requests = 20000
        self.requests = max(int(self.speed() * SECONDS), 1000)

    def speed(self):
        command = ["redis-benchmark", "-s", self.socket, "-r", "15000", "-n", str(self.requests), "-c", "4", "--csv"]
        output = subprocess.run(command + ["get", "key:__rand_int__"], capture_output=True, text=True, check=True).stdout
        return float(list(csv.reader(output.splitlines()))[-1][1])

    def has_ended(self):
        return False

    def end(self):
        pass


def monitored_speed(thermo, folder, program, options, settle):
    """Measures the speed during monitoring. Returns it and thermo's CPU time in percent of one CPU."""
    recording = os.path.join(folder, "overhead.arrow")
    pathlib.Path(recording).unlink(missing_ok=True)
    command = [thermo, "record", "--pid", str(program.pid), "-o", recording, *options]
    recorder = subprocess.Popen(command, **QUIET)
    time.sleep(settle)
    speed = program.speed()
    if recorder.poll() is not None:
        sys.exit(f"overhead: {' '.join(command)} ended early with {recorder.returncode}")
    recorder.terminate()
    recorder.wait()
    report = subprocess.run([thermo, "report", "info", recording, "--json"], capture_output=True, check=True).stdout
    return speed, json.loads(report)["own_cpu_percent"]


def main():
    kind, thermo, folder = sys.argv[1:4]
    program = Redis(sys.argv[4], int(sys.argv[5])) if kind == "redis" else Workload(thermo, kind)
    unit = "requests/s" if kind == "redis" else "accesses/ms"
    print(f"\n{kind}: {ROUNDS} rounds of {SECONDS:.0f} s with and {SECONDS:.0f} s without monitoring; medians")
    print(f"  {'':>18} {'own CPU':>9} {'monitored ' + unit:>22} {'alone':>10} {'slow-down':>10} {'min..max':>18}")
    try:
        for name, options, settle in SETTINGS:
            alone, monitored, cpu, slow_down = [], [], [], []
            while len(slow_down) < ROUNDS:
                before = program.speed()
                speed, percent = monitored_speed(thermo, folder, program, options, settle)
                if before is None or speed is None:
                    if program.has_ended():
                        sys.exit(f"overhead: {kind} ended before the measurements were complete")
                    continue
                alone.append(before)
                monitored.append(speed)
                cpu.append(percent)
                slow_down.append(100 * (before / speed - 1))
            spread = f"{min(slow_down):.1f}..{max(slow_down):.1f} %"
            print(f"  {name:>18} {statistics.median(cpu):7.2f} % {statistics.median(monitored):22.0f} "
                  f"{statistics.median(alone):10.0f} {statistics.median(slow_down):8.1f} % {spread:>18}", flush=True)
    finally:
        program.end()


main()
