"""The report as text for a terminal, and sizes for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def size(value: float) -> str:
    """Bytes with a unit."""
    number = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} PiB"


def share(value: float) -> str:
    """A share in percent."""
    percent = value * 100
    if 0 < abs(percent) < 0.001:
        return "< 0.001 %"
    return f"{percent:.3g} %" if abs(percent) < 10 else f"{percent:.0f} %"


def age(seconds: float) -> str:
    """An age in its largest whole unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:g} s"


def report_text(report: dict[str, Any]) -> str:
    """Classes with their cold memory and advice, and the files."""
    headings = (
        "class",
        "hosts",
        "resident",
        "idle ≥ 2 min",
        "min age",
        "net saved",
        "interval",
        "refaults/min",
        "held",
    )
    rows = [_class(found) for found in report["classes"]]
    lines = [
        f"{report['from']} to {report['to']}, clusters: {', '.join(report['clusters'])}",
        "",
        table(headings, rows),
        "",
    ]
    agents = report["agents"]
    if agents["hosts"]:
        lines.append(
            f"Agents: {agents['hosts']} hosts, {share(agents['cpu_share'])} of a CPU each, "
            f"{size(agents['resident_bytes'])} resident."
        )
    lines.append(files_text(report["files"]))
    return "\n".join(lines)


def _class(found: dict[str, Any]) -> list[str]:
    advice = found["advice"]
    idle = next(each for each in found["idle"] if each["min_s"] == 120)
    head = [found["class"], str(found["hosts"]), size(found["resident_bytes"]), share(idle["share"])]
    if advice["min_age_s"] is None:
        return [*head, "none", "", "", "", ""]
    interval = f"{size(advice['low'])} to {size(advice['high'])}"
    rest = [size(advice["net_saved_bytes"]), interval, share(advice["share_per_min"]), share(advice["held"])]
    return [*head, age(advice["min_age_s"]), *rest]


def check_text(found: dict[str, Any]) -> str:
    """The counts of files, and the first of those that are set aside."""
    rows = [[row["reason"], printable(row["path"]), printable(row["detail"])] for row in found["set_aside"]]
    listed = [table(("reason", "file", "why"), rows), ""] if rows else []
    return "\n".join([*listed, files_text(found["files"])])


def files_text(files: dict[str, Any]) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in files["reasons"].items())
    aside = f"{files['set_aside']} set aside" + (f" ({reasons})" if reasons else "")
    return f"Files: {files['read']} read ({size(files['bytes'])}), {aside}."


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell; the first to the left."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[nth]) for row in [headings, *rows]) for nth in range(len(headings))]
    lines = []
    for row in [headings, *rows]:
        cells = [
            cell.ljust(width) if nth == 0 else cell.rjust(width)
            for nth, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def printable(text: str) -> str:
    """Text without control characters: names come from other machines."""
    return "".join(each if each.isprintable() else "�" for each in text)
