"""What was found of a mapping that many processes share. Usage: shared.py NAME INFO.json REGIONS.json START-END

Hot is what was accessed in at least half the looks of the last aggregation, in any of the processes.
"""
import json
import sys

name, info, regions, mapping = sys.argv[1:]
info = json.load(open(info))
targets = json.load(open(regions))["snapshots"][0]["targets"]
start, end = (int(text, 16) for text in mapping.split("-"))
MIB = 1 << 20


def union(wanted):
    """The parts of the mapping that are in such a region of any target, joined."""
    parts = sorted(
        (max(region["start"], start), min(region["end"], end))
        for target in targets
        for region in target["regions"]
        if region["start"] < end and region["end"] > start and wanted(region)
    )
    out = []
    for one in parts:
        if out and one[0] <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], one[1]))
        else:
            out.append(one)
    return out


def mib(parts):
    return sum(one[1] - one[0] for one in parts) / MIB


hot = union(lambda region: not region.get("unknown") and 2 * region["nr_accesses"] >= region["max_nr_accesses"])
unknown = union(lambda region: region.get("unknown"))
print(f"\n{name}: {len(targets)} processes, {100 * info['unknown_share']:.1f} % of their memory unknown; looking took {info['monitoring_cpu_percent']:.2f} % of a CPU")
print(f"  of the buffers: hot {mib(hot):.1f} MiB, unknown {mib(unknown):.1f} MiB")
for first, last in sorted(hot, key=lambda one: one[0] - one[1])[:4]:
    print(f"  hot from {(first - start) / MIB:8.2f} MiB on, {(last - first) / MIB:8.2f} MiB long")
for note in info["notes"]:
    if note["kind"] == "warning":
        print(f"  warning: {note['text']}")
