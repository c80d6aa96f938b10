"""The table of the contest. Usage: contest.py THERMO FOLDER

A byte is said to be hot when it was seen accessed in at least half of the looks of an aggregation; it is truly hot
when it was touched in at least half of the truth's spans in that time. The error is what is in one and not in the
other, in percent of what is truly hot; each aggregation counts as long as it lasts, from the third second on. "Late"
is the same of what a reader of the newest picture holds true at each span of the truth. Only memory is judged of which the
truth tells: a program's code and stack are touched as well, and are no part of it.

Of redis nobody says page by page what is true. There the bytes of all regions that were seen accessed are held against
those that the kernel counts as touched within a second, and in the place of "late" the same where each region counts by
the share of looks that saw it accessed.
"""
import collections
import json
import pathlib
import statistics
import subprocess
import sys

SETTLED = 3_000_000_000
ARMS = {"kdamond": "in-kernel DAMON", "budget": "thermo, 1 %", "same": "thermo, DAMON's CPU"}


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


def within(ranges, others):
    """The parts of ranges that lie in others; both ascending and disjoint."""
    out, j = [], 0
    for start, end in ranges:
        while j < len(others) and others[j][1] <= start:
            j += 1
        k = j
        while k < len(others) and others[k][0] < end:
            out.append([max(start, others[k][0]), min(end, others[k][1])])
            k += 1
    return out


def told_of(truth):
    """All that the truth says to have been touched at any time."""
    return joined(range for span in truth for range in span["ranges"])


def wrong(said, hot):
    both = length(within(said, hot))
    return length(said) - both + length(hot) - both


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


def said_hot(snapshot, least=0.5):
    regions = [region for target in snapshot["targets"] for region in target["regions"]]
    hot = [r for r in regions if r["nr_accesses"] >= max(1, least * r["max_nr_accesses"]) and not r.get("unknown")]
    return joined([r["start"], r["end"]] for r in hot)


def by_share_of_looks(snapshot):
    """Bytes touched, each region's counting by the share of looks that saw it accessed."""
    regions = [region for target in snapshot["targets"] for region in target["regions"] if not region.get("unknown")]
    return sum((r["end"] - r["start"]) * r["nr_accesses"] / r["max_nr_accesses"] for r in regions)


def with_begin(snapshots, aggr):
    """Each snapshot with when its aggregation began, as far as that is known."""
    before = 0
    for snapshot in snapshots:
        snapshot["begin_ns"] = max(before, snapshot["time_ns"] - aggr)
        before = snapshot["time_ns"]
    return snapshots


def settled(snapshots):
    begin = snapshots[0]["begin_ns"] + SETTLED if snapshots else 0
    return [snapshot for snapshot in snapshots if snapshot["time_ns"] > begin]


def error_in_its_time(snapshots, truth):
    wrong_sum = hot_sum = 0
    judged = told_of(truth)
    for snapshot in settled(snapshots):
        end, begin = snapshot["time_ns"], snapshot["begin_ns"]
        spans = [span for span in truth if span["end_ns"] > begin and span["start_ns"] < end]
        if not spans:
            continue
        hot = touched_in_half(spans)
        wrong_sum += wrong(within(said_hot(snapshot), judged), hot) * (end - begin)
        hot_sum += length(hot) * (end - begin)
    return 100 * wrong_sum / hot_sum if hot_sum else float("nan")


def error_late(snapshots, truth):
    wrong_sum = hot_sum = 0
    if not snapshots:
        return float("nan")
    judged = told_of(truth)
    newest, said = 0, within(said_hot(snapshots[0]), judged)
    begin = snapshots[0]["begin_ns"] + SETTLED
    for span in truth:
        if not begin < span["start_ns"] < snapshots[-1]["time_ns"]:
            continue
        while newest + 1 < len(snapshots) and snapshots[newest + 1]["time_ns"] <= span["start_ns"]:
            newest += 1
            said = within(said_hot(snapshots[newest]), judged)
        hot = joined(span["ranges"])
        wrong_sum += wrong(said, hot)
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
        of = [arm for arm in self.arms if arm[0] == program and arm[1] == name]
        return [int(arm[3]) / int(arm[4]) for arm in of if int(arm[4])]

    def truth(self, program):
        path = self.folder / f"{program}.jsonl"
        if not path.exists():
            return None
        lines = path.read_text().split("\n")
        return [json.loads(line) for line in lines if line.endswith("}")]

    def rows(self, program):
        truth, alone = self.truth(program), statistics.mean(self.rates(program, "nobody") or [0])
        referenced = statistics.mean(self.rates(program, "referenced") or [0]) * 1000
        for arm, title in ARMS.items():
            recordings = sorted(self.folder.glob(f"{program}-{arm}-*.arrow"))
            if recordings:
                yield title, self.row(program, arm, recordings, truth, alone, referenced)

    def row(self, program, arm, recordings, truth, alone, referenced):
        costs = [self.report("info", path) for path in recordings]
        pictures = [
            with_begin(self.report("regions", path)["snapshots"], cost["settings"]["aggr_ns"])
            for path, cost in zip(recordings, costs)
        ]
        cpu = statistics.mean(cost["own_cpu_percent"] for cost in costs)
        looking = statistics.mean(cost["monitoring_cpu_percent"] for cost in costs)
        if arm == "kdamond":
            looking = statistics.mean(float(one[5]) for one in self.arms if one[0] == program and one[1] == arm)
        if not all(settled(picture) for picture in pictures):
            errors = ["no picture yet", ""]
        elif truth is None:
            off = [
                100 * abs(statistics.mean(count(s) for pic in pictures for s in settled(pic)) - referenced) / referenced
                for count in (lambda s: length(said_hot(s, 0)), by_share_of_looks)
                if referenced
            ]
            errors = [f"{one:.0f} % {how}" for one, how in zip(off, ("(bytes)", "(by share of looks)"))] or ["", ""]
        else:
            errors = [f"{statistics.mean(judge(pic, truth) for pic in pictures):.1f} %" for judge in (error_in_its_time, error_late)]
        rates = self.rates(program, arm)
        slower = 100 * (1 - statistics.mean(rates) / alone) if rates and alone else float("nan")
        counts = [sum(len(t["regions"]) for t in s["targets"]) for pic in pictures for s in settled(pic)]
        regions = statistics.mean(counts or [0])
        return [*errors, f"{looking:.2f} %", f"{cpu:.2f} %", f"{slower:+.1f} %", f"{regions:.0f}"]


def main():
    contest = Contest(*sys.argv[1:])
    print("| program | who | error | late | CPU of looking | all its CPU | slow-down | regions |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for program in contest.programs():
        for title, cells in contest.rows(program):
            print(f"| {program} | {title} | {' | '.join(cells)} |")


main()
