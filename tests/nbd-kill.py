#!/usr/bin/env python3
"""Kills a server while a client writes. Every write that was acknowledged with FUA, or before an acknowledged
flush, must be in the file. Clients can connect to the next server.

usage: nbd-kill.py THERMO_NBD FOLDER
"""
import os
import random
import signal
import subprocess
import sys
import time

import nbd

BLOCK, BLOCKS, ROUNDS = 16384, 2048, 5
thermo_nbd, folder = sys.argv[1:]
disk, socket = f"{folder}/kill.img", f"{folder}/kill.sock"
random.seed(8)


def start():
    server = subprocess.Popen([thermo_nbd, "--unix", socket, "--export", f"disk={disk}"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while True:
        try:
            handle = nbd.NBD()
            handle.connect_unix(socket)
            return server, handle
        except nbd.Error:
            assert time.monotonic() < deadline and server.poll() is None, "the server did not start within 60 s"
            time.sleep(0.02)


def block(number, version):
    return (b"%16d%16d" % (number, version)) * (BLOCK // 32)


with open(disk, "wb") as file:
    file.truncate(BLOCK * BLOCKS)
# durable: the newest version of each block that must be in the file. written: all versions ever written.
version, durable, written = 0, {}, {}
for turn in range(ROUNDS):
    server, handle = start()
    unflushed, kill_step = {}, random.randint(50, 400)
    in_flight = []
    try:
        for step in range(100000):
            version += 1
            number = random.randrange(BLOCKS)
            if any(number == request[1] for request in in_flight):
                continue
            written.setdefault(number, set()).add(version)
            fua = random.random() < 0.3
            cookie = handle.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(block(number, version))), number * BLOCK,
                                       flags=nbd.CMD_FLAG_FUA if fua else 0)
            in_flight.append((cookie, number, version, fua))
            while len(in_flight) >= 8:
                if step >= kill_step and server.poll() is None:
                    os.kill(server.pid, signal.SIGKILL)
                handle.poll(-1)
                for request in list(in_flight):
                    if handle.aio_command_completed(request[0]):
                        in_flight.remove(request)
                        (durable if request[3] else unflushed)[request[1]] = request[2]
            if random.random() < 0.02:
                before = dict(unflushed)
                handle.flush()
                for number, done in before.items():
                    durable[number] = max(done, durable.get(number, 0))
    except nbd.Error:
        pass
    server.wait()
    with open(disk, "rb") as file:
        for number, acknowledged in durable.items():
            file.seek(number * BLOCK)
            data = file.read(BLOCK)
            valid = {version for version in written[number] if version >= acknowledged}
            # A write that was not acknowledged may be in the file in part, next to parts of older versions.
            found = {int(data[at + 16:at + 32]) for at in range(0, BLOCK, 32)}
            assert found <= valid, f"block {number}: version {acknowledged} was acknowledged, the file has {found}"
    os.path.exists(socket) and print(f"round {turn + 1}: all {len(durable)} durable blocks are in the file")
print("no acknowledged write was lost")
