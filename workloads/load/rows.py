"""Memory that huge pages waste: 2 GiB of rows of 32 KiB with only the first 4 KiB of each row in use. A
sixteenth of the rows is accessed all the time. Does a fixed amount of work and prints TEST PASSED."""

import mmap

ROW, COUNT, HOT, ROUNDS = 32 << 10, 64 << 10, 4 << 10, 18000


def main():
    grid = mmap.mmap(-1, ROW * COUNT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page = bytes(range(1, 256)) * 16 + bytes(16)
    for n in range(COUNT):
        grid[n * ROW : n * ROW + 4096] = page
    total = sum(sum(grid[n * ROW + 5] for n in range(HOT)) for _ in range(ROUNDS))
    print("TEST PASSED" if total == ROUNDS * HOT * 6 else "TEST FAILED")


main()
