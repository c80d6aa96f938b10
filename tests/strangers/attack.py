#!/usr/bin/env python3
"""A hostile client of user nobody at one door, until its standard input ends. Prints a line "SERVED ..." for
everything that it got and must not get.

usage: attack.py KIND DOOR ADDRESS      ADDRESS: the path of a socket or folder, or HOST:PORT
"""
import ctypes
import mmap
import os
import random
import re
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

kind, door, address = sys.argv[1:]
stop = threading.Event()
WHY = b'{"verb":"why","app":"a"}\n'
NBD_OPTION = struct.pack(">I", 3) + b"IHAVEOPT"
CLIENTS, NOBODY, PR_SET_NAME = 24, 65534, 15


def served(what):
    print("SERVED", what, flush=True)


def connect():
    """A connection; None while the server does not take any."""
    try:
        if door == "nbd-tcp":
            host, port = address.split(":")
            client = socket.create_connection((host, int(port)), timeout=5)
        else:
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(5)
            client.connect(address)
        return client
    except OSError:
        time.sleep(0.01)
        return None


def nbd_request(command, offset, length, flags=0):
    return struct.pack(">IHHQQI", 0x25609513, flags, command, random.getrandbits(64), offset, length)


def opening():
    """Bytes of a client that behaves well, up to the first request."""
    return NBD_OPTION + struct.pack(">II", 1, 4) + b"disk" if door.startswith("nbd") else WHY


def ask():
    return nbd_request(0, random.randrange(256) * 4096, 4096) if door.startswith("nbd") else WHY


def flood():
    """Requests as fast as they are taken; every second client reads no answer."""
    clients = []
    for nth in range(CLIENTS):
        if client := connect():
            try:
                client.sendall(opening())
            except OSError:
                continue
            client.setblocking(False)
            clients.append((client, nth % 2 == 0))
    block = b"".join(ask() for _ in range(200))
    while not stop.is_set() and clients:
        for entry in list(clients):
            client, reads = entry
            try:
                client.send(block)
            except BlockingIOError:
                pass
            except OSError:
                clients.remove(entry)
                continue
            try:
                if reads and not client.recv(1 << 16):
                    clients.remove(entry)
            except BlockingIOError:
                pass
            except OSError:
                clients.remove(entry)


def storm():
    if client := connect():
        client.close()


def slow():
    """A byte now and then, of a request that never ends."""
    clients = [client for client in (connect() for _ in range(CLIENTS)) if client]
    while not stop.wait(0.2) and clients:
        for client in list(clients):
            try:
                client.send(b"\x00" if door.startswith("nbd") else b"{")
            except OSError:
                clients.remove(client)


def half_closed():
    clients = []
    for _ in range(CLIENTS):
        if client := connect():
            try:
                client.sendall(opening()[:-2])
                client.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            clients.append(client)
    stop.wait(1)


def oversized():
    client = connect()
    if client is None:
        return
    junk = [b"x" * (1 << 20), b"[" * 4000 + b"\n", b'{"verb":"' + b"\\u0000" * 600 + b'"}\n', os.urandom(1 << 16)]
    if door.startswith("nbd"):
        junk += [NBD_OPTION + struct.pack(">II", option, 0xffffffff) + b"y" * (1 << 16) for option in (1, 3, 6, 7, 9)]
        junk += [opening() + nbd_request(command, 0, 0xffffffff) + b"z" * (1 << 20) for command in (0, 1, 4, 6, 7)]
    try:
        client.sendall(random.choice(junk))
        client.recv(1 << 16)
    except OSError:
        pass
    client.close()


def descriptors():
    """Messages that carry files, which the server must not keep."""
    if door == "nbd-tcp" or (client := connect()) is None:
        return stop.wait(0.1)
    try:
        for _ in range(20):
            socket.send_fds(client, [opening()], [0] * 50)
    except OSError:
        pass
    client.close()


def receive(client, count):
    data = b""
    while len(data) < count and (part := client.recv(count - len(data))):
        data += part
    return data


def spoofed():
    """What a stranger must not get."""
    if door == "fs":
        return spoofed_files()
    client = connect()
    if client is None:
        return
    try:
        if door.startswith("nbd"):
            spoofed_nbd(client)
        elif door == "control":
            client.sendall(b"set budget=1G\n")
            served(f"the control socket: {client.recv(100)}")
        else:
            client.sendall(b'{"verb":"set","app":"a","state":"cached"}\n')
            answer = client.recv(1 << 16)
            if b'"ok":true' in answer:
                served(f"a change of state: {answer}")
    except OSError:
        pass
    client.close()


def spoofed_nbd(client):
    name = random.choice([b"ro", b"none", b"\x00", b"../disk", b"d" * 4096])
    receive(client, 18)
    client.sendall(NBD_OPTION + struct.pack(">II", 1, len(name)) + name)
    if len(receive(client, 10)) < 10:
        return
    if name != b"ro":
        return served(f"an export of the name {name}")
    command, offset, length = random.choice([(1, 0, 4096), (4, 0, 4096), (6, 0, 4096), (0, 1 << 40, 4096), (0, (1 << 20) - 1, 4096)])
    client.sendall(nbd_request(command, offset, length) + (b"s" * length if command == 1 else b""))
    answer = receive(client, 16)
    if len(answer) == 16 and struct.unpack(">IIQ", answer)[1] == 0:
        served(f"command {command} at {offset} of a read-only export")


def spoofed_files():
    # Names of folders are for everybody, as those of the kernel's DAMON.
    for attempt in (lambda: open(f"{address}/admin/kdamonds/nr_kdamonds").read(),
                    lambda: open(f"{address}/admin/kdamonds/nr_kdamonds", "w").write("1"), lambda: os.mkdir(f"{address}/x")):
        try:
            served(f"control files: {attempt()}")
        except PermissionError:
            pass


def http(path, source="127.0.0.1"):
    """A connection to the agent that has asked for `path`; None if there is no place."""
    host, port = address.split(":")
    try:
        client = socket.create_connection((host, int(port)), timeout=5, source_address=(source, 0))
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return client
    except OSError:
        return None


def begin_of_answer(client):
    try:
        return client.recv(12).endswith(b"200")
    except OSError:
        return False


def addresses():
    """Each connection from another address of the loopback interface."""
    begin, answered, nth = time.monotonic(), 0, 0
    while not stop.is_set():
        nth += 1
        if client := http(random.choice(["/metrics", "/api/v1/status", "/api/v1/explain?pid=1"]), f"127.0.{nth // 250 % 250}.{nth % 250 + 1}"):
            answered += begin_of_answer(client)
            client.close()
    # All programs of this machine together may make 200 at once and 50 a second; a second for rounding.
    if answered > 250 + 50 * (time.monotonic() - begin):
        served(f"{answered} requests in {time.monotonic() - begin:.0f} s")


def slow_answers():
    """Connections that take a little of the longest answers now and then."""
    clients = []
    while not stop.wait(0.1):
        path = random.choice(["/api/v1/stream", "/api/v1/targets", "/metrics", "/api/v1/decisions", "/api/v1/ledger"])
        if (client := http(path, f"127.1.0.{random.randrange(1, 250)}")) and begin_of_answer(client):
            client.setblocking(False)
            clients.append(client)
        for client in list(clients):
            try:
                if not client.recv(512):
                    clients.remove(client)
            except BlockingIOError:
                pass
            except OSError:
                clients.remove(client)


def held():
    """As many connections as there are, each from another address of the loopback interface."""
    clients = [http("/api/v1/stream", f"127.2.0.{nth}") for nth in range(1, 65)]
    answered = [client for client in clients if client and begin_of_answer(client)]
    if len(answered) > 32:
        served(f"{len(answered)} connections")
    stop.wait(1)
    for client in filter(None, clients):
        client.close()


def peeks():
    """What /proc refuses to this user."""
    pid = os.getppid()
    for path in (f"/api/v1/explain?pid={pid}", "/api/v1/heatmap?target=t0&columns=2", "/api/v1/heatmap?target=t1&columns=2"):
        body = b""
        if client := http(path):
            try:
                while part := client.recv(1 << 16):
                    body += part
            except OSError:
                pass
            client.close()
        if b"/python" in body or b"/sleep" in body or re.search(rb'"0x[0-9a-f]{9,}"', body):
            served(f"{path}: {body[-300:]}")
    stop.wait(0.5)


def mappings():
    """A target with as many mappings as the kernel allows, of a file with a long path."""
    folder = tempfile.mkdtemp(prefix="thermo-stranger-")
    try:
        for _ in range(15):
            folder = f"{folder}/{'x' * 240}"
            os.mkdir(folder)
        with open(f"{folder}/{'y' * 100}", "w+b") as file:
            file.truncate(4096)
            libc = ctypes.CDLL(None)
            for nth in range(65_000):
                # Neighbours of different kinds stay mappings of their own.
                protection = mmap.PROT_READ | (nth % 2 * mmap.PROT_WRITE)
                if stop.is_set() or libc.mmap(None, ctypes.c_size_t(4096), protection, mmap.MAP_SHARED, file.fileno(), ctypes.c_long(0)) == -1:
                    break
            stop.wait()
    finally:
        shutil.rmtree(f"{tempfile.gettempdir()}/{os.path.relpath(folder, tempfile.gettempdir()).split('/')[0]}", ignore_errors=True)


def forks():
    """Targets that live for a moment, each under a name of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(100):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_NAME, f"{{exe}}{random.randrange(10**9)}".encode())
            time.sleep(0.5)
            os._exit(0)
        if stop.wait(0.01):
            return


KINDS = {function.__name__: function for function in (flood, storm, slow, half_closed, oversized, descriptors, spoofed, addresses, held, slow_answers, peeks, mappings, forks)}


def become_nobody():
    """Started as root: the interpreter may be in a folder that others cannot read."""
    "x".encode("idna")  # loads what the module socket needs later
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def main():
    become_nobody()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    print("ready", flush=True)
    while not stop.is_set():
        KINDS[kind]()
    print("end", flush=True)


main()
