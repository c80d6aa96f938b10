#!/usr/bin/env python3
"""Devices come and go at random, each checks what it reads, while memory is declared short at random moments. See nbd.sh.

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


def words(device):
    return struct.pack(">Q", device) * 512  # 4 KiB that tell the device


exports = []
for device in range(DEVICES):
    exports += ["--export", f"d{device}=mem:,size={SIZE}"]
server = subprocess.Popen([thermo_nbd, "--unix", path, "--control", control, "--budget", "68M", "--stall", "120"] + exports,
                          stderr=subprocess.DEVNULL)


def resident():
    """MiB, all of it and what is not of files."""
    with open(f"/proc/{server.pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))


def status():
    return json.loads(subprocess.run([thermo_nbd, "status", "--control", control, "--json"], capture_output=True, check=True).stdout)


def squeeze():
    subprocess.run([thermo_nbd, "squeeze", "--control", control], stdout=subprocess.DEVNULL, check=True)


class Device:
    """One attachment. All answers have to come, each with its cookie and with the bytes of this device."""

    def __init__(self, number):
        self.number, self.cookie = number, 0
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(120)
        self.stream.connect(path)
        self.take(18)
        name = b"d%d" % number
        self.stream.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, len(name)) + name)
        size, = struct.unpack(">Q", self.take(10)[:8])
        assert size == SIZE

    def take(self, count):
        parts = b""
        while len(parts) < count:
            part = self.stream.recv(count - len(parts))
            assert part, "the server hung up"
            parts += part
        return parts

    def ask(self, command, offset, length, data=b""):
        self.cookie += 1
        self.stream.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, self.cookie, offset, length) + data)
        return self.cookie

    def burst(self):
        """Writes, then reads back, several at once; answers may come in any order."""
        blocks = random.sample(range(SIZE >> 16), random.randint(1, 16))
        length = random.choice([4096, 16384, 65536])
        waiting = {self.ask(1, block << 16, length, words(self.number) * (length >> 12)) for block in blocks}
        self.answers(waiting, 0)
        self.answers({self.ask(0, block << 16, length) for block in blocks}, length)
        if random.random() < 0.2:
            self.answers({self.ask(random.choice([3, 4]), 0, 0)}, 0)

    def answers(self, waiting, length):
        while waiting:
            magic, error, cookie = struct.unpack(">IIQ", self.take(16))
            assert magic == 0x67446698 and error == 0, (hex(magic), error)
            waiting.remove(cookie)
            if length:
                assert self.take(length) == words(self.number) * (length >> 12), "bytes of another device"

    def detach(self):
        if random.random() < 0.5:
            self.ask(2, 0, 0)  # politely; otherwise it is cut off
        self.stream.close()


def run(duration):
    """Guests at work for so long, and pressure at random moments."""
    over.clear()
    threads = [threading.Thread(target=guest, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + duration
    while time.monotonic() < end and not over.is_set():
        time.sleep(random.random() * 0.2)
        squeeze()
    over.set()
    for thread in threads:
        thread.join(180)
    assert not any(thread.is_alive() for thread in threads), f"a guest still waits: {status()}"
    assert not failures, failures


def settled():
    """What is resident when nobody is attached and nothing is free."""
    deadline = time.monotonic() + 60
    while status()["connections"] and time.monotonic() < deadline:
        time.sleep(0.1)
    squeeze()
    time.sleep(0.2)
    return resident()


failures, bursts, attached = [], [0], [0]
over = threading.Event()


def guest():
    try:
        while not over.is_set():
            device = Device(random.randrange(DEVICES))
            attached[0] += 1
            for _ in range(random.randint(1, 20)):
                device.burst()
                bursts[0] += 1
            device.detach()
    except Exception as error:  # every failure is the result of the soak
        failures.append(repr(error))
        over.set()


try:
    deadline = time.monotonic() + 60
    while not os.path.exists(control):
        assert server.poll() is None and time.monotonic() < deadline, "the server does not come up"
        time.sleep(0.05)
    # First until each worker has met most devices and keeps what it keeps for good; then the start is measured. A leak
    # grows from leg to leg, what settles does not.
    run(max(seconds / 4, 5))
    legs = [settled()]
    for _ in range(LEGS):
        run(seconds / LEGS)
        legs.append(settled())
    told = status()
    print(f"{seconds:.0f} s: {attached[0]} attached, {bursts[0]} bursts, {told['requests']} requests, peak {told['peak_bytes'] >> 20} MiB "
          f"of {told['budget_bytes'] >> 20} MiB, waits for memory {told['waits_for_memory']}")
    for name, values in zip(("resident", "not of files"), zip(*legs)):
        print(f"{name}, MiB, at the start and after each leg: {' '.join(f'{value:.2f}' for value in values)}")
    start, now = legs[0][0], legs[-1][0]
    assert told["connections"] == 0, told
    assert told["peak_bytes"] <= told["budget_bytes"], told
    assert now <= start * 1.05, f"it holds {now / start - 1:.1%} more than at the start"
    print("ok")
finally:
    server.send_signal(signal.SIGKILL)
    server.wait()
    shutil.rmtree(folder)
