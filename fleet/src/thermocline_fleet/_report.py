"""The report: runs the jobs, and puts their results into one structure, the JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from . import jobs
from ._hosts import Hosts
from ._question import Question
from ._stage import Fleet

SCHEMA = 1
"""Version of the JSON."""

MOST_REQUESTS, MOST_HOSTS = 200, 100
"""Rows of the JSON and the page. Tables have all."""

Json = dict[str, Any]


@dataclass
class Report:
    """The JSON, and the tables of all jobs."""

    json: Json
    tables: dict[str, DataFrame] = field(default_factory=dict)


def make_report(fleet: Fleet, question: Question) -> Report:
    """Runs all jobs. Raises `Error` if the sums do not hold every row that was read."""
    hosts = Hosts(fleet)
    tables = {"files": fleet.files, "cold_memory": jobs.cold_memory(hosts), "refaults": jobs.refaults(hosts)}
    cold, again = tables["cold_memory"].collect(), tables["refaults"].collect()
    tables["agents"] = jobs.agents(fleet)
    agents = tables["agents"].collect()[0]
    fleet.check_rows(sum(row.rows for row in cold if row.min_s == 0) + (agents.rows or 0))
    tables["min_ages"] = fleet.keep(jobs.curve(hosts, question))
    tables["advice"] = fleet.keep(jobs.advice(tables["min_ages"], question))
    advised = tables["advice"]
    tables["requests"] = jobs.requests(fleet, advised, question)
    tables["outliers"] = jobs.outliers(hosts, advised, question)
    tables["drift"] = jobs.drift(hosts, advised)
    tables["policies"] = jobs.policies(fleet, tables["min_ages"])
    json = _head(fleet, question)
    json["classes"] = _classes(cold, again, tables["min_ages"].collect(), advised.collect(), question)
    json["requests"] = _rows(
        tables["requests"].orderBy(
            F.col("target").isNotNull(), F.desc("resident_p99_bytes"), "class", "target"
        ),
        MOST_REQUESTS,
    )
    json["outliers"] = _rows(tables["outliers"].orderBy(F.desc(F.abs("z")), "cluster", "node"), MOST_HOSTS)
    changes = tables["drift"].orderBy(F.col("node").isNotNull(), F.desc(F.abs("growth")), "class", "node")
    json["drift"] = _rows(changes, MOST_REQUESTS + MOST_HOSTS)
    json["policies"] = _rows(
        tables["policies"].orderBy(F.desc("saved_bytes"), "class", "policy"), MOST_REQUESTS
    )
    json["agents"] = {key: value for key, value in _plain(agents).items() if key != "rows"}
    json["files"] = files_json(fleet)
    return Report(json, tables)


def files_json(fleet: Fleet) -> Json:
    """How many files were read and set aside."""
    counts = fleet.counts
    return {
        "read": counts.read,
        "set_aside": counts.set_aside,
        "reasons": counts.reasons,
        "rows": counts.rows,
        "bytes": counts.bytes,
    }


def _head(fleet: Fleet, question: Question) -> Json:
    read = fleet.files.where(F.col("reason").isNull())
    extent = read.agg(
        F.min("window_start_ms").alias("start"), F.collect_set("cluster").alias("clusters")
    ).first()
    assert extent is not None, "an aggregate without groups has a row"
    start = max(extent.start, fleet.reading.from_ms or extent.start)
    return {
        "schema": SCHEMA,
        "from": _time(start),
        "to": _time(fleet.counts.end_ms),
        "clusters": sorted(extent.clusters),
        "class_by": fleet.reading.class_by,
        "bounds": {
            "max_refaults_per_min": question.max_refaults,
            "hold": question.hold,
            "swap_cost": question.swap_cost,
            "headroom": question.headroom,
        },
    }


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _classes(
    cold: list[Row], again: list[Row], curve: list[Row], advised: list[Row], question: Question
) -> list[Json]:
    idle, refaults, points = _by_class(cold), _by_class(again), _by_class(curve)
    advice = {row["class"]: row for row in advised}
    classes = []
    for name, rows in idle.items():
        first = [row for row in rows if row.min_s == 0]
        found: Json = {
            "class": name,
            "hosts": sum(row.hosts for row in first),
            "resident_bytes": round(sum(row.resident_bytes for row in first)),
            "unknown_bytes": round(sum(row.unknown_bytes for row in first)),
            "swap_bytes": round(sum(row.swap_bytes for row in first)),
            "working_set_bytes": round(
                sum(row.working_set_bytes for row in refaults[name] if row.min_s == 0)
            ),
            "idle": _idle(rows),
            "reaccess": _reaccess(refaults[name]),
            "advice": _advice(advice.get(name), points.get(name, []), question),
            "min_ages": [_age(row) for row in sorted(points.get(name, []), key=lambda row: int(row.min_s))],
            "clusters": [
                {
                    "cluster": row.cluster,
                    "hosts": row.hosts,
                    "resident_bytes": round(row.resident_bytes),
                    "idle": _idle([each for each in rows if each.cluster == row.cluster]),
                }
                for row in sorted(first, key=lambda row: str(row.cluster))
            ],
        }
        classes.append(found)
    return sorted(classes, key=lambda found: (-found["resident_bytes"], found["class"]))


def _by_class(rows: Iterable[Row]) -> dict[str, list[Row]]:
    classes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        classes[row["class"]].append(row)
    return classes


def _by_age(rows: Iterable[Row]) -> list[tuple[int, list[Row]]]:
    ages: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        ages[row.min_s].append(row)
    return sorted(ages.items())


def _idle(rows: Iterable[Row]) -> list[Json]:
    """Cold memory of clusters together."""
    found = []
    for min_s, same in _by_age(rows):
        cold, resident = sum(row.bytes for row in same), sum(row.resident_bytes for row in same)
        share = cold / resident if resident else 0.0
        files = round(sum(row.file_bytes for row in same))
        found.append({"min_s": min_s, "bytes": round(cold), "share": round(share, 6), "file_bytes": files})
    return found


def _reaccess(rows: Iterable[Row]) -> list[Json]:
    found = []
    for min_s, same in _by_age(rows):
        again = sum(row.bytes_per_min for row in same)
        share = again / max(sum(row.working_set_bytes for row in same), 4096.0)
        found.append({"min_s": min_s, "bytes_per_min": round(again), "share_per_min": float(f"{share:.6g}")})
    return found


def _age(row: Row) -> Json:
    return {
        "min_s": row.min_s,
        "hosts": row.hosts,
        "host_hours": row.host_hours,
        "held": round(row.held, 6),
        "held_low": round(row.held_low, 6),
        "share_per_min": float(f"{row.share_per_min:.6g}"),
        "leaves_bytes": round(row.leaves_bytes),
        "net_saved_bytes": round(row.net_saved_bytes),
        "low": round(row.low),
        "high": round(row.high),
    }


def _advice(row: Row | None, points: list[Row], question: Question) -> Json:
    """The advice, or null and why there is none."""
    if row is None:
        nothing: Json = {"min_age_s": None, "net_saved_bytes": 0, "low": 0, "high": 0, "worth": False}
        return nothing | {"why": _why_not(points, question)}
    found = {name: value for name, value in _age(row).items() if name != "min_s"}
    why = "" if row.worth else "less than 1 % of resident memory is idle for this age"
    return {"min_age_s": row.min_s} | found | {"worth": row.worth, "why": why}


def _why_not(points: list[Row], question: Question) -> str:
    if not points:
        return (
            "no hour of a host can judge an age: every host acts, no scan pass is complete, or most idle "
            "ages are unknown"
        )
    last = max(points, key=lambda row: int(row.min_s))
    return (
        f"at the longest age that can be judged, {last.min_s} s, the bound of {question.max_refaults:.2%} a "
        f"minute holds in {last.held:.1%} of host-hours (at least {last.held_low:.1%}); {question.hold:.0%} "
        "are asked for"
    )


def _rows(frame: DataFrame, most: int) -> list[Json]:
    return [_plain(row) for row in frame.limit(most).collect()]


def _plain(row: Row) -> Json:
    """Sizes as whole bytes, and other numbers with six digits."""
    found = {}
    for name, value in row.asDict().items():
        if isinstance(value, float):
            whole = "bytes" in name
            found[name] = round(value) if whole else float(f"{value:.6g}")
        else:
            found[name] = value
    return found
