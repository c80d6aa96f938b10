"""The access patterns of the loads: which record is read next.

`recent`: nearly all reads go to the newest tenth of the records, most to the newest ones. A few go to any record.
`moving`: the same, with a hot tenth that moves to the next tenth several times in a run.
`ranked`: the records written first are read most. Popularity halves with each sixteenth of the records, so there is no
          border between hot and cold. First in, first out is the worst order for reclaim.
`drifting`: the same, and the most popular records shift by a tenth of all records in a run.
`zipf`:   popularity is independent of age, so hot records are scattered among cold ones: the hard case for monitoring
          and reclaim of pages.
"""

import random

HOT_SHARE = 10  # one tenth is hot
ANYWHERE = 0.002  # share of reads of any record
FADING = 11.0  # ln(2) * 16: popularity halves with each sixteenth of the records
NAMES = ("recent", "moving", "ranked", "drifting", "zipf")


class Pattern:
    def __init__(self, name, records, reads, seed, steps=3):
        self.rng = random.Random(seed)
        self.name, self.records = name, records
        self.width = max(1, records // HOT_SHARE)
        self.reads, self.reads_per_step = max(1, reads), max(1, reads // steps)
        self.done = 0

    def next(self, count):
        """The numbers of the next `count` records to read."""
        numbers = [self._one() for _ in range(count)]
        self.done += count
        return numbers

    def _one(self):
        chance = self.rng.random
        if self.name == "zipf":
            # Draw the rank from a power law, and map ranks to records by a multiplication that scatters them.
            rank = int(self.records ** chance())
            return rank * 2654435761 % self.records
        if self.name in ("ranked", "drifting"):
            first = self.done / self.reads * self.width if self.name == "drifting" else 0
            return int(first + self.rng.expovariate(FADING) * self.records) % self.records
        if chance() < ANYWHERE:
            return int(chance() * self.records)
        back = int(self.width * chance() ** 2)
        begin = self.done // self.reads_per_step * self.width if self.name == "moving" else 0
        return (self.records - 1 - begin - back) % self.records


class Latencies:
    """Latencies of requests, printed as percentiles."""

    def __init__(self):
        self.seconds = []

    def add(self, seconds):
        self.seconds.append(seconds)

    def summary(self):
        ordered = sorted(self.seconds)
        at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000
        return f"p50_ms={at(0.5):.4f} p99_ms={at(0.99):.4f} p999_ms={at(0.999):.4f}"
