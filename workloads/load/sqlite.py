"""Writes SQL for the sqlite3 shell: a table in memory from a file of records, then queries in a pattern.

Each query reads a few hundred records by key, most of them in the hot tenth. The number of found records is
checked.
"""

import argparse
import time

from pattern import FADING

PICK = (
    "INSERT INTO found WITH RECURSIVE pick(n, key) AS (SELECT 1, {key} UNION ALL SELECT n + 1, {key} FROM pick"
    " WHERE n < {reads}) SELECT count(*) FROM pick JOIN records ON id = key WHERE length(body) > 9;"
)


def key(options, begin):
    """SQL for a random key: popularity decreases from `begin` on, or all but one key in two thousand are in a tenth."""
    if options.pattern == "fading":
        rank = f"-ln((abs(random() % 1000000) + 1) / 1000001.0) / {FADING} * {options.records}"
        return f"({begin} + cast({rank} AS INTEGER)) % {options.records}"
    anywhere = f"abs(random()) % {options.records}"
    return f"iif(random() % 2000 = 0, {anywhere}, {begin} + abs(random()) % {options.records // 10})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--queries", type=int, required=True)
    parser.add_argument("--reads", type=int, default=500, help="records read by a query")
    parser.add_argument("--pattern", choices=("hot", "fading"), default="hot")
    parser.add_argument("--steps", type=int, default=1, help="places of the hot tenth, one after the other")
    parser.add_argument("--drift", type=int, default=0, help="thousandths of the records that fading moves on by")
    parser.add_argument("--rate", type=float, help="queries per second, written as they are due")
    options = parser.parse_args()
    print("CREATE TABLE records (id INTEGER PRIMARY KEY, body TEXT);")
    print(".mode tabs\n.import records.tsv records")
    # This index is never read: cold memory, as in real databases.
    print("CREATE INDEX by_body ON records (substr(body, 40, 60));")
    print("CREATE TABLE found (n INTEGER);")
    print(".shell touch ready", flush=True)
    started = time.monotonic()
    for query in range(options.queries):
        if options.rate:
            time.sleep(max(0, started + query / options.rate - time.monotonic()))
        step = query * options.steps // options.queries
        begin = options.records * 9 // 10 - step * (options.records // 10)
        if options.pattern == "fading":
            begin = query * options.drift * options.records // (options.queries * 1000)
        print(PICK.format(key=key(options, begin), reads=options.reads), flush=options.rate is not None)
    wanted = options.queries * options.reads
    print(f"SELECT iif(sum(n) = {wanted}, 'TEST PASSED', 'FOUND ' || sum(n) || ' OF {wanted}') FROM found;")


if __name__ == "__main__":
    main()
