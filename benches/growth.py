"""Prints the table of growth.sh. Usage: growth.py FOLDER MIB...

FOLDER contains MIB.info.json and MIB.judged.json for each size. Ratios are relative to the first size.
"""
import json
import pathlib
import sys

folder, sizes = pathlib.Path(sys.argv[1]), sys.argv[2:]
print(
    f"{'target':>9} {'monitoring':>10} {'per GiB':>8} {'ratio':>7} {'memory':>11} {'growth/GiB':>12} {'snapshot':>8}"
    f" {'recall':>10} {'precision':>9} {'edge, pages':>11}"
)
first = None
for size in sizes:
    try:
        info = json.loads((folder / f"{size}.info.json").read_text())
        judged = json.loads((folder / f"{size}.judged.json").read_text())
    except (OSError, ValueError):
        print(f"{size:>5} MiB: the recording could not be evaluated")
        continue
    gib = int(size) / 1024
    cpu, memory = info["monitoring_cpu_percent"], info["own_rss_bytes"] / (1 << 20)
    first = first or (cpu, memory, gib)
    growth = f"{(memory - first[1]) / (gib - first[2]):>8.2f} MiB" if gib > first[2] else ""
    interval = info["duration_ns"] / 1e9 / max(1, info["snapshots"])
    print(
        f"{size:>5} MiB {cpu:>8.2f} % {cpu / gib:>6.2f} % {cpu / first[0]:>7.2f} {memory:>7.1f} MiB {growth:>12} {interval:>6.2f} s"
        f" {100 * judged['recall']:>8.1f} % {100 * judged['precision']:>7.1f} % {judged['edge_error_pages']:>11.1f}"
    )
