"""A row of second.sh. Usage: second.py PATTERN BESIDE INFO.json JUDGED.json ALONE.json

The last is what was judged of the pattern alone, where that is known."""
import json
import os
import sys

pattern, beside, info, judged, alone = sys.argv[1:]
info, judged = json.load(open(info)), json.load(open(judged))
recall = 100 * judged["recall"]
alone = 100 * json.load(open(alone))["recall"] if os.path.exists(alone) else 0
lost = f"{100 * (1 - recall / alone):>8.1f} %" if alone else f"{'':>10}"
WORDS = {
    "another thermo": "another thermo",
    "somebody else takes": "marks that are gone",
    "pages to reclaim": "reclaim",
    "MGLRU ages": "ageing",
    "in-kernel DAMON (": "kdamond",
}
warnings = [note["text"] for note in info["notes"] if note["kind"] == "warning"]
told = [short for words, short in WORDS.items() if any(words in text for text in warnings)]
print(f"{pattern:<30} {beside:<30} {100 * judged['precision']:>8.1f} % {recall:>8.1f} % {lost} {judged['snapshots']:>7}   {', '.join(told) or 'nobody'}")
