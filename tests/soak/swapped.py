"""How much of each part of a workload is in swap, by the kernel's own account (/proc/PID/pagemap).

    swapped.py PID TRUTH SECONDS...

Parts are told apart by when they were last touched, which the workload's truth says: first what was last touched
before the first of SECONDS (since the workload began), then before the second, and so on; last what was touched
later. Prints for each "MiB in swap of MiB".
"""

import json
import struct
import sys

PAGE = 4096
IN_SWAP = 1 << 62


def last_touched(path):
    """Page number -> seconds since the beginning at which it was last touched."""
    touched, begin = {}, None
    with open(path) as lines:
        for line in lines:
            try:
                span = json.loads(line)
            except json.JSONDecodeError:
                break  # it is still being written
            begin = span["start_ns"] if begin is None else begin
            for first, end in span["ranges"]:
                pages = range(first // PAGE, (end + PAGE - 1) // PAGE)
                touched.update(dict.fromkeys(pages, (span["end_ns"] - begin) / 1e9))
    return touched


def main():
    pid, truth, borders = sys.argv[1], sys.argv[2], [float(word) for word in sys.argv[3:]]
    parts = [[0, 0] for _ in range(len(borders) + 1)]
    with open(f"/proc/{pid}/pagemap", "rb") as pagemap:
        for page, seconds in last_touched(truth).items():
            part = parts[sum(seconds >= border for border in borders)]
            pagemap.seek(page * 8)
            (entry,) = struct.unpack("Q", pagemap.read(8))
            part[0] += bool(entry & IN_SWAP)
            part[1] += 1
    print("\n".join(f"{swapped >> 8} {pages >> 8}" for swapped, pages in parts))


if __name__ == "__main__":
    main()
