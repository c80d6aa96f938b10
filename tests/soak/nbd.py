#!/usr/bin/env python3
"""Attaches and detaches devices at random, checks all data, and reports memory pressure at random moments.
See nbd.sh.

usage: nbd.py THERMO_NBD SECONDS
"""
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
import threading
import time

DEVICES, THREADS, SIZE, LEGS = 256, 48, 4 << 20, 4
thermo_nbd, seconds = sys.argv[1], float(sys.argv[2])
folder = tempfile.mkdtemp(prefix="nbd-soak", dir="/dev/shm")
path, control = f"{folder}/s", f"{folder}/c"
random.seed(8)


def block_of(device):
    return struct.pack(">Q", device) * 512  # 4 KiB that contain the number of the device


exports = []
for device in range(DEVICES):
    exports += ["--export", f"d{device}=mem:,size={SIZE}"]
server = subprocess.Popen([thermo_nbd, "--unix", path, "--control", control, "--budget", "68M", "--stall", "120"] + exports,
                          stderr=subprocess.DEVNULL)


def resident():
    """Resident MiB of the server: total, and anonymous."""
    with open(f"/proc/{server.pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))


def status():
    return json.loads(subprocess.run([thermo_nbd, "status", "--control", control, "--json"], capture_output=True, check=True).stdout)


def squeeze():
    subprocess.run([thermo_nbd, "squeeze", "--control", control], stdout=subprocess.DEVNULL, check=True)


class Device:
    """One attachment. Every request must be answered, with its cookie and with the data of this device."""

    def __init__(self, number):
        self.number, self.cookie = number, 0
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(120)
        self.stream.connect(path)
        self.receive(18)
        name = b"d%d" % number
        self.stream.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, len(name)) + name)
        size, = struct.unpack(">Q", self.receive(10)[:8])
        assert size == SIZE

    def receive(self, count):
        parts = b""
        while len(parts) < count:
            part = self.stream.recv(count - len(parts))
            assert part, "the server closed the connection"
            parts += part
        return parts

    def send(self, command, offset, length, data=b""):
        self.cookie += 1
        self.stream.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, self.cookie, offset, length) + data)
        return self.cookie

    def burst(self):
        """Writes several blocks at once, then reads them back. Replies may come in any order."""
        blocks = random.sample(range(SIZE >> 16), random.randint(1, 16))
        length = random.choice([4096, 16384, 65536])
        pending = {self.send(1, block << 16, length, block_of(self.number) * (length >> 12)) for block in blocks}
        self.receive_replies(pending, 0)
        self.receive_replies({self.send(0, block << 16, length) for block in blocks}, length)
        if random.random() < 0.2:
            self.receive_replies({self.send(random.choice([3, 4]), 0, 0)}, 0)

    def receive_replies(self, pending, length):
        while pending:
            magic, error, cookie = struct.unpack(">IIQ", self.receive(16))
            assert magic == 0x67446698 and error == 0, (hex(magic), error)
            pending.remove(cookie)
            if length:
                assert self.receive(length) == block_of(self.number) * (length >> 12), "data of another device"

    def detach(self):
        if random.random() < 0.5:
            self.send(2, 0, 0)  # NBD_CMD_DISC. Otherwise just close the connection.
        self.stream.close()


def run(duration):
    """Runs the guests for so many seconds, with memory pressure at random moments."""
    stop.clear()
    threads = [threading.Thread(target=guest, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + duration
    while time.monotonic() < end and not stop.is_set():
        time.sleep(random.random() * 0.2)
        squeeze()
    stop.set()
    for thread in threads:
        thread.join(180)
    assert not any(thread.is_alive() for thread in threads), f"a guest still waits: {status()}"
    assert not failures, failures


def settled():
    """Resident memory without connections, after a squeeze."""
    deadline = time.monotonic() + 60
    while status()["connections"] and time.monotonic() < deadline:
        time.sleep(0.1)
    squeeze()
    time.sleep(0.2)
    return resident()


failures, bursts, attached = [], [0], [0]
stop = threading.Event()


def guest():
    try:
        while not stop.is_set():
            device = Device(random.randrange(DEVICES))
            attached[0] += 1
            for _ in range(random.randint(1, 20)):
                device.burst()
                bursts[0] += 1
            device.detach()
    except Exception as error:  # every failure is the result of the soak
        failures.append(repr(error))
        stop.set()


try:
    deadline = time.monotonic() + 60
    while not os.path.exists(control):
        assert server.poll() is None and time.monotonic() < deadline, "the server did not start within 60 s"
        time.sleep(0.05)
    # Warm up first: each worker allocates memory that it keeps. Then measure the start. A leak grows with
    # each leg, and retained memory does not.
    run(max(seconds / 4, 5))
    legs = [settled()]
    for _ in range(LEGS):
        run(seconds / LEGS)
        legs.append(settled())
    end = status()
    print(f"{seconds:.0f} s: {attached[0]} attached, {bursts[0]} bursts, {end['requests']} requests, peak {end['peak_bytes'] >> 20} MiB "
          f"of {end['budget_bytes'] >> 20} MiB, waits for memory {end['waits_for_memory']}")
    for name, values in zip(("resident", "anonymous"), zip(*legs)):
        print(f"{name}, MiB, at the start and after each leg: {' '.join(f'{value:.2f}' for value in values)}")
    start, now = legs[0][0], legs[-1][0]
    assert end["connections"] == 0, end
    assert end["peak_bytes"] <= end["budget_bytes"], end
    assert now <= start * 1.05, f"resident memory grew by {now / start - 1:.1%}; the limit is 5 %"
    print("ok")
finally:
    server.send_signal(signal.SIGKILL)
    server.wait()
    shutil.rmtree(folder)
