"""Writes SQL for the sqlite3 shell: a table in memory from a file of records, then queries in a pattern.

The shell runs the queries; each asks for a few hundred records, and their sum is checked against what is known.
"""

import argparse

import pattern


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--queries", type=int, required=True)
    parser.add_argument("--pattern", choices=pattern.NAMES, default="recent")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-query", type=int, default=500)
    options = parser.parse_args()
    print("CREATE TABLE records (id INTEGER PRIMARY KEY, body TEXT);")
    print(".mode tabs\n.import records.tsv records")
    # This one is never read again: cold memory as databases have it.
    print("CREATE INDEX by_body ON records (substr(body, 40, 60));")
    print("CREATE TABLE found (sum INTEGER);")
    print(".shell touch ready")
    reads = pattern.Pattern(options.pattern, options.records, options.queries * options.per_query, options.seed)
    total = 0
    for _ in range(options.queries):
        numbers = reads.next(options.per_query)
        total += sum(set(numbers))
        listed = ",".join(map(str, numbers))
        print(f"INSERT INTO found SELECT sum(id + (length(body) < 9)) FROM records WHERE id IN ({listed});")
    print(f"SELECT iif(sum(sum) = {total}, 'TEST PASSED', 'WRONG SUM ' || sum(sum)) FROM found;")


if __name__ == "__main__":
    main()
