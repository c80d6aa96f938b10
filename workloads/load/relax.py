"""A relaxation on a grid in numpy, in blocks of rows, as solvers do it that work most where most changes.

`--pattern levels`: a block of level n is relaxed in every 2^n-th sweep (multirate time stepping): few blocks are hot,
more are warm, most are hardly ever touched. `--pattern window`: the blocks of a window are relaxed one after the other
and from the first again, which is just what a list in order of last use is worst at. The sum over a block is kept by every step; it is checked at the end for the blocks of the last
sweeps, and not for all: a look at everything would bring everything back that had been swapped out.
"""

import argparse
import time

import numpy


STEPS = 16  # of a block at a time, while it is in the processor's cache


def blocks_of_sweep(pattern, blocks, sweep):
    """The blocks that this sweep relaxes."""
    if pattern == "window":
        return range(blocks * 3 // 8)
    # An eighth is of level 0, and each further eighth of the next three levels more.
    level = lambda block: 3 * (block * 8 // blocks)
    return [block for block in range(blocks) if sweep % (1 << level(block)) == 0]


def relax(block):
    """Moves each cell a little towards its neighbours in the row, whose sum stays the same, several times."""
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
