"""Prints the resident memory of a running thermo by kind, and the time of --version.

Usage: footprint.py PID THERMO"""
import os
import statistics
import subprocess
import sys
import time

TEXT = "text of the binary"
BINARY = "rest of the binary"


def mappings(pid):
    """Yields permissions, path and resident KiB of each mapping."""
    header = None
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(":"):
                header = (words[1], words[5] if len(words) > 5 else "")
            elif words[0] == "Rss:":
                yield (*header, int(words[1]))


def main():
    pid, thermo = sys.argv[1:]
    binary = os.path.realpath(f"/proc/{pid}/exe")
    parts = {TEXT: 0, BINARY: 0, "libraries": 0, "shared with BPF": 0, "heap and stack": 0}
    for permissions, path, kib in mappings(pid):
        if path == binary:
            part = TEXT if "x" in permissions else BINARY
        elif "bpf" in path:
            part = "shared with BPF"
        elif path.startswith("/"):
            part = "libraries"
        else:
            part = "heap and stack"
        parts[part] += kib
    print("resident memory of thermo record, 1000 regions, after 20 s")
    for part, kib in parts.items():
        print(f"  {part:<24} {kib / 1024:8.2f} MiB")
    total = sum(parts.values())
    print(f"  {'total':<24} {total / 1024:8.2f} MiB, without text {(total - parts[TEXT]) / 1024:.2f} MiB (goal: 8)")
    times_ms = []
    for _ in range(51):
        began = time.monotonic()
        subprocess.run([thermo, "--version"], stdout=subprocess.DEVNULL, check=True)
        times_ms.append(1000 * (time.monotonic() - began))
    times_ms.sort()
    print(
        f"thermo --version: median {statistics.median(times_ms):.2f} ms, quartiles {times_ms[12]:.2f}..{times_ms[38]:.2f} ms "
        "(goal: 10 ms, including fork and exec)"
    )


main()
