"""Prints the hot memory of a mapping that many processes share.

Usage: shared.py NAME INFO.json REGIONS.json START-END

Hot: accessed in at least half of the access checks of the last aggregation, in any of the processes.
"""
import json
import sys

name, info, regions, mapping = sys.argv[1:]
info = json.load(open(info))
targets = json.load(open(regions))["snapshots"][0]["targets"]
start, end = (int(text, 16) for text in mapping.split("-"))
MIB = 1 << 20


def union(is_chosen):
    """The merged parts of the mapping that are in a chosen region of any target."""
    parts = sorted(
        (max(region["start"], start), min(region["end"], end))
        for target in targets
        for region in target["regions"]
        if region["start"] < end and region["end"] > start and is_chosen(region)
    )
    merged = []
    for part in parts:
        if merged and part[0] <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], part[1]))
        else:
            merged.append(part)
    return merged


def mib(parts):
    return sum(part[1] - part[0] for part in parts) / MIB


hot = union(lambda region: not region.get("unknown") and 2 * region["nr_accesses"] >= region["max_nr_accesses"])
unknown = union(lambda region: region.get("unknown"))
print(f"\n{name}: {len(targets)} processes, {100 * info['unknown_share']:.1f} % of their memory unknown; monitoring used {info['monitoring_cpu_percent']:.2f} % of a CPU")
print(f"  buffers: hot {mib(hot):.1f} MiB, unknown {mib(unknown):.1f} MiB")
for first, last in sorted(hot, key=lambda part: part[0] - part[1])[:4]:
    print(f"  hot range at {(first - start) / MIB:8.2f} MiB, {(last - first) / MIB:8.2f} MiB long")
for note in info["notes"]:
    if note["kind"] == "warning":
        print(f"  warning: {note['text']}")
