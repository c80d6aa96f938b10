#!/usr/bin/env python3
"""A server that is killed while clients write: every write that was acknowledged with FUA, or before an acknowledged
flush, is in the file; clients that connect to the next server go on.

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
            assert time.monotonic() < deadline and server.poll() is None, "the server does not come up"
            time.sleep(0.02)


def block(number, version):
    return (b"%16d%16d" % (number, version)) * (BLOCK // 32)


with open(disk, "wb") as file:
    file.truncate(BLOCK * BLOCKS)
version, lasting, newest = 0, {}, {}
for turn in range(ROUNDS):
    server, handle = start()
    unflushed, until = {}, random.randint(50, 400)
    flying = []
    try:
        for step in range(100000):
            version += 1
            number = random.randrange(BLOCKS)
            if any(number == one[1] for one in flying):
                continue
            newest.setdefault(number, set()).add(version)
            fua = random.random() < 0.3
            cookie = handle.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(block(number, version))), number * BLOCK,
                                       flags=nbd.CMD_FLAG_FUA if fua else 0)
            flying.append((cookie, number, version, fua))
            while len(flying) >= 8:
                if step >= until and server.poll() is None:
                    os.kill(server.pid, signal.SIGKILL)
                handle.poll(-1)
                for one in list(flying):
                    if handle.aio_command_completed(one[0]):
                        flying.remove(one)
                        (lasting if one[3] else unflushed)[one[1]] = one[2]
            if random.random() < 0.02:
                before = dict(unflushed)
                handle.flush()
                for number, done in before.items():
                    lasting[number] = max(done, lasting.get(number, 0))
    except nbd.Error:
        pass
    server.wait()
    with open(disk, "rb") as file:
        for number, least in lasting.items():
            file.seek(number * BLOCK)
            found = file.read(BLOCK)
            versions = [one for one in newest[number] if one >= least]
            # A write that was not acknowledged may be there in part; then the rest is an older one of ours.
            parts = {int(found[at + 16:at + 32]) for at in range(0, BLOCK, 32)}
            assert parts <= set(versions), f"block {number}: version {least} was acknowledged, {parts} is there"
    os.path.exists(socket) and print(f"round {turn + 1}: {len(lasting)} blocks that had to last did")
print("nothing was lost")
