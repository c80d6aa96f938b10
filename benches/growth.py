"""The table of growth.sh. Usage: growth.py FOLDER MIB...

Of each size there are SIZE.info.json and SIZE.judged.json. Ratios are to the smallest.
"""
import json
import pathlib
import sys

folder, sizes = pathlib.Path(sys.argv[1]), sys.argv[2:]
print(f"{'target':>9} {'looking':>9} {'a GiB':>9} {'ratio':>7} {'memory':>11} {'more, a GiB':>12} {'every':>8} {'hot found':>10} {'right':>8} {'edge, pages':>12}")
first = None
for size in sizes:
    try:
        info = json.loads((folder / f"{size}.info.json").read_text())
        judged = json.loads((folder / f"{size}.judged.json").read_text())
    except (OSError, ValueError):
        print(f"{size:>5} MiB: nothing could be judged")
        continue
    gib = int(size) / 1024
    looking, memory = info["monitoring_cpu_percent"], info["own_rss_bytes"] / (1 << 20)
    first = first or (looking, memory, gib)
    more = f"{(memory - first[1]) / (gib - first[2]):>8.2f} MiB" if gib > first[2] else ""
    every = info["duration_ns"] / 1e9 / max(1, info["snapshots"])
    print(
        f"{size:>5} MiB {looking:>7.2f} % {looking / gib:>7.2f} % {looking / first[0]:>7.2f} {memory:>7.1f} MiB {more:>12} {every:>6.2f} s"
        f" {100 * judged['recall']:>8.1f} % {100 * judged['precision']:>6.1f} % {judged['edge_error_pages']:>12.1f}"
    )
