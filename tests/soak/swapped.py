"""Prints how much of each part of a workload is in swap, according to /proc/PID/pagemap.

    swapped.py PID TRUTH SECONDS...

A page belongs to a part by the time of its last access in the workload's truth: the first part was last
touched before the first of SECONDS (since the start of the workload), the second part before the second, and
so on. The last part was touched later. Prints a line for each part: MiB in swap, then MiB of the part.
"""

import json
import struct
import sys

PAGE = 4096
IN_SWAP = 1 << 62


def last_touched(path):
    """Maps page numbers to the time of the last access, in seconds since the start."""
    touched, begin = {}, None
    with open(path) as lines:
        for line in lines:
            try:
                span = json.loads(line)
            except json.JSONDecodeError:
                break  # an incomplete last line
            begin = span["start_ns"] if begin is None else begin
            for first, end in span["ranges"]:
                pages = range(first // PAGE, (end + PAGE - 1) // PAGE)
                touched.update(dict.fromkeys(pages, (span["end_ns"] - begin) / 1e9))
    return touched


def main():
    pid, truth, limits = sys.argv[1], sys.argv[2], [float(word) for word in sys.argv[3:]]
    parts = [[0, 0] for _ in range(len(limits) + 1)]
    with open(f"/proc/{pid}/pagemap", "rb") as pagemap:
        for page, seconds in last_touched(truth).items():
            part = parts[sum(seconds >= limit for limit in limits)]
            pagemap.seek(page * 8)
            (entry,) = struct.unpack("Q", pagemap.read(8))
            part[0] += bool(entry & IN_SWAP)
            part[1] += 1
    print("\n".join(f"{swapped >> 8} {pages >> 8}" for swapped, pages in parts))


if __name__ == "__main__":
    main()
