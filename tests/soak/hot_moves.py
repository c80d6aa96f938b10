"""Memory whose hot part is known: 128 MiB on the left, 128 MiB on the right, and 64 MiB of huge pages of which one page
in 512 was ever written. Obeys words on standard input: left, right (which half is touched from now on), check (every
byte), quit. Prints "ready PID LEFT RIGHT THIN END" and a line for each word."""

import ctypes
import hashlib
import mmap
import os
import random
import sys
import threading

HUGE, HALF, THIN = 2 << 20, 128 << 20, 64 << 20
libc = ctypes.CDLL(None, use_errno=True)


def place(of):
    return ctypes.addressof(ctypes.c_char.from_buffer(of))


def main():
    room = mmap.mmap(-1, 2 * HALF + THIN + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    skip = -place(room) % HUGE
    left, right, thin = skip, skip + HALF, skip + 2 * HALF
    # Whatever the mode of the machine is: these begin small, and the thin part huge.
    libc.madvise(ctypes.c_void_p(place(room) + left), ctypes.c_size_t(2 * HALF), 15)
    some = random.Random(1).randbytes(1 << 20)
    for at in range(left, thin, 1 << 20):
        room[at : at + (1 << 20)] = some
        room[at : at + 8] = at.to_bytes(8, "little")
    libc.madvise(ctypes.c_void_p(place(room) + thin), ctypes.c_size_t(THIN), 14)
    for at in range(thin, thin + THIN, HUGE):
        room[at : at + 4096] = bytes([at >> 21 & 255]) * 4096
    # No flag of its own may stand in the way of a collapse.
    libc.madvise(ctypes.c_void_p(place(room) + left), ctypes.c_size_t(2 * HALF), 14)
    total = hashlib.sha256(memoryview(room)).hexdigest()
    hot = [left]
    view = memoryview(room)

    def touch():
        while True:
            start = hot[0]
            sum(view[start : start + HALF : 4096])

    threading.Thread(target=touch, daemon=True).start()
    places = [hex(place(room) + at) for at in (left, right, thin, thin + THIN)]
    print("ready", os.getpid(), *places, flush=True)
    for word in sys.stdin:
        word = word.strip()
        if word in ("left", "right"):
            hot[0] = left if word == "left" else right
        elif word == "check":
            same = hashlib.sha256(view).hexdigest() == total
            print("same" if same else "CHANGED", flush=True)
            continue
        elif word == "quit":
            os._exit(0)
        print(word, flush=True)


main()
