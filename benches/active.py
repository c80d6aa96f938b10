"""Prints the share of a process's resident pages in given ranges that are on an active list, in percent.

Usage: active.py PID START-END...
"""
import struct
import sys

ACTIVE = 1 << 6
PRESENT = 1 << 63
pid, ranges = sys.argv[1], [[int(text, 16) for text in argument.split("-")] for argument in sys.argv[2:]]
active = resident = 0
with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap, open("/proc/kpageflags", "rb", buffering=0) as flags:
    for start, end in ranges:
        pagemap.seek(start // 4096 * 8)
        data = pagemap.read((end - start) // 4096 * 8)
        for (entry,) in struct.iter_unpack("Q", data):
            if entry & PRESENT:
                flags.seek((entry & ((1 << 55) - 1)) * 8)
                resident += 1
                active += bool(struct.unpack("Q", flags.read(8))[0] & ACTIVE)
print(f"{100 * active / max(1, resident):.1f}")
