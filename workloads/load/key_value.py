"""Random reads at a steady rate from a redis or a memcached server over its Unix socket.

`fill` stores text-like values. `read` reads keys at random until SIGTERM, `--rate` per second, and checks
every value. Patterns:

`uniform`:    every key is as likely as any other.
`hot:SHARE`:  only this share of the keys is read, each as likely as any other; 0.05 is one key in twenty.
`moving:SHARE:SECONDS`: the same, and the keys that are read move on by as many in SECONDS.
`zipf:S`:     the key of rank r is read in proportion to 1 / r^S.

Ranks are scattered over the keys in the order of storing. Accesses to adjacent pages are therefore
independent, which is the hard case for monitoring that infers the state of a page from adjacent pages.
"""

import argparse
import random
import signal
import socket
import sys
import time

import text

BATCHES_PER_SECOND = 100
FILL_BATCH = 500


class Redis:
    stored = b"+OK\r\n"

    def set(self, key, value):
        return b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value)

    def get(self, key):
        return b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key)

    def head(self, key, size):
        return b"$%d\r\n" % size

    tail = b"\r\n"


class Memcached:
    """Reads do not update the LRU list (`u`).

    A plain `get` moves an item to the head of its list once a minute, which touches two other items. They are
    neighbours of the item after filling and far away later, so the working set grows for ten minutes.
    """

    stored = b"STORED\r\n"

    def set(self, key, value):
        return b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value)

    def get(self, key):
        return b"mg %s k u v\r\n" % key

    def head(self, key, size):
        return b"VA %d k%s\r\n" % (size, key)

    tail = b"\r\n"


PROTOCOLS = {"redis": Redis, "memcached": Memcached}


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.answers = self.socket.makefile("rb", buffering=1 << 18)

    def ask(self, commands, answer_bytes):
        self.socket.sendall(commands)
        answer = self.answers.read(answer_bytes)
        if len(answer) < answer_bytes:
            sys.exit("the server closed the connection")
        return answer


def key_of(number):
    return b"key:%012d" % number


def fill(server, protocol, options):
    values = text.Values(options.bytes, seed=options.seed)
    for begin in range(0, options.keys, FILL_BATCH):
        numbers = range(begin, min(begin + FILL_BATCH, options.keys))
        commands = b"".join(protocol.set(key_of(number), values.value(number)) for number in numbers)
        stored = protocol.stored * len(numbers)
        if server.ask(commands, len(stored)) != stored:
            sys.exit(f"the server did not store all of the keys {numbers}")


def draw_rank(pattern, keys, rng):
    """A function that draws the rank of a key: 0 is the most popular one."""
    name, _, value = pattern.partition(":")
    if name == "uniform":
        return lambda: rng.randrange(keys)
    if name == "hot":
        return lambda: rng.randrange(max(1, int(keys * float(value))))
    if name == "moving":
        share, seconds = map(float, value.split(":"))
        width, begin = max(1, int(keys * share)), time.monotonic()
        return lambda: (int((time.monotonic() - begin) / seconds * width) + rng.randrange(width)) % keys
    if name == "zipf" and float(value) != 1:
        # The inverse of the continuous distribution; keeps no table of a million weights.
        power = 1 - float(value)
        return lambda: min(keys - 1, int(((keys**power - 1) * rng.random() + 1) ** (1 / power)) - 1)
    sys.exit(f"unknown pattern {pattern!r}: use uniform, hot:SHARE, moving:SHARE:SECONDS or zipf:S with S other than 1")


def scatter(rank, keys):
    # Multiplication by a large prime is a permutation, unless the prime divides the number of keys.
    return rank * 2654435761 % keys


def check(answer, protocol, numbers, size):
    """Every value starts with its number. An evicted or wrong key would falsify the measurement."""
    at = 0
    for number in numbers:
        head = protocol.head(key_of(number), size) + b'{"id": %d,' % number
        if not answer.startswith(head, at):
            sys.exit(f"key {number} is wrong: {answer[at:at + 60]!r}")
        at += len(protocol.head(key_of(number), size)) + size + len(protocol.tail)


def read(server, protocol, options):
    rng = random.Random(options.seed)
    draw = draw_rank(options.pattern, options.keys, rng)
    answer_bytes = len(protocol.head(key_of(0), options.bytes)) + options.bytes + len(protocol.tail)
    ending = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    begin, asked = time.monotonic(), 0
    while not ending:
        time.sleep(1 / BATCHES_PER_SECOND)
        due = int((time.monotonic() - begin) * options.rate)
        # At most one second of missed reads is made up for, so that a pause does not become a burst.
        for _ in range(min(due - asked, options.rate) // 100):
            numbers = [scatter(draw(), options.keys) for _ in range(100)]
            answer = server.ask(b"".join(protocol.get(key_of(number)) for number in numbers), 100 * answer_bytes)
            check(answer, protocol, numbers, options.bytes)
            asked += 100
        asked = max(asked, due - options.rate)
    print(f"{asked} reads, {asked / (time.monotonic() - begin):.0f} per second")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fill", "read"))
    parser.add_argument("--server", choices=PROTOCOLS, required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True, help="the size of a value")
    parser.add_argument("--pattern", default="uniform")
    parser.add_argument("--rate", type=int, default=5000, help="reads per second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    command = {"fill": fill, "read": read}[options.what]
    command(Connection(options.socket), PROTOCOLS[options.server](), options)


if __name__ == "__main__":
    main()
