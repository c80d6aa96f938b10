#!/usr/bin/env python3
"""Simulates an LRU cache with the accesses of random_pages, and compares its misses with the advice. lru_curve.sh calls
it."""

import argparse
import collections
import json
import math
import pathlib
import sys

PAGE = 4096
AIM_POINTS = 2.0
SCATTER = 2654435761
MASK = (1 << 64) - 1


def accesses(pages, pareto, seed=42):
    """The pages that random_pages touches, in order: first all of them, then those drawn."""
    yield from range(pages)
    state, exponent = seed, math.log(pareto) / math.log(1 - pareto)
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        value = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & MASK
        value ^= value >> 31
        share = math.pow((value >> 11) * 2.0**-53, exponent)
        yield int(share * pages) * SCATTER % pages


class OwnLru:
    """An LRU cache; get() returns whether the page was in it."""

    def __init__(self, size):
        self.size, self.pages = size, collections.OrderedDict()

    def get(self, page):
        found = page in self.pages
        self.pages[page] = None
        self.pages.move_to_end(page)
        if len(self.pages) > self.size:
            self.pages.popitem(last=False)
        return found


def simulator():
    """The name of the simulator, and a function that makes a cache of so many pages."""
    try:
        import libcachesim  # pylint: disable=import-outside-toplevel
    except ImportError:
        return "own lines", OwnLru

    class Lru:
        """libCacheSim's LRU with objects of size 1."""

        def __init__(self, size):
            self.cache = libcachesim.LRU(cache_size=size)

        def get(self, page):
            request = libcachesim.Request()
            request.obj_id, request.obj_size = page, 1
            return self.cache.get(request)

    return f"libCacheSim {libcachesim.__version__}", Lru


def miss_ratio(make, size, options):
    """Share of accesses after the warm-up that miss in a cache of `size` pages."""
    cache, misses = make(size), 0
    first = options.pages + int(options.warm * options.rate)
    end = options.pages + int(options.seconds * options.rate)
    for nth, page in enumerate(accesses(options.pages, options.pareto)):
        if nth >= end:
            break
        found = cache.get(page)
        misses += nth >= first and not found
    return misses / (end - first)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--advice", required=True)
    for flag in ("pages", "rate"):
        parser.add_argument(f"--{flag}", type=int, required=True)
    for flag in ("pareto", "warm", "seconds"):
        parser.add_argument(f"--{flag}", type=float, required=True)
    options = parser.parse_args()
    advice = json.loads(pathlib.Path(options.advice).read_text(encoding="utf-8"))
    name, make = simulator()
    print(f"{options.pages} pages, {options.rate} accesses a second, LRU by {name}")
    print(f"{'idle for':>9} {'pages kept':>11} {'misses: advice':>15} {'LRU':>8} {'points':>8}")
    worst, rows = 0.0, [row for row in advice["table"] if row["known"]]
    for row in rows:
        kept = options.pages - (row["leaves_bytes"] - row["leaves_file_bytes"]) // PAGE
        told = row["refault_bytes_per_min"]["mid"] / PAGE / (options.rate * 60)
        real = miss_ratio(make, kept, options)
        worst = max(worst, abs(told - real) * 100)
        print(f"{row['min_age_s']:>8}s {kept:>11} {told:>15.2%} {real:>8.2%} {(told - real) * 100:>+8.2f}")
    if not rows:
        sys.exit("lru_curve: the advice knows no age: watch for longer")
    print(f"largest difference: {worst:.2f} points, aim {AIM_POINTS}")
    sys.exit(worst > AIM_POINTS)


if __name__ == "__main__":
    main()
