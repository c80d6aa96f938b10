"""Realistic values: records of words. Each page compresses about 2:1. The same seed gives the same values.

Random bytes do not compress and constant bytes compress to nothing, so both would give unrealistic savings
with compressed swap. As a program, it writes such records, one per line.
"""

import argparse
import random
import string
import sys


def vocabulary(rng, words=1000):
    letters = string.ascii_lowercase
    return ["".join(rng.choices(letters, k=rng.randint(5, 12))) for _ in range(words)]


HEAD = (
    b'{"id": %d, "kind": "record", "status": "active", "created": "2020-03-30T10:00:00Z", '
    b'"owner": "example", "tags": ["first", "second"], "text": "'
)


class Values:
    """Records of `size` bytes, cut from a long text, so that creating a record is cheap."""

    def __init__(self, size, seed, text_bytes=8 << 20):
        self.rng = random.Random(seed)
        words = vocabulary(self.rng)
        # Word frequencies follow a power law, as in natural language.
        weights = [1 / (rank + 1) for rank in range(len(words))]
        text = " ".join(self.rng.choices(words, weights, k=text_bytes // 8))
        self.text, self.size = text.encode(), size

    def value(self, number):
        head = HEAD % number
        length = self.size - len(head) - 2
        start = self.rng.randrange(len(self.text) - length)
        return head + self.text[start : start + length] + b'"}'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--bytes", type=int, default=512, help="the size of a record")
    parser.add_argument("--text-mib", type=int, default=8, help="how much text records are cut from: repeats are rarer in more")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--key", action="store_true", help="begin each line with its number and a tab")
    options = parser.parse_args()
    values = Values(options.bytes, options.seed, options.text_mib << 20)
    for number in range(options.records):
        key = b"%d\t" % number if options.key else b""
        sys.stdout.buffer.write(key + values.value(number) + b"\n")


if __name__ == "__main__":
    main()
