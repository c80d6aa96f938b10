#!/usr/bin/env python3
"""Measures the cost of the agent with many programs. agent.sh calls it."""

import argparse
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
# Maps 800 MiB and writes 64 MiB of it: 16 MiB again each second, the rest never again.
PROGRAM = """
import mmap, sys, time
open("/proc/self/comm", "w").write(sys.argv[1])
memory = mmap.mmap(-1, 800 << 20)
for at in range(0, 64 << 20, 4096): memory[at] = 1
while True:
    for at in range(0, 16 << 20, 4096): memory[at] = 1
    time.sleep(1)
"""


class Connection(http.client.HTTPConnection):
    """HTTP over the agent's socket."""

    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Agent:
    def __init__(self, thermo, folder):
        self.folder, self.socket = folder, str(folder / "a.sock")
        self.mark = f"agent-bench-{os.getpid()}"
        (folder / "agent.toml").write_text(f"""
state_dir = "{folder}/state"
[http]
socket = "{self.socket}"
[[policy]]
name = "programs"
match = {{ env = "THERMO_BENCH={self.mark}" }}
[[policy]]
name = "short"
match = {{ env = "THERMO_SHORT={self.mark}" }}
""")
        self.process = subprocess.Popen([thermo, "agent", "--config", str(folder / "agent.toml")])
        wait(self.is_ready, "the agent does not become ready")

    def is_ready(self):
        if self.process.poll() is not None:
            sys.exit("agent: thermo agent has ended")
        return os.path.exists(self.socket) and self.get("/readyz") is not None

    def get(self, path):
        """The body of an answer; None if it is refused."""
        connection = Connection(self.socket)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return body if answer.status == 200 else None

    def json(self, path):
        return json.loads(self.get(path))

    def spawn(self, variable, *command):
        environment = {**os.environ, variable: self.mark}
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait(condition, why):
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > 120:
            sys.exit(f"agent: {why}")
        time.sleep(0.1)


def processes(agent, policy):
    found = [one for one in agent.json("/api/v1/policies")["policies"] if one["name"] == policy]
    return found[0]["processes"]


def cost(agent, programs, seconds):
    running = [agent.spawn("THERMO_BENCH", sys.executable, "-c", PROGRAM, f"program-{nth}") for nth in range(programs)]
    try:
        wait(lambda: processes(agent, "programs") == programs, "not all programs were found")
        resident = lambda: sum(one["resident_bytes"] for one in agent.json("/api/v1/targets")["targets"])
        wait(lambda: resident() > programs * 60 * MIB, "not all memory was seen")
        # The start may cost more than the budget.
        time.sleep(20)
        before, begin = agent.json("/api/v1/status"), time.monotonic()
        metrics = []
        while time.monotonic() - begin < seconds:
            at = time.monotonic()
            size = len(agent.get("/metrics"))
            metrics.append(1000 * (time.monotonic() - at))
            time.sleep(1)
        after = agent.json("/api/v1/status")
        time_s = (after["time_ms"] - before["time_ms"]) / 1000
        share = lambda key: 100 * (after[key] - before[key]) / time_s
        segments = sum(path.stat().st_size for path in (agent.folder / "state").rglob("*.arrow"))
        passes = [target["pass_s"] for target in agent.json("/api/v1/targets")["targets"] if target["pass_s"]]
        print(f"programs {programs}, mapped {programs * 800 / 1024:.1f} GiB, resident {resident() / MIB:.0f} MiB")
        print(f"watching {share('watching_cpu_s'):.3f} % of a CPU, budget {100 * after['budget_cpu_share']:g} %;"
              f" the whole agent {share('cpu_s'):.3f} %; scan passes"
              f" {f'{statistics.median(passes):.1f} s' if passes else 'not complete'}")
        print(f"memory of the agent {after['resident_bytes'] / MIB:.1f} MiB, /metrics {statistics.median(metrics):.1f} ms"
              f" (largest {max(metrics):.1f} ms) for {size} bytes")
        print(f"history {segments / MIB:.2f} MiB")
    finally:
        for process in running:
            process.kill()
            process.wait()


def short_lived(agent, count):
    """Programs that live for 2 s, started over 10 s. The agent's list of targets is read all the time."""
    seen, ended = set(), threading.Event()

    def look():
        while not ended.wait(0.2):
            for target in agent.json("/api/v1/targets")["targets"]:
                if target["policy"] == "short":
                    seen.update(target["pids"])

    looking = threading.Thread(target=look)
    looking.start()
    begin, running = time.monotonic(), []
    for nth in range(count):
        time.sleep(max(0, begin + nth * 10 / count - time.monotonic()))
        running.append(agent.spawn("THERMO_SHORT", "sleep", "2"))
    took = time.monotonic() - begin
    pids = {process.pid for process in running}
    for process in running:
        process.wait()
    ended.set()
    looking.join()
    print(f"programs of 2 s: {count} started in {took:.1f} s, {len(pids & seen)} seen")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--thermo", required=True)
    for flag in ("programs", "short", "seconds"):
        parser.add_argument(f"--{flag}", type=int, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(options.thermo, pathlib.Path(folder))
        try:
            cost(agent, options.programs, options.seconds)
            short_lived(agent, options.short)
        finally:
            agent.process.kill()
            agent.process.wait()


if __name__ == "__main__":
    main()
