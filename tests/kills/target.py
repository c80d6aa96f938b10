#!/usr/bin/env python3
"""A process whose memory is known: 16 MiB of anonymous memory that allows huge pages, and 8 MiB of the file
FILE. Prints "ready START END" of the anonymous memory. Reads commands on standard input: `check` compares
every byte and prints "same" or "CHANGED"; at the end of the input, the process ends with 0.

usage: target.py FILE
"""
import ctypes
import hashlib
import mmap
import random
import sys
import threading

HUGE, ANONYMOUS, OF_FILE = 2 << 20, 16 << 20, 8 << 20


def main():
    content = random.Random(1).randbytes(OF_FILE)
    with open(sys.argv[1], "wb") as file:
        file.write(content)
    with open(sys.argv[1], "rb") as file:
        of_file = mmap.mmap(file.fileno(), OF_FILE, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
    memory = mmap.mmap(-1, ANONYMOUS + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE
    memory[start:start + ANONYMOUS] = content * (ANONYMOUS // OF_FILE)
    view, expected = memoryview(memory), hashlib.sha256(content)

    def touch():
        while True:
            sum(view[start:start + HUGE:4096])

    threading.Thread(target=touch, daemon=True).start()
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + start
    print("ready", hex(first), hex(first + ANONYMOUS), flush=True)
    for _ in sys.stdin:
        parts = [view[at:at + OF_FILE] for at in range(start, start + ANONYMOUS, OF_FILE)] + [of_file]
        same = all(hashlib.sha256(part).digest() == expected.digest() for part in parts)
        print("same" if same else "CHANGED", flush=True)


main()
