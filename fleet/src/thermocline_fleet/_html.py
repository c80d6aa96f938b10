"""The page for people: one file, without scripts and without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ._style import STYLE
from ._svg import bar, curve
from ._text import age, files_text, printable, share, size

Json = dict[str, Any]

MOST_CLASSES = 60
"""Classes on the page, the largest first. The JSON and the tables have all."""
BANDS = (("accessed within 2 min", 0, "hot"), ("2 to 30 min", 120, "warm"), ("30 min to 6 h", 1800, "cool"))
LAST_BAND = ("6 h or longer", 21600, "cold")


def page(report: Json) -> str:
    """The report as HTML."""
    shown = report["classes"][:MOST_CLASSES]
    parts = [_head(report), _figures(report), _classes(report, shown), _curves(shown)]
    parts += [_policies(report), _requests(report), _outliers(report), _drift(report), _end(report)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Cold memory of the fleet</title><style>{STYLE}</style></head>\n<body>"
        + "\n".join(part for part in parts if part)
        + "</body></html>\n"
    )


def _head(report: Json) -> str:
    clusters = ", ".join(report["clusters"])
    return (
        f"<h1>Cold memory of the fleet</h1><p class=soft>{_text(report['from'])} to {_text(report['to'])} · "
        f"clusters: {_text(clusters)} · classes by {_text(report['class_by'])}</p>"
    )


def _figures(report: Json) -> str:
    classes = report["classes"]
    resident = sum(found["resident_bytes"] for found in classes)
    cold = sum(_idle(found, 120)["bytes"] for found in classes)
    saved = sum(found["advice"]["net_saved_bytes"] for found in classes)
    agents = report["agents"]
    figures = [
        (str(agents["hosts"] or max((found["hosts"] for found in classes), default=0)), "hosts"),
        (size(resident), "resident in all classes"),
        (f"{size(cold)} · {share(cold / resident if resident else 0)}", "idle for 2 min or longer"),
        (size(saved), "would be saved net at the advised ages"),
    ]
    return (
        "<div class=figures>"
        + "".join(f"<div class=figure><b>{a}</b>{b}</div>" for a, b in figures)
        + "</div>"
    )


def _classes(report: Json, shown: list[Json]) -> str:
    bounds = report["bounds"]
    legend = "".join(f'<span><i class="{style}"></i>{name}</span>' for name, _, style in (*BANDS, LAST_BAND))
    legend += '<span><i class="unknown"></i>idle age unknown</span>'
    headings = (
        "class", "hosts", "resident", "by idle age", "min age", "net saved", "interval", "refaults a minute",
        "host-hours within the bound",
    )  # fmt: skip
    note = (
        "The minimum age is the smallest one with which refaults stay within "
        f"{share(bounds['max_refaults_per_min'])} of the working set a minute, in at least "
        f"{bounds['hold']:.0%} of host-hours. Net saved: what leaves, "
        "less what the swapped part occupies after compression."
    )
    rest = len(report["classes"]) - len(shown)
    more = f"<p class=soft>{rest} smaller classes are in the JSON and the tables.</p>" if rest else ""
    rows = [_class(found) for found in shown]
    return f"<h2>Classes</h2><p>{note}</p><p class=legend>{legend}</p>{_table(headings, rows)}{more}"


def _class(found: Json) -> list[str]:
    advice, resident = found["advice"], found["resident_bytes"] or 1
    edges = [edge for _, edge, _ in (*BANDS, LAST_BAND)]
    ages = [_idle(found, edge)["bytes"] for edge in edges] + [0]
    parts = [
        (name, (ages[nth] - ages[nth + 1]) / resident, style)
        for nth, (name, _, style) in enumerate((*BANDS, LAST_BAND))
    ]
    parts.append(("idle age unknown", found["unknown_bytes"] / resident, "unknown"))
    head = [_text(found["class"]), str(found["hosts"]), size(found["resident_bytes"])]
    head.append(bar(parts, f"idle ages of {found['class']}"))
    if advice["min_age_s"] is None:
        return [*head, f"<span class=soft title='{_text(advice['why'])}'>none</span>", "", "", "", ""]
    interval = f"{size(advice['low'])} to {size(advice['high'])}"
    held = f"{share(advice['held'])} of {advice['host_hours']}"
    saved = [
        age(advice["min_age_s"]),
        size(advice["net_saved_bytes"]),
        interval,
        share(advice["share_per_min"]),
        held,
    ]
    return head + saved


def _curves(shown: list[Json]) -> str:
    cards = []
    for found in shown:
        points = [(each["min_s"], each["share"]) for each in found["idle"]]
        advice = found["advice"]
        told = advice["why"] or f"advised: {age(advice['min_age_s'])}"
        picture = curve(points, advice["min_age_s"], f"cold share of {found['class']} by idle age")
        cards.append(
            f"<div class=card><h3>{_text(found['class'])}</h3>{picture}<p class=soft>{_text(told)}</p></div>"
        )
    note = (
        "The share of resident memory that was idle for an age or longer. The dashed line is the advised age."
    )
    return f"<h2>Cold memory by age</h2><p>{note}</p><div class=cards>{''.join(cards)}</div>"


def _policies(report: Json) -> str:
    rows = [
        [
            _text(row["class"]),
            _text(row["policy"]),
            "" if row["min_age_ms"] is None else age(row["min_age_ms"] / 1000),
            str(row["hosts"]),
            size(row["saved_bytes"]),
            "no host observes" if row["predicted_bytes"] is None else size(row["predicted_bytes"]),
            "" if row["ratio"] is None else share(row["ratio"]),
            size(row["back_bytes_per_min"]),
        ]
        for row in report["policies"]
    ]
    headings = (
        "class",
        "policy",
        "min age",
        "hosts",
        "saved a host",
        "predicted",
        "saved of predicted",
        "back a minute",
    )
    note = "What policies saved, beside what hosts of the same class that only observe predict for the age."
    return _section("Policies that act", note, headings, rows)


def _requests(report: Json) -> str:
    rows = [
        [
            _text(row["class"]),
            "all targets" if row["target"] is None else _text(row["target"]),
            str(row["hosts"]),
            "" if row["resident_now_bytes"] is None else size(row["resident_now_bytes"]),
            size(row["resident_p99_bytes"]),
            size(row["need_p99_bytes"]),
            size(row["request_bytes"]),
        ]
        for row in report["requests"]
    ]
    headings = ("class", "target", "hosts", "resident now", "resident, p99", "needed, p99", "request")
    note = (
        "Needed: the hour's peak of resident memory without what was idle for the advised age, 99th "
        f"percentile of host-hours. The request adds {report['bounds']['headroom']:.0%}."
    )
    return _section("Memory requests", note, headings, rows)


def _outliers(report: Json) -> str:
    rows = [
        [
            _text(row["node"], row["link"]),
            _text(row["cluster"]),
            _text(row["class"]),
            share(row["share"]),
            share(row["median"]),
            f"{row['z']:+.1f}",
            size(row["resident_bytes"]),
        ]
        for row in report["outliers"]
    ]
    headings = ("host", "cluster", "class", "cold share", "median of class", "robust z", "resident")
    note = "Hosts whose cold share at the advised age lies far from their class. Links lead to the hosts."
    return _section("Outliers", note, headings, rows)


def _drift(report: Json) -> str:
    rows = [
        [
            _text(row["class"]),
            "all hosts" if row["node"] is None else _text(row["node"], row["link"]),
            f"{share(row['share_before'])} → {share(row['share'])}",
            f"{size(row['resident_before_bytes'])} → {size(row['resident_bytes'])}",
            f"{row['growth']:+.1%}",
        ]
        for row in report["drift"]
    ]
    headings = ("class", "host", "cold share", "resident a host", "growth")
    return _section("Week over week", "The last seven days beside the seven days before.", headings, rows)


def _end(report: Json) -> str:
    agents = report["agents"]
    cost = ""
    if agents["hosts"]:
        cost = (
            f"<p>The agents of {agents['hosts']} hosts take {share(agents['cpu_share'])} of a CPU each "
            f"(99th percentile: {share(agents['cpu_share_p99'])}) and {size(agents['resident_bytes'])}.</p>"
        )
    return f"<h2>Agents and files</h2>{cost}<p>{_text(files_text(report['files']))}</p>"


def _section(title: str, note: str, headings: Sequence[str], rows: list[list[str]]) -> str:
    """A table with its title; nothing without rows."""
    return f"<h2>{title}</h2><p>{_text(note)}</p>{_table(headings, rows)}" if rows else ""


def _table(headings: Iterable[str], rows: Iterable[list[str]]) -> str:
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _idle(found: Json, min_s: int) -> Json:
    each: Json = next(each for each in found["idle"] if each["min_s"] == min_s)
    return each


def _text(text: str, link: str | None = None) -> str:
    """Text from other machines, and a link if it is one of the web."""
    plain = escape(printable(str(text)))
    if link and link.startswith(("http://", "https://")):
        return f'<a href="{escape(printable(link))}" rel="noreferrer">{plain}</a>'
    return plain
