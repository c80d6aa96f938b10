"""Memory with a known hot part: a left half of 128 MiB, a right half of 128 MiB, and a sparse part of 64 MiB
of huge pages, in which one page in 512 was ever written. Reads commands on standard input: left, right
(the half to touch from now on), check (compare every byte), quit. Prints "ready PID LEFT RIGHT SPARSE END"
and a line for each command."""

import ctypes
import hashlib
import mmap
import os
import random
import sys
import threading

HUGE, HALF, SPARSE = 2 << 20, 128 << 20, 64 << 20
MADV_HUGEPAGE, MADV_NOHUGEPAGE = 14, 15
libc = ctypes.CDLL(None, use_errno=True)


def address(buffer):
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def main():
    memory = mmap.mmap(-1, 2 * HALF + SPARSE + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    skip = -address(memory) % HUGE
    left, right, sparse = skip, skip + HALF, skip + 2 * HALF
    # In every mode of the machine: the halves start with small pages, the sparse part with huge pages.
    libc.madvise(ctypes.c_void_p(address(memory) + left), ctypes.c_size_t(2 * HALF), MADV_NOHUGEPAGE)
    content = random.Random(1).randbytes(1 << 20)
    for at in range(left, sparse, 1 << 20):
        memory[at : at + (1 << 20)] = content
        memory[at : at + 8] = at.to_bytes(8, "little")
    libc.madvise(ctypes.c_void_p(address(memory) + sparse), ctypes.c_size_t(SPARSE), MADV_HUGEPAGE)
    for at in range(sparse, sparse + SPARSE, HUGE):
        memory[at : at + 4096] = bytes([at >> 21 & 255]) * 4096
    # Clear the flag set above, which would prevent a collapse.
    libc.madvise(ctypes.c_void_p(address(memory) + left), ctypes.c_size_t(2 * HALF), MADV_HUGEPAGE)
    digest = hashlib.sha256(memoryview(memory)).hexdigest()
    hot = [left]
    view = memoryview(memory)

    def touch():
        while True:
            start = hot[0]
            sum(view[start : start + HALF : 4096])

    threading.Thread(target=touch, daemon=True).start()
    addresses = [hex(address(memory) + at) for at in (left, right, sparse, sparse + SPARSE)]
    print("ready", os.getpid(), *addresses, flush=True)
    for word in sys.stdin:
        word = word.strip()
        if word in ("left", "right"):
            hot[0] = left if word == "left" else right
        elif word == "check":
            same = hashlib.sha256(view).hexdigest() == digest
            print("same" if same else "CHANGED", flush=True)
            continue
        elif word == "quit":
            os._exit(0)
        print(word, flush=True)


main()
