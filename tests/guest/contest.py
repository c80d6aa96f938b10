"""Prints the table of the contest. Usage: contest.py THERMO FOLDER

A byte is reported hot if at least half of the access checks of an aggregation found it accessed. A byte is
truly hot if it was touched in at least half of the truth's spans during that aggregation. "Error" is the
number of bytes that are hot in only one of the two, in percent of the truly hot bytes, weighted by the length
of aggregations, from the third second on. "Late" compares each span of the truth with the newest snapshot at
that time. Only memory that appears in the truth is compared, because the truth does not cover code and stack.

redis has no truth by page. Its error compares the bytes of all accessed regions with the bytes that the
kernel counts as referenced within a second. "Late" is the same, with each region weighted by its share of
access checks that found an access.
"""
import collections
import json
import pathlib
import statistics
import subprocess
import sys

SETTLE_NS = 3_000_000_000
ARMS = {"kdamond": "in-kernel DAMON", "budget": "thermo, 1 %", "same": "thermo, DAMON's CPU"}


def length(ranges):
    return sum(end - start for start, end in ranges)


def merged(ranges):
    out = []
    for start, end in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def intersection(ranges, others):
    """The parts of ranges that lie in others. Both lists are ascending and disjoint."""
    out, j = [], 0
    for start, end in ranges:
        while j < len(others) and others[j][1] <= start:
            j += 1
        k = j
        while k < len(others) and others[k][0] < end:
            out.append([max(start, others[k][0]), min(end, others[k][1])])
            k += 1
    return out


def all_touched(truth):
    """Ranges touched at any time."""
    return merged(range for span in truth for range in span["ranges"])


def wrong_bytes(reported, hot):
    correct = length(intersection(reported, hot))
    return length(reported) - correct + length(hot) - correct


def touched_in_half(spans):
    """Ranges touched in at least half of these spans."""
    edges = collections.Counter()
    for span in spans:
        for start, end in span["ranges"]:
            edges[start] += 1
            edges[end] -= 1
    out, depth, begin = [], 0, None
    for at in sorted(edges):
        depth += edges[at]
        enough = 2 * depth >= len(spans)
        if enough and begin is None:
            begin = at
        elif not enough and begin is not None:
            out.append([begin, at])
            begin = None
    return out


def reported_hot(snapshot, threshold=0.5):
    regions = [region for target in snapshot["targets"] for region in target["regions"]]
    hot = [r for r in regions if r["nr_accesses"] >= max(1, threshold * r["max_nr_accesses"]) and not r.get("unknown")]
    return merged([r["start"], r["end"]] for r in hot)


def weighted_bytes(snapshot):
    """Bytes of all regions, weighted by the share of access checks that found an access."""
    regions = [region for target in snapshot["targets"] for region in target["regions"] if not region.get("unknown")]
    return sum((r["end"] - r["start"]) * r["nr_accesses"] / r["max_nr_accesses"] for r in regions)


def with_begin(snapshots, aggr):
    """Adds the start time of the aggregation to each snapshot: the end of the previous one, but at most `aggr` ago."""
    previous = 0
    for snapshot in snapshots:
        snapshot["begin_ns"] = max(previous, snapshot["time_ns"] - aggr)
        previous = snapshot["time_ns"]
    return snapshots


def settled(snapshots):
    begin = snapshots[0]["begin_ns"] + SETTLE_NS if snapshots else 0
    return [snapshot for snapshot in snapshots if snapshot["time_ns"] > begin]


def error_in_time(snapshots, truth):
    wrong_sum = hot_sum = 0
    touched = all_touched(truth)
    for snapshot in settled(snapshots):
        end, begin = snapshot["time_ns"], snapshot["begin_ns"]
        spans = [span for span in truth if span["end_ns"] > begin and span["start_ns"] < end]
        if not spans:
            continue
        hot = touched_in_half(spans)
        wrong_sum += wrong_bytes(intersection(reported_hot(snapshot), touched), hot) * (end - begin)
        hot_sum += length(hot) * (end - begin)
    return 100 * wrong_sum / hot_sum if hot_sum else float("nan")


def error_late(snapshots, truth):
    wrong_sum = hot_sum = 0
    if not snapshots:
        return float("nan")
    touched = all_touched(truth)
    newest, reported = 0, intersection(reported_hot(snapshots[0]), touched)
    begin = snapshots[0]["begin_ns"] + SETTLE_NS
    for span in truth:
        if not begin < span["start_ns"] < snapshots[-1]["time_ns"]:
            continue
        while newest + 1 < len(snapshots) and snapshots[newest + 1]["time_ns"] <= span["start_ns"]:
            newest += 1
            reported = intersection(reported_hot(snapshots[newest]), touched)
        hot = merged(span["ranges"])
        wrong_sum += wrong_bytes(reported, hot)
        hot_sum += length(hot)
    return 100 * wrong_sum / hot_sum if hot_sum else float("nan")


class Contest:
    def __init__(self, thermo, folder):
        self.thermo, self.folder = thermo, pathlib.Path(folder)
        lines = (self.folder / "arms").read_text().split("\n")
        self.arms = [line.split() for line in lines if line]

    def report(self, kind, path):
        done = subprocess.run([self.thermo, "report", kind, "--json", path], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def programs(self):
        return list(dict.fromkeys(arm[0] for arm in self.arms))

    def rates(self, program, name):
        arms = [arm for arm in self.arms if arm[0] == program and arm[1] == name]
        return [int(arm[3]) / int(arm[4]) for arm in arms if int(arm[4])]

    def truth(self, program):
        path = self.folder / f"{program}.jsonl"
        if not path.exists():
            return None
        lines = path.read_text().split("\n")
        return [json.loads(line) for line in lines if line.endswith("}")]

    def rows(self, program):
        truth, alone = self.truth(program), statistics.mean(self.rates(program, "alone") or [0])
        referenced = statistics.mean(self.rates(program, "referenced") or [0]) * 1000
        for arm, title in ARMS.items():
            recordings = sorted(self.folder.glob(f"{program}-{arm}-*.arrow"))
            if recordings:
                yield title, self.row(program, arm, recordings, truth, alone, referenced)

    def row(self, program, arm, recordings, truth, alone, referenced):
        costs = [self.report("info", path) for path in recordings]
        recorded = [
            with_begin(self.report("regions", path)["snapshots"], cost["settings"]["aggr_ns"])
            for path, cost in zip(recordings, costs)
        ]
        cpu = statistics.mean(cost["own_cpu_percent"] for cost in costs)
        monitoring_cpu = statistics.mean(cost["monitoring_cpu_percent"] for cost in costs)
        if arm == "kdamond":
            monitoring_cpu = statistics.mean(float(one[5]) for one in self.arms if one[0] == program and one[1] == arm)
        if not all(settled(snapshots) for snapshots in recorded):
            errors = ["no snapshot", ""]
        elif truth is None:
            all_settled = [snapshot for snapshots in recorded for snapshot in settled(snapshots)]
            distances = [
                100 * abs(statistics.mean(map(count, all_settled)) - referenced) / referenced
                for count in (lambda snapshot: length(reported_hot(snapshot, 0)), weighted_bytes)
                if referenced
            ]
            units = ("(bytes)", "(by share of access checks)")
            errors = [f"{distance:.0f} % {unit}" for distance, unit in zip(distances, units)] or ["", ""]
        else:
            errors = [
                f"{statistics.mean(error(snapshots, truth) for snapshots in recorded):.1f} %"
                for error in (error_in_time, error_late)
            ]
        rates = self.rates(program, arm)
        slow_down = 100 * (1 - statistics.mean(rates) / alone) if rates and alone else float("nan")
        counts = [sum(len(t["regions"]) for t in s["targets"]) for snapshots in recorded for s in settled(snapshots)]
        regions = statistics.mean(counts or [0])
        return [*errors, f"{monitoring_cpu:.2f} %", f"{cpu:.2f} %", f"{slow_down:+.1f} %", f"{regions:.0f}"]


def main():
    contest = Contest(*sys.argv[1:])
    print("| program | monitor | error | late | monitoring CPU | total CPU | slow-down | regions |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for program in contest.programs():
        for title, cells in contest.rows(program):
            print(f"| {program} | {title} | {' | '.join(cells)} |")


main()
