"""A relaxation on a grid in numpy, in blocks of rows, as in solvers that work most where values change most.

`--pattern levels`: a block of level n is relaxed in every 2^n-th iteration (multirate time stepping): few
blocks are hot, more are warm, most are hardly ever touched. `--pattern window`: the blocks of a window are
relaxed cyclically, which is the worst case for an LRU list. Every step preserves the sum over a block. The
sums are checked at the end for the blocks of the last iterations only, because a check of all blocks would
swap all of them in.
"""

import argparse
import time

import numpy


STEPS = 16  # steps of a block at once, while it is in the processor's cache


def blocks_of_sweep(pattern, blocks, sweep):
    """The blocks that this iteration relaxes."""
    if pattern == "window":
        return range(blocks * 3 // 8)
    # The first eighth has level 0. The level grows by three with each further eighth.
    level = lambda block: 3 * (block * 8 // blocks)
    return [block for block in range(blocks) if sweep % (1 << level(block)) == 0]


def relax(block):
    """Moves each cell several times towards its neighbours in the row. The sum of the row stays the same."""
    for _ in range(STEPS):
        flow = numpy.diff(block, axis=1) * 0.125
        block[:, :-1] += flow
        block[:, 1:] -= flow


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, required=True, help="size of the grid")
    parser.add_argument("--sweeps", type=int, required=True)
    parser.add_argument("--pattern", choices=("levels", "window"), required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    blocks = options.mib  # of 1 MiB: 128 rows of 1024 numbers
    grid = numpy.empty((blocks, 128, 1024))
    random = numpy.random.default_rng(options.seed)
    rows = random.integers(0, 64, (512, 1024)).astype(float)
    for block in range(blocks):
        grid[block] = rows[random.integers(0, len(rows), 128)]
    before = [float(block.sum()) for block in grid]
    print("ready", flush=True)

    times = []
    for sweep in range(options.sweeps):
        begin = time.perf_counter()
        for block in blocks_of_sweep(options.pattern, blocks, sweep):
            relax(grid[block])
        times.append(time.perf_counter() - begin)
    last = {n for sweep in range(max(0, options.sweeps - 8), options.sweeps)
            for n in blocks_of_sweep(options.pattern, blocks, sweep)}
    wrong = [n for n in last if abs(float(grid[n].sum()) - before[n]) > 1e-6 * before[n]]
    times.sort()
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))] * 1000
    if not wrong:
        print(f"TEST PASSED p50_ms={at(0.5):.3f} p99_ms={at(0.99):.3f}")


if __name__ == "__main__":
    main()
