"""Memory that huge pages waste: 2 GiB of rows of 32 KiB, of which the first 4 KiB are used, and of these rows a sixteenth
again and again. Does a fixed amount of work and says TEST PASSED."""

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
