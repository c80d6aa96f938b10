"""Prints a row of the table of budget.sh. Usage: budget.py NAME INFO.json JUDGED.json"""
import json
import sys

name, info, judged = sys.argv[1:]
info, judged = json.load(open(info)), json.load(open(judged))
plan = (judged["plan"] or "").split(",")[0]
steady = info["steady_monitoring_cpu_percent"]
used = 100 * steady / info["settings"]["cpu_budget_percent"]
cpu = f"{info['monitoring_cpu_percent']:>10.2f} % {steady:>8.2f} % {used:>9.0f} % {info['own_cpu_percent']:>8.2f} %"
rss = f"{info['own_rss_bytes'] / (1 << 20):>7.1f} MiB"
found = f"{100 * judged['recall']:>8.1f} % {100 * judged['precision']:>8.1f} % {judged['edge_error_pages']:>11.1f}"
print(f"{name:<14} {cpu} {rss}   {plan[:40]:<40} {judged['snapshots']:>9} {found} {100 * info['unknown_share']:>7.2f} %")
