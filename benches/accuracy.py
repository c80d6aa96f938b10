"""Precision and recall of hot bytes. Usage: accuracy.py NAME REGIONS.json TRUTH.jsonl

A phase is a span of time in which the truth touches the same bytes. Each aggregation that lies within a phase as a
whole is judged, the n-th one of every phase together: "2nd" is what is known after one aggregation of each phase.
"""
import json
import statistics
import sys

AGGR = 100_000_000


def overlap(a, b):
    """Bytes in both of two ascending lists of disjoint ranges."""
    total = i = j = 0
    while i < len(a) and j < len(b):
        total += max(0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return total


def length(ranges):
    return sum(end - start for start, end in ranges)


def joined(ranges):
    out = []
    for start, end in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def phases(truth):
    """(start, end, ranges): spans joined while they touch the same; spans that mix two phases stand alone."""
    out = []
    for span in truth:
        ranges = joined(span["ranges"])
        if out and out[-1][2] == ranges:
            out[-1][1] = span["end_ns"]
        else:
            out.append([span["start_ns"], span["end_ns"], ranges])
    return [phase for phase in out if phase[1] - phase[0] > 5 * AGGR]


def judged(snapshots, truth):
    """{n: [(precision, recall, ...)]} for the n-th whole aggregation of each phase."""
    out = {}
    for start, end, hot in phases(truth):
        nth = 0
        for snapshot in snapshots:
            if snapshot["time_ns"] - snapshot["aggr_ns"] < start or snapshot["time_ns"] > end:
                continue
            nth += 1
            found, unknown = [], []
            for target in snapshot["targets"]:
                for region in target["regions"]:
                    one = [region["start"], region["end"]]
                    if region.get("unknown"):
                        unknown.append(one)
                    elif 2 * region["nr_accesses"] >= region["max_nr_accesses"]:
                        found.append(one)
            found, unknown = joined(found), joined(unknown)
            right = overlap(found, hot)
            known = length(hot) - overlap(unknown, hot)
            precision = right / length(found) if found else 0.0
            recall = right / known if known else 0.0
            out.setdefault(nth, []).append((precision, recall, len(snapshot["targets"][0]["regions"])))
    return out


def line(name, rows):
    cells = []
    for values in list(zip(*rows))[:2]:
        cells.append(f"{statistics.mean(values):9.3f} {statistics.median(values):8.3f} {min(values):6.3f}")
    regions = statistics.median(row[2] for row in rows)
    print(f"  {name:<28} {len(rows):5}  {cells[0]}  {cells[1]}  {regions:8.0f}")


def main():
    name, regions, truth = sys.argv[1:]
    with open(regions) as file:
        snapshots = json.load(file)["snapshots"]
    for before, snapshot in zip([None] + snapshots, snapshots):
        # Where the machine was late an aggregation is longer than it should be.
        snapshot["aggr_ns"] = snapshot["time_ns"] - before["time_ns"] if before else AGGR
    with open(truth) as file:
        spans = [json.loads(text) for text in file]
    rows = judged(snapshots, spans)
    print(f"\n{name}: {len(snapshots)} snapshots")
    print(f"  {'aggregation of the phase':<28} {'count':>5}  {'precision':>9} {'median':>8} {'least':>6}  {'recall':>9} {'median':>8} {'least':>6}  {'regions':>8}")
    for nth in (1, 2, 3, 5, 10):
        if nth in rows:
            line(f"{nth}", rows[nth])
    line("2nd and later", [row for nth in rows if nth >= 2 for row in rows[nth]])


if __name__ == "__main__":
    main()
