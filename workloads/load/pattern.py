"""Which record is read next: the access patterns of the loads.

`recent`: nearly all reads go to the newest tenth of the records, the newest of them most; few go anywhere.
`moving`: the same tenth-wide hot spot, which steps on to the next tenth several times in a run.
`ranked`: what was written first is read most, and popularity fades by half for each sixteenth of the records: hot,
          warm and cold without a border. First in, first out is just the wrong order.
`drifting`: the same, and what is read most moves on by a tenth of the records in a run.
`zipf`:   popularity has nothing to do with age, so hot records lie scattered among cold ones: the hard case for
          anything that works on pages.
"""

import random

HOT_SHARE = 10  # one tenth is hot
ANYWHERE = 0.002  # reads that go anywhere
FADING = 11.0  # ln(2) * 16: how fast popularity fades over all records
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
            # Rank by a power law, rank to record by a fixed scatter (a multiplication that mixes them well).
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
    """Times of requests, told as percentiles."""

    def __init__(self):
        self.seconds = []

    def add(self, seconds):
        self.seconds.append(seconds)

    def told(self):
        ordered = sorted(self.seconds)
        at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000
        return f"p50_ms={at(0.5):.4f} p99_ms={at(0.99):.4f} p999_ms={at(0.999):.4f}"
