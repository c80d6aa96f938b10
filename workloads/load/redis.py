"""Fills a redis server with text-like values, deletes most of them, or reads them in a pattern.

A reading load has a fixed number of reads, so that a slower server also has a longer run time. Each request
is a pipeline, whose time is the latency. Every value is checked.
"""

import argparse
import socket
import sys
import time

import pattern
import text


class Redis:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.socket.makefile("rb", buffering=1 << 16)

    def send(self, commands):
        self.socket.sendall(b"".join(commands))

    def simple(self):
        line = self.answers.readline()
        if not line.startswith(b"+"):
            sys.exit(f"redis answered {line!r}")

    def bulk(self):
        line = self.answers.readline()
        if not line.startswith(b"$") or line.startswith(b"$-1"):
            sys.exit(f"redis answered {line!r}")
        return self.answers.read(int(line[1:]) + 2)[:-2]


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def key(number):
    return b"record:%d" % number


def fill(redis, options):
    values = text.Values(options.bytes, options.seed)
    for begin in range(0, options.keys, 500):
        numbers = range(begin, min(begin + 500, options.keys))
        redis.send(command(b"SET", key(number), values.value(number)) for number in numbers)
        for _ in numbers:
            redis.simple()


def thin(redis, options):
    """Fills the server, deletes all but every n-th record, and waits until the server has freed memory."""
    fill(redis, options)
    gone = [number for number in range(options.keys) if number % options.every]
    for begin in range(0, len(gone), 500):
        numbers = gone[begin : begin + 500]
        redis.send([command(b"DEL", *(key(number) for number in numbers))])
        if int(redis.answers.readline()[1:]) != len(numbers):
            sys.exit("redis had not all of the records")
    # The allocator returns memory to the kernel after it was free for ten seconds.
    time.sleep(options.wait)


def read(redis, options):
    reads = pattern.Pattern(options.pattern, options.keys // options.every, options.reads, options.seed)
    latencies = pattern.Latencies()
    while reads.done < options.reads:
        numbers = [number * options.every for number in reads.next(options.pipeline)]
        commands = [command(b"GET", key(number)) for number in numbers]
        begin = time.perf_counter()
        redis.send(commands)
        values = [redis.bulk() for _ in numbers]
        latencies.add(time.perf_counter() - begin)
        for number, value in zip(numbers, values):
            if not value.startswith(b'{"id": %d,' % number):
                sys.exit(f"record {number} is wrong: {value[:40]!r}")
    print("TEST PASSED", latencies.summary())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fill", "thin", "read"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--bytes", type=int, default=512)
    parser.add_argument("--reads", type=int, default=0)
    parser.add_argument("--pattern", choices=pattern.NAMES, default="recent")
    parser.add_argument("--pipeline", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="which records are left by thin, and read: each so manieth")
    parser.add_argument("--wait", type=float, default=12, help="seconds to wait after thinning out")
    options = parser.parse_args()
    {"fill": fill, "thin": thin, "read": read}[options.what](Redis(options.port), options)


if __name__ == "__main__":
    main()
