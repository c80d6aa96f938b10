"""Resident memory of a running thermo by what it is, and the time of --version. Usage: footprint.py PID THERMO"""
import os
import statistics
import subprocess
import sys
import time

TEXT = "the binary's own text"


def mappings(pid):
    """(permissions, name, resident kB) of each mapping."""
    head = None
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(":"):
                head = (words[1], words[5] if len(words) > 5 else "")
            elif words[0] == "Rss:":
                yield (*head, int(words[1]))


def main():
    pid, thermo = sys.argv[1:]
    name = os.path.realpath(f"/proc/{pid}/exe")
    parts = {TEXT: 0, "the rest of the binary": 0, "libraries": 0, "shared with BPF": 0, "own": 0}
    for perms, where, kib in mappings(pid):
        if where == name:
            part = TEXT if "x" in perms else "the rest of the binary"
        elif "bpf" in where:
            part = "shared with BPF"
        elif where.startswith("/"):
            part = "libraries"
        else:
            part = "own"
        parts[part] += kib
    print("resident memory of thermo record, 1000 regions, after 20 s")
    for part, kib in parts.items():
        print(f"  {part:<24} {kib / 1024:8.2f} MiB")
    total = sum(parts.values())
    print(f"  {'all':<24} {total / 1024:8.2f} MiB, above its own text {(total - parts[TEXT]) / 1024:.2f} MiB (aim: 8)")
    took = []
    for _ in range(51):
        began = time.monotonic()
        subprocess.run([thermo, "--version"], stdout=subprocess.DEVNULL, check=True)
        took.append(1000 * (time.monotonic() - began))
    took.sort()
    print(f"thermo --version: median {statistics.median(took):.2f} ms, {took[12]:.2f}..{took[38]:.2f} between the quartiles (aim: 10; a fork and exec are in it)")


main()
