"""Memory that huge pages make faster, and memory that they waste. Each does a fixed amount of work and says TEST PASSED.

  dict   a table of 4 million numbers that is asked at random: every access is to another page
  rows   2 GiB of rows of 32 KiB, of which the first 4 KiB are used, and of these a sixteenth again and again
  table  a sparse table of 2 GiB, one page in ten written, of which an eighth is asked again and again
"""

import mmap
import random
import sys


def ask_dict(rounds):
    some = random.Random(1)
    table = {n * 7919: n for n in range(4_000_000)}
    total = 0
    for _ in range(rounds):
        total += sum(table[some.randrange(4_000_000) * 7919] & 1 for _ in range(1_000_000))
    return 0.49 < total / (rounds * 1_000_000) < 0.51


def sweep_rows(rounds):
    row, count = 32 << 10, 64 << 10
    grid = mmap.mmap(-1, row * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page = bytes(range(1, 256)) * 16 + bytes(16)
    for n in range(count):
        grid[n * row : n * row + 4096] = page
    total = 0
    for _ in range(rounds):
        total += sum(grid[n * row + 5] for n in range(count // 16))
    return total == rounds * (count // 16) * 6


def ask_table(rounds):
    some, size = random.Random(1), 2 << 30
    table = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    places = sorted(some.randrange(size) for _ in range(size // 4096 // 10))
    for at in places:
        table[at] = 1
    hot = places[: len(places) // 8]
    some.shuffle(hot)
    total = 0
    for _ in range(rounds):
        total += sum(table[at] for at in hot)
    return total == rounds * len(hot)


works = {"dict": (ask_dict, 10), "rows": (sweep_rows, 12000), "table": (ask_table, 8000)}
work, rounds = works[sys.argv[1]]
print("TEST PASSED" if work(rounds) else "TEST FAILED")
