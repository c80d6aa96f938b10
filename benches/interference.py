"""Prints a row of interference.sh. Usage: interference.py PATTERN CONSUMER INFO.json JUDGED.json ALONE.json

ALONE.json is the evaluation without a second consumer. It need not exist."""
import json
import os
import sys

pattern, consumer, info, judged, alone = sys.argv[1:]
info, judged = json.load(open(info)), json.load(open(judged))
recall = 100 * judged["recall"]
alone = 100 * json.load(open(alone))["recall"] if os.path.exists(alone) else 0
lost = f"{100 * (1 - recall / alone):>8.1f} %" if alone else f"{'':>10}"
# Short names of warnings, by a part of their text.
WARNINGS = {
    "another thermo": "another thermo",
    "somebody else takes": "cleared bits",
    "pages to reclaim": "reclaim",
    "MGLRU ages": "ageing",
    "in-kernel DAMON (": "kdamond",
}
warnings = [note["text"] for note in info["notes"] if note["kind"] == "warning"]
reported = [name for part, name in WARNINGS.items() if any(part in text for text in warnings)]
print(
    f"{pattern:<30} {consumer:<30} {100 * judged['precision']:>8.1f} % {recall:>8.1f} % {lost} {judged['snapshots']:>9}   "
    f"{', '.join(reported) or 'none'}"
)
