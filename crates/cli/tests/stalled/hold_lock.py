"""A process that holds the lock of its own address space until its FUSE mount is aborted.

usage: hold_lock.py lock|arguments FILE

lock: maps FILE, which is on a FUSE mount that answers reads but no writes, makes a page dirty, and maps
other memory over it. The kernel writes the page back with the lock held for writing (fuse_vma_close()).

arguments: maps FILE, whose reads are never answered, over the page of its own environment.
"""

import ctypes
import os
import sys
import threading

PAGE = 4096
READ, WRITE = 1, 2
SHARED, PRIVATE, FIXED, ANONYMOUS = 1, 2, 16, 32
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]


def mmap(at, length, flags, fd):
    address = libc.mmap(at, length, READ | WRITE, flags, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        sys.exit(f"mmap: {os.strerror(ctypes.get_errno())}")
    return address


def hold_lock(path):
    memory = mmap(None, 16 << 20, PRIVATE | ANONYMOUS, -1)
    ctypes.memset(memory, 1, 16 << 20)
    at = mmap(None, PAGE, SHARED, os.open(path, os.O_RDWR))
    ctypes.memset(at, 1, 1)
    print("ready", flush=True)
    mmap(at, PAGE, PRIVATE | ANONYMOUS | FIXED, -1)


def hide_arguments(path):
    fields = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
    start, end = int(fields[50 - 3]), int(fields[51 - 3])
    fd = os.open(path, os.O_RDONLY)
    first = -(-start // PAGE) * PAGE
    length = end // PAGE * PAGE - first
    address = libc.mmap(first, length, READ, PRIVATE | FIXED, fd, 0)
    assert address == first, os.strerror(ctypes.get_errno())
    print("ready", flush=True)
    threading.Event().wait()


{"lock": hold_lock, "arguments": hide_arguments}[sys.argv[1]](sys.argv[2])
