#!/usr/bin/env python3
"""Acts with a minimum age and measures what it saves; compares that with the advice. forecast.sh calls it."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

MIB = 1 << 20
PAGE = 4096
# The aims: net saving within this share of resident memory, refaults within this factor, compressed size
# within this share.
NET_AIM, REFAULT_AIM, COMPRESSED_AIM = 0.15, 1.5, 0.10


def resident(pid):
    """Resident bytes. Memory shared with other processes counts by its share."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    sys.exit(f"forecast: /proc/{pid}/smaps_rollup has no Pss")


def zram_used(device):
    """Bytes that the device occupies, and bytes stored in it."""
    orig, _, used, *_ = map(int, pathlib.Path(f"/sys/block/{device}/mm_stat").read_text().split())
    return used, orig


def swapped_in(pid):
    """Bytes that major faults of the process have read in, one page each: zram is read without read-ahead."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[9]) * PAGE


def act(options):
    device = os.path.basename(options.zram)
    before, (used_before, _) = resident(options.pid), zram_used(device)
    command = [options.thermo, "reclaim", "--pid", str(options.pid), "--cpu", options.cpu, "--min-age", f"{options.age}s",
               "--quota-ms", "0", "--quota-sz", "0", "--wmarks-high", "1000", "--wmarks-mid", "1000", "--wmarks-low",
               "0", "--max-refaults", "100%", "--min-net", "0%", "--swap-floor", "0%"]
    reclaim = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(options.age + options.settle)
        came, begin, samples = swapped_in(options.pid), time.monotonic(), []
        while time.monotonic() - begin < options.each:
            time.sleep(1)
            samples.append((resident(options.pid), *zram_used(device)))
        minutes = (time.monotonic() - begin) / 60
        came = swapped_in(options.pid) - came
    finally:
        reclaim.terminate()
        reclaim.wait()
    mean = [sum(column) / len(samples) for column in zip(*samples)]
    subprocess.run([options.thermo, "pagein", "--pid", str(options.pid)], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=False)
    print(json.dumps({
        "workload": options.workload, "round": options.round, "age": options.age, "resident": before,
        "left": before - mean[0], "zram": mean[1] - used_before, "stored": mean[2],
        "net": before - mean[0] - (mean[1] - used_before), "refaults_per_min": came / minutes,
    }))


def predicted(advice, age):
    rows = [row for row in advice["table"] if row["min_age_s"] == age]
    return rows[0] if rows and rows[0]["known"] else None


def heading(_options):
    print(f"{'workload':<18} {'age':>5} {'resident':>9} {'net: told':>10} {'was':>8} {'of res.':>8} {'back/min: told':>15}"
          f" {'was':>8} {'factor':>7} {'in zram: told':>14} {'was':>8} {'differs':>8}")


def cells(advice, runs):
    """One cell for each run: the differences, and whether each aim was reached."""
    for run in runs:
        row = predicted(advice, run["age"])
        if row is None:
            print(f"{run['workload']:<18} {run['age']:>4}s: {next(r for r in advice['table'] if r['min_age_s'] == run['age'])['why']}")
            continue
        net, refaults, compressed = (row[name]["mid"] for name in
                                     ("net_saved_bytes", "refault_bytes_per_min", "compressed_bytes"))
        # Rates below a page a second are equal: a factor of nothing says nothing.
        floor = 60 * PAGE
        factor = max(refaults, floor) / max(run["refaults_per_min"], floor)
        yield {
            **run, "told_net": net, "told_refaults": refaults, "told_zram": compressed,
            "net_error": (net - run["net"]) / run["resident"], "factor": factor,
            "zram_error": (compressed - run["zram"]) / max(run["zram"], PAGE),
        }


def compare(options):
    advice = json.loads(pathlib.Path(options.advice).read_text())
    runs = [json.loads(line) for line in pathlib.Path(options.real).read_text().splitlines()]
    found = list(cells(advice, [run for run in runs if run["workload"] == options.workload]))
    for cell in found:
        print(f"{cell['workload']:<18} {cell['age']:>4}s {cell['resident'] / MIB:>9.0f} {cell['told_net'] / MIB:>10.0f}"
              f" {cell['net'] / MIB:>8.0f} {cell['net_error']:>+8.1%} {cell['told_refaults'] / MIB:>15.1f}"
              f" {cell['refaults_per_min'] / MIB:>8.1f} {cell['factor']:>7.2f} {cell['told_zram'] / MIB:>14.0f}"
              f" {cell['zram'] / MIB:>8.0f} {cell['zram_error']:>+8.1%}", flush=True)
    with open(os.path.join(os.path.dirname(options.real), "cells.jsonl"), "a", encoding="utf-8") as file:
        file.writelines(json.dumps(cell) + "\n" for cell in found)


def summary(options):
    path = pathlib.Path(options.folder, "cells.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not found:
        sys.exit("forecast: nothing was compared")
    aims = {
        f"net saving within {NET_AIM:.0%} of resident": lambda cell: abs(cell["net_error"]) <= NET_AIM,
        f"refaults within a factor of {REFAULT_AIM}": lambda cell: 1 / REFAULT_AIM <= cell["factor"] <= REFAULT_AIM,
        f"compressed size within {COMPRESSED_AIM:.0%}": lambda cell: abs(cell["zram_error"]) <= COMPRESSED_AIM,
    }
    for name, reached in aims.items():
        hits = sum(map(reached, found))
        print(f"{name}: {hits} of {len(found)} cells, {hits / len(found):.0%}")
    pairs, right = ranking(found)
    print(f"right ranking of two ages by net saving: {right} of {pairs}")
    if options.plot:
        plot(found, options.plot)


def ranking(found):
    """Pairs of ages of the same workload and round whose real savings differ by more than 2 % of resident memory, and
    how many of them the advice puts in the right order."""
    pairs = right = 0
    for first in found:
        for second in found:
            same = (first["workload"], first["round"]) == (second["workload"], second["round"])
            if same and first["age"] < second["age"] and abs(first["net"] - second["net"]) > 0.02 * first["resident"]:
                pairs += 1
                right += (first["net"] > second["net"]) == (first["told_net"] > second["told_net"])
    return pairs, right


def plot(found, path):
    """A scatter plot of told against real savings, as SVG."""
    side, margin = 420, 60
    largest = max(max(cell["net"], cell["told_net"]) for cell in found) * 1.05
    names = sorted({cell["workload"] for cell in found})
    colours = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"]

    def x(value):
        return margin + max(value, 0) / largest * side

    def y(value):
        return margin + side - max(value, 0) / largest * side

    items = [f'<line x1="{x(0)}" y1="{y(0)}" x2="{x(largest)}" y2="{y(largest)}" stroke="#999"/>',
             f'<rect x="{margin}" y="{margin}" width="{side}" height="{side}" fill="none" stroke="#333"/>',
             f'<text x="{margin + side / 2}" y="{margin + side + 40}" text-anchor="middle">saved net, MiB</text>',
             f'<text x="16" y="{margin - 20}">told by thermo advise, MiB</text>']
    for step in range(5):
        value = largest / 4 * step
        items.append(f'<text x="{x(value)}" y="{margin + side + 18}" text-anchor="middle">{value / MIB:.0f}</text>')
        items.append(f'<text x="{margin - 8}" y="{y(value) + 4}" text-anchor="end">{value / MIB:.0f}</text>')
    for cell in found:
        colour = colours[names.index(cell["workload"]) % len(colours)]
        items.append(f'<circle cx="{x(cell["net"]):.1f}" cy="{y(cell["told_net"]):.1f}" r="4" fill="{colour}"/>')
    for nth, name in enumerate(names):
        items.append(f'<text x="{margin + side + 12}" y="{margin + 16 + 18 * nth}" fill="{colours[nth % len(colours)]}">'
                     f'{name}</text>')
    body = "\n".join(items)
    pathlib.Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{side + 260}" height="{side + 130}" font-family="sans-serif" '
        f'font-size="12">\n{body}\n</svg>\n', encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("act")
    for flag, kind in (("thermo", str), ("pid", int), ("age", int), ("settle", float), ("each", float), ("cpu", str), ("zram", str),
                       ("workload", str), ("round", int)):
        one.add_argument(f"--{flag}", type=kind, required=True)
    two = verbs.add_parser("compare")
    for flag in ("workload", "advice", "real"):
        two.add_argument(f"--{flag}", required=True)
    verbs.add_parser("heading")
    last = verbs.add_parser("summary")
    last.add_argument("--folder", required=True)
    last.add_argument("--plot", default="")
    options = parser.parse_args()
    {"act": act, "compare": compare, "heading": heading, "summary": summary}[options.verb](options)


if __name__ == "__main__":
    main()
