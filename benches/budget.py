"""A row of budget.sh. Usage: budget.py NAME INFO.json REGIONS.json TRUTH.jsonl

Hot is what was accessed in at least half the looks of the last aggregation; right is what the truth touches at its end.
"""
import json
import sys

from accuracy import joined, length, overlap

name, info, regions, truth = sys.argv[1:]
info = json.load(open(info))
last = json.load(open(regions))["snapshots"][0]["targets"]
spans = [json.loads(line) for line in open(truth) if line.endswith("\n")]
pid = spans[-1]["pid"]
right = joined(spans[-2]["ranges"])
hot = [
    [region["start"], region["end"]]
    for target in last
    if target["pid"] == pid
    for region in target["regions"]
    if region["nr_accesses"] * 2 >= region["max_nr_accesses"] and not region.get("unknown")
]
both = overlap(joined(hot), right)
plans = [note["text"].split(",")[0] for note in info["notes"] if note["kind"] == "plan"]
print(
    f"{name:<15} {info['looking_cpu_percent']:>9.2f} % {info['own_cpu_percent']:>9.2f} %   {plans[-1][:28]:<28}"
    f" {100 * both / max(1, length(right)):>9.1f} % {100 * both / max(1, length(joined(hot))):>10.1f} %"
)
