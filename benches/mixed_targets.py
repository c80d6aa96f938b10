"""Helpers of mixed_targets.sh.

mixed_targets.py last SECONDS TRUTH: print the lines of the last seconds of a truth.
mixed_targets.py row METHOD PROGRAM INFO.json JUDGED.json: print a row of the table."""
import json
import sys

if sys.argv[1] == "last":
    seconds, path = sys.argv[2:]
    lines = [(json.loads(line)["end_ns"], line) for line in open(path) if line.endswith("}\n")]
    since = max(end for end, _ in lines) - int(seconds) * 10**9
    sys.stdout.writelines(line for end, line in lines if end > since)
else:
    method, program, info, judged = sys.argv[2:]
    info, judged = json.load(open(info)), json.load(open(judged))
    used = 100 * info["monitoring_cpu_percent"] / info["settings"]["cpu_budget_percent"]
    cpu = f"{info['monitoring_cpu_percent']:>9.3f} % {used:>8.0f} %"
    found = f"{100 * judged['recall']:>8.1f} % {100 * judged['precision']:>7.1f} % {judged['edge_error_pages']:>11.1f}"
    print(f"{method:<8} {program:<8} {cpu} {judged['snapshots']:>9} {found}")
