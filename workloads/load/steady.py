"""A service's load on a redis server: text-like values, and a steady, skewed stream of reads of a small part
of them.

`fill` stores the keys. `read` prints "reading", then reads the first `--hot` keys, the first ones most, and
one read in 10,000 of any key, until SIGTERM or the end of `--seconds`. A second client reads one key at a
time, drawn in the same way, and measures the latency. The percentiles are printed at the end.
"""

import argparse
import random
import signal
import socket
import sys
import time

import text

BATCHES_PER_SECOND = 200
ANYWHERE = 0.0001  # share of reads of any key
DRAWN = 200  # batches drawn in advance, so that drawing takes no time during reads


class Redis:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.answers = self.socket.makefile("rb", buffering=1 << 18)

    def ask(self, commands, answer_bytes):
        self.socket.sendall(commands)
        answer = self.answers.read(answer_bytes)
        if len(answer) < answer_bytes:
            sys.exit("redis closed the connection")
        return answer


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def key(number):
    return b"key:%012d" % number


def fill(redis, options):
    values = text.Values(options.bytes, seed=1)
    for begin in range(0, options.keys, 1000):
        numbers = range(begin, min(begin + 1000, options.keys))
        commands = b"".join(command(b"SET", key(number), values.value(number)) for number in numbers)
        ok = b"+OK\r\n" * len(numbers)
        if redis.ask(commands, len(ok)) != ok:
            sys.exit("redis did not store every value")


def draw(rng, options):
    if rng.random() < ANYWHERE:
        return rng.randrange(options.keys)
    return int(options.hot * rng.random() ** 2)


def read(redis, options):
    rng = random.Random(options.seed)
    answer_bytes = len(b"$%d\r\n" % options.bytes) + options.bytes + 2
    per_batch = options.rate // BATCHES_PER_SECOND
    gets = lambda count: b"".join(command(b"GET", key(draw(rng, options))) for _ in range(count))
    batches = [gets(per_batch) for _ in range(DRAWN)]
    one_at_a_time = Redis(options.socket)
    ending = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))

    print("reading", flush=True)
    took = []
    begin = due = time.monotonic()
    while not ending and time.monotonic() - begin < options.seconds:
        redis.ask(rng.choice(batches), per_batch * answer_bytes)
        single = gets(1)
        asked = time.perf_counter()
        one_at_a_time.ask(single, answer_bytes)
        took.append(time.perf_counter() - asked)
        due = max(due + 1 / BATCHES_PER_SECOND, time.monotonic() - 1)
        time.sleep(max(0, due - time.monotonic()))
    took.sort()
    at = lambda share: took[min(len(took) - 1, int(share * len(took)))] * 1000
    print(f"{at(0.5):.2f} {at(0.99):.2f} {at(0.999):.2f} {len(took)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fill", "read"))
    parser.add_argument("--socket", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--bytes", type=int, default=900)
    parser.add_argument("--hot", type=int, default=20_000, help="how many of the first keys are read")
    parser.add_argument("--rate", type=int, default=40_000, help="reads a second")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    {"fill": fill, "read": read}[options.what](Redis(options.socket), options)


if __name__ == "__main__":
    main()
