#!/usr/bin/env python3
"""Hostile clients of user nobody at every door: the socket of `thermo lifecycle`, the sockets of
`thermo-nbd` (Unix and TCP) and its control socket, the control files of `thermo fs`, the port of `thermo
agent`. Meanwhile root's client measures its latency. Prints a table. Exit code 1: root's client waits too
long at the 99th percentile, the server uses more than 64 MiB, keeps descriptors, ends, or serves what is not
for a stranger. Needs root. Decisions, control files and answers of the agent may take 50 ms. All clients of a block server are equal: root's shares its
threads with 70 others, and only has to be served.

The machine adds delays of its own: a request to a process that only copies its input is measured beside each
request, and its 99th percentile is added to the limit.

usage: strangers.py [--seconds N] THERMO THERMO_NBD
"""
import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "kills"))
from machine import is_mounted, read_line, wait_until  # noqa: E402
from nbd_client import attach, receive, reply, request  # noqa: E402

ATTACKERS, MEMORY_MIB, NOBODY = 3, 64, 65534
EXPORT = 1 << 20
ALL = ["flood", "storm", "slow", "half_closed", "oversized", "descriptors", "spoofed"]


class Copy:
    """A process that copies its input: what the machine itself takes for an answer."""

    def __init__(self):
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def ask(self):
        self.process.stdin.write(b"x" * 64)
        assert len(self.process.stdout.read(64)) == 64

    def end(self):
        self.process.communicate()


class Lifecycle:
    doors, kinds, latency_ms = {"lifecycle": "s"}, ALL, 50

    def __init__(self, tools, folder):
        self.target = subprocess.Popen(["sleep", "3600"])
        with open(f"{folder}/apps.toml", "w") as file:
            file.write(f"[[app]]\nname = \"a\"\npid = {self.target.pid}\n")
        self.server = subprocess.Popen([tools[0], "lifecycle", "run", f"{folder}/apps.toml", "--socket", f"{folder}/s"],
                                       stdout=subprocess.DEVNULL, stderr=open(f"{folder}/log", "w"))
        wait_until(lambda: self.server.poll() is not None or "listening" in open(f"{folder}/log").read(), "the daemon does not listen")
        self.path, self.state, self.client = f"{folder}/s", "background", None

    def exchange(self, message):
        if self.client is None:
            # Without a time limit, it waits where the queue of the socket is full.
            self.client = socket.socket(socket.AF_UNIX)
            self.client.connect(self.path)
            self.client.settimeout(60)
        self.client.sendall(json.dumps(message).encode() + b"\n")
        answer = receive(self.client, 1)
        while not answer.endswith(b"\n"):
            answer += receive(self.client, 1) if len(answer) < 2 else self.client.recv(65536)
        answer = json.loads(answer)
        assert answer["ok"], answer
        return answer

    def ask(self):
        """A decision, which must start from the state that root set last."""
        self.state = "foreground" if self.state == "background" else "background"
        self.exchange({"verb": "set", "app": "a", "state": self.state})

    def check(self):
        found = self.exchange({"verb": "status"})["apps"][0]["state"]
        assert found == self.state, f"root set {self.state}, and the state is {found}"

    def end(self):
        self.target.kill()
        self.target.wait()


class Nbd:
    kinds, latency_ms = ALL, 2000

    def __init__(self, tools, folder):
        self.content = os.urandom(EXPORT)
        for name in ("disk", "ro"):
            with open(f"{folder}/{name}", "wb") as file:
                file.write(self.content)
        port = socket.socket()
        port.bind(("127.0.0.1", 0))
        self.doors = {"nbd-unix": "n", "nbd-tcp": f"127.0.0.1:{port.getsockname()[1]}"}
        port.close()
        self.server = subprocess.Popen([tools[1], "--unix", f"{folder}/n", "--tcp", self.doors["nbd-tcp"], "--control", f"{folder}/c", "--stall", "10",
                                        "--export", f"disk={folder}/disk", "--export", f"ro={folder}/ro,ro", "--budget", "16M"],
                                       stderr=subprocess.DEVNULL)
        wait_until(lambda: self.server.poll() is not None or os.path.exists(f"{folder}/c"), "the server does not listen")
        # Whoever may open the socket may use it; here everybody may.
        os.chmod(f"{folder}/n", 0o666)
        self.path, self.client, self.folder, self.control = f"{folder}/n", None, folder, [tools[1], "status", "--control", f"{folder}/c", "--json"]

    def ask(self):
        if self.client is None:
            self.client, size = attach(self.path, "disk", 60)
            assert size == EXPORT
        at = random.randrange(EXPORT >> 12) << 12
        self.client.sendall(request(0, 7, at, 4096))
        assert reply(self.client) == (7, 0)
        assert receive(self.client, 4096) == self.content[at:at + 4096], "wrong data"

    def check(self):
        subprocess.run(self.control, check=True, stdout=subprocess.DEVNULL, timeout=60)
        for name in ("disk", "ro"):
            with open(f"{self.folder}/{name}", "rb") as file:
                assert file.read() == self.content, f"a stranger wrote to {name}"

    def end(self):
        pass


class NbdControl(Nbd):
    """The control socket is for the user of the server."""
    kinds = ["storm", "spoofed", "oversized"]

    def __init__(self, tools, folder):
        super().__init__(tools, folder)
        self.doors = {"control": "c"}


class Files:
    doors, kinds, latency_ms = {"fs": "damon"}, ["spoofed"], 50

    def __init__(self, tools, folder):
        self.point = f"{folder}/damon"
        os.mkdir(self.point)
        self.server = subprocess.Popen([tools[0], "fs", "--mount", self.point, "--tracker", "smaps"], stderr=subprocess.DEVNULL)
        wait_until(lambda: self.server.poll() is not None or is_mounted(self.point), "the files are not mounted")

    def ask(self):
        with open(f"{self.point}/admin/kdamonds/nr_kdamonds") as file:
            assert file.read() == "0\n"

    def check(self):
        self.ask()

    def end(self):
        pass


class Agent:
    """Root asks for the status and the metrics of many targets over the socket; strangers use the port."""
    kinds, latency_ms, targets, policies = ["addresses", "held", "slow_answers", "peeks"], 50, 100, ""

    def __init__(self, tools, folder):
        port = socket.socket()
        port.bind(("127.0.0.1", 0))
        self.doors = {"agent": f"127.0.0.1:{port.getsockname()[1]}"}
        port.close()
        self.sleepers = []
        for nth in range(self.targets):
            os.symlink(shutil.which("sleep"), f"{folder}/t{nth}")
            self.sleepers.append(subprocess.Popen([f"{folder}/t{nth}", "3600"]))
        with open(f"{folder}/agent.toml", "w") as file:
            file.write(f"state_dir = \"{folder}/state\"\n[http]\nsocket = \"{folder}/a\"\n"
                       "[[policy]]\nname = \"sleepers\"\nmatch = { command = \"t[0-9]*\" }\ntarget_name = \"{command}\"\n" + self.policies)
        self.server = subprocess.Popen([tools[0], "agent", "--config", f"{folder}/agent.toml", "--listen", self.doors["agent"]],
                                       stdout=subprocess.DEVNULL, stderr=open(f"{folder}/log", "w"))
        self.path, self.client, self.nth = f"{folder}/a", None, 0
        wait_until(lambda: self.server.poll() is not None or (os.path.exists(self.path) and len(self.answer("/api/v1/targets")["targets"]) == self.targets),
                   "the agent does not find its targets", 60)

    def answer(self, path):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(self.path)
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while part := client.recv(1 << 20):
                answer += part
        head, body = answer.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 200"), answer[:300]
        return json.loads(body) if body.startswith(b"{") else body

    def ask(self):
        self.nth += 1
        self.answer("/metrics" if self.nth % 2 else "/api/v1/status")

    def check(self):
        targets = self.answer("/api/v1/targets")["targets"]
        assert sum(target["policy"] == "sleepers" for target in targets) == self.targets

    def end(self):
        for sleeper in self.sleepers:
            sleeper.kill()
            sleeper.wait()


class AgentTargets(Agent):
    """The strangers are targets of the agent."""
    kinds = ["mappings", "forks"]
    policies = f"[[policy]]\nname = \"strangers\"\nmatch = {{ user = \"{NOBODY}\" }}\ntarget_name = \"{{command}}\"\n"

    def __init__(self, tools, folder):
        super().__init__(tools, folder)
        self.doors = {"targets": next(iter(self.doors.values()))}


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000


def measure(service, copy, seconds):
    """Latencies in seconds of root's requests, and of the process that copies."""
    own, others, end = [], [], time.monotonic() + seconds
    while time.monotonic() < end:
        for ask, values in ((service.ask, own), (copy.ask, others)):
            begin = time.monotonic()
            ask()
            values.append(time.monotonic() - begin)
        time.sleep(0.02)
    service.check()
    return own, others


def waited_for_cpu(pid):
    """Seconds that a process was ready to run and did not."""
    waited = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            waited += int(file.read().split()[1])
    return waited / 1e9


def memory_and_descriptors(pid):
    with open(f"/proc/{pid}/status") as file:
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
    return peak / 1024, len(os.listdir(f"/proc/{pid}/fd"))


def attack(kind, door, address):
    process = subprocess.Popen([sys.executable, f"{HERE}/attack.py", kind, door, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert read_line(process.stdout, "an attacker") == "ready"
    return process


def under_attack(service, folder, door, address, kind, copy, seconds):
    """One row of the table. Returns the violations."""
    path = address if ":" in address else f"{folder}/{address}"
    attackers = [attack(kind, door, path) for _ in range(ATTACKERS)]
    failures, service.client, waited = [], None, waited_for_cpu(service.server.pid)
    try:
        own, others = measure(service, copy, seconds)
    except (OSError, AssertionError) as error:
        failures.append(f"root's client: {error!r}")
        own, others, service.client = [0.0], [0.0], None
    waited = waited_for_cpu(service.server.pid) - waited if service.server.poll() is None else 0
    for process in attackers:
        text, _ = process.communicate(timeout=120)
        failures += [line for line in text.splitlines() if line.startswith("SERVED")][:3]
        if process.returncode:
            failures.append(f"the attacker ended with {process.returncode}")
    if service.server.poll() is not None:
        return [f"the server ended with {service.server.returncode}"]
    p99, machine, (peak, _) = percentile(own, 0.99), percentile(others, 0.99), memory_and_descriptors(service.server.pid)
    if p99 > service.latency_ms + machine:
        failures.append(f"{p99:.0f} ms at the 99th percentile")
    if peak > MEMORY_MIB:
        failures.append(f"{peak:.0f} MiB")
    print(f"{door:<10} {kind:<12} {len(own):>6} {percentile(own, 0.5):>8.1f} {p99:>8.1f} {machine:>9.1f} {waited:>7.1f} {peak:>6.1f}   {'; '.join(failures) or 'ok'}", flush=True)
    return [f"{door}, {kind}: {failure}" for failure in failures]


def run(kind_of_service, tools, folder, seconds):
    os.mkdir(folder, 0o755)
    service, copy, violations = kind_of_service(tools, folder), Copy(), []
    try:
        assert service.server.poll() is None, f"the server ended with {service.server.returncode}"
        measure(service, copy, 1)
        _, before = memory_and_descriptors(service.server.pid)
        for door, address in service.doors.items():
            for kind in service.kinds:
                if kind == "descriptors" and door == "nbd-tcp":
                    continue
                violations += under_attack(service, folder, door, address, kind, copy, seconds)
        # All strangers are gone, or are disconnected soon.
        with contextlib.suppress(Exception):
            wait_until(lambda: memory_and_descriptors(service.server.pid)[1] <= before + 1, "", 30)
        _, after = memory_and_descriptors(service.server.pid)
        if after > before + 1:
            violations.append(f"{kind_of_service.__name__}: {before} descriptors before, {after} after")
            print(violations[-1])
    finally:
        copy.end()
        service.server.send_signal(signal.SIGTERM)
        service.server.wait(60)
        service.end()
    return violations


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", default="", help="names of services, separated by commas")
    parser.add_argument("tools", nargs=2)
    options = parser.parse_args()
    if os.geteuid() != 0:
        return print("SKIP: only root can start clients of user nobody")
    folder, violations = tempfile.mkdtemp(prefix="thermo-strangers-"), []
    os.chmod(folder, 0o755)
    print(f"{'door':<10} {'attack':<12} {'asked':>6} {'p50 ms':>8} {'p99 ms':>8} {'machine':>9} {'for CPU':>7} {'MiB':>6}")
    try:
        for service in (Lifecycle, Nbd, NbdControl, Files, Agent, AgentTargets):
            if options.only and service.__name__ not in options.only.split(","):
                continue
            violations += run(service, [os.path.realpath(tool) for tool in options.tools], f"{folder}/{service.__name__}", options.seconds)
    finally:
        shutil.rmtree(folder)
    print(f"{len(violations)} violations")
    return 1 if violations else 0


sys.exit(main())
