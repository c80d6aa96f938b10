"""Writes the files of a made-up fleet, as agents would. Values follow from host, class, time and seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from thermocline_fleet._layout import AGE_EDGES_S, COLUMNS, HOUR_MS, NR_AGES, day, plain_name

START_MS = 1_780_272_000_000
"""2026-06-01T00:00:00Z, a Monday."""
INTERVAL_MS = 300_000
PAGE = 4096
MIB = 1 << 20


@dataclass(frozen=True)
class Job:
    """A class of jobs. `idle` are weights of the buckets of idle ages; `again` is the share of each bucket
    that is accessed again in a minute."""

    workload: str
    resident: int
    idle: tuple[float, ...]
    again: tuple[float, ...]
    file_share: float = 0.0
    namespace: str | None = "default"


def _ages(*pairs: tuple[int, float]) -> tuple[float, ...]:
    values = dict(pairs)
    return tuple(values.get(edge, 0.0) for edge in AGE_EDGES_S)


JOBS = (
    Job(
        "web", 512 * MIB, _ages((0, 50), (60, 20), (600, 20), (3600, 10)), _ages((60, 0.01), (600, 1e-5)), 0.5
    ),
    Job("cache", 2048 * MIB, _ages((0, 60), (120, 10), (1800, 30)), _ages((120, 0.02), (1800, 1e-6))),
    Job("batch", 1024 * MIB, _ages((0, 95), (10, 5)), _ages((10, 0.5)), 0.1, "jobs"),
    Job("idle", 64 * MIB, _ages((0, 10), (7200, 90)), _ages((7200, 1e-7)), 0.2, None),
)


@dataclass(frozen=True)
class Host:
    """A node. `policies` gives the mode, policy and minimum age of a class; others observe."""

    number: int
    cluster: str = "east"
    jobs: tuple[Job, ...] = JOBS
    swap_cost: float | None = 0.3
    policies: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    growth: float = 0.0
    """Growth of resident memory in a week, as a share."""

    @property
    def node(self) -> str:
        return f"{self.cluster}-{self.number}"


def hosts(count: int, **others: Any) -> list[Host]:
    """Hosts with two jobs each. Every third one is in the cluster `west`; every fourth has no swap."""
    return [
        Host(
            number,
            "west" if number % 3 == 2 else "east",
            (JOBS[number % 4], JOBS[(number + 1) % 4]),
            None if number % 4 == 3 else 0.25 + number % 2 / 10,
            **others,
        )
        for number in range(count)
    ]


def rows_of(host: Host, window_ms: int, length_ms: int = HOUR_MS, seed: int = 1) -> list[dict[str, Any]]:
    """The rows of a node and a window."""
    rows = []
    for end in range(window_ms + INTERVAL_MS, window_ms + length_ms + 1, INTERVAL_MS):
        rows += [_target(host, nth, job, end, seed) for nth, job in enumerate(host.jobs)]
        rows.append(_agent(host, end))
    return rows


def _target(host: Host, nth: int, job: Job, end: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng([seed, host.number, nth, end // INTERVAL_MS])
    weeks = (end - START_MS) / (7 * 24 * HOUR_MS)
    size = job.resident * (1 + host.number % 5 / 10) * (1 + host.growth * weeks) * random.uniform(0.95, 1.05)
    weights = np.array(job.idle) * random.uniform(0.9, 1.1, NR_AGES)
    pages = (weights / weights.sum() * size / PAGE).astype(np.int64)
    mode, policy, min_age_s = host.policies.get(job.workload, ("observe", "watch", 0))
    idle = pages * PAGE
    again = (pages * np.array(job.again) * INTERVAL_MS / 60_000).astype(np.int64) * PAGE
    out = 0
    if mode == "act":
        leaving = np.array(AGE_EDGES_S) >= min_age_s
        out = int(idle[leaving].sum())
        idle = np.where(leaving, 0, idle)
    unknown = PAGE * int(random.integers(0, 100))
    return {
        "time_ms": end,
        "interval_ms": INTERVAL_MS,
        "row": "target",
        "node": host.node,
        "namespace": job.namespace,
        "pod": None,
        "container": None,
        "workload": job.workload,
        "target": f"{job.workload}.service",
        "policy": policy,
        "mode": mode,
        "min_age_ms": min_age_s * 1000 if min_age_s else None,
        "processes": 3,
        "resident_bytes": int(idle.sum()) + unknown,
        "swap_bytes": out,
        "unknown_bytes": unknown,
        "working_set_bytes": int(idle[:6].sum()),
        "idle_bytes": idle.tolist(),
        "idle_file_bytes": (idle // PAGE * job.file_share).astype(np.int64).__mul__(PAGE).tolist(),
        "reaccess_bytes": again.tolist(),
        "pass_ms": 5000,
        "paged_out_bytes": out // 100,
        "would_page_out_bytes": None,
        "back_bytes": out // 1000,
        "out_bytes": out,
        "out_swap_bytes": out,
        "net_saved_bytes": out - int(out * (host.swap_cost or 0)),
        "swap_cost": host.swap_cost,
        "watching_cpu_us": 3000,
        "acting_cpu_us": 100 if out else 0,
    }


def _agent(host: Host, end: int) -> dict[str, Any]:
    zeros = [0] * NR_AGES
    number = {column.name: 0 for column in COLUMNS}
    texts = {"row": "agent", "node": host.node, "target": "thermo-agent", "workload": "thermo-agent"}
    lists = {name: zeros for name in ("idle_bytes", "idle_file_bytes", "reaccess_bytes")}
    nulls = dict.fromkeys(
        ("namespace", "pod", "container", "min_age_ms", "pass_ms", "would_page_out_bytes", "swap_cost")
    )
    own = {
        "resident_bytes": 20 * MIB + host.number * PAGE,
        "watching_cpu_us": 9000 + host.number,
        "processes": 1,
    }
    time = {"time_ms": end, "interval_ms": INTERVAL_MS, "policy": "", "mode": "observe"}
    return {**number, **texts, **lists, **nulls, **own, **time}


def path_of(folder: Path, host: Host, window_ms: int) -> Path:
    """Where the file of a node and a window belongs."""
    place = folder / f"date={day(window_ms)}" / f"cluster={plain_name(host.cluster)}"
    return place / f"{plain_name(host.node)}.{window_ms // 1000}.v1.parquet"


def metadata_of(host: Host, window_ms: int, rows: int, length_ms: int = HOUR_MS) -> dict[str, str]:
    return {
        "schema": "1",
        "cluster": host.cluster,
        "node": host.node,
        "window_start_ms": str(window_ms),
        "window_ms": str(length_ms),
        "interval_ms": str(INTERVAL_MS),
        "written_ms": str(window_ms + length_ms + 1000),
        "rows": str(rows),
        "age_edges_s": ",".join(map(str, AGE_EDGES_S)),
        "link": f"https://dash.example/{host.node}",
        "program": "thermo 0.1.0",
    }


def write_file(path: Path, rows: list[dict[str, Any]], metadata: dict[str, str]) -> Path:
    """Writes rows with this metadata, whatever it says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = {f"thermo.fleet.{key}": value for key, value in metadata.items()}
    table = pa.Table.from_pylist(rows, COLUMNS.with_metadata(texts))
    pq.write_table(table, path, compression="zstd")
    return path


def write(
    folder: Path, fleet: list[Host], windows: int, start_ms: int = START_MS, seed: int = 1
) -> list[Path]:
    """Writes the files of all hosts and of windows of an hour."""
    return list(_write(folder, fleet, windows, start_ms, seed))


def _write(folder: Path, fleet: list[Host], windows: int, start_ms: int, seed: int) -> Iterator[Path]:
    for host in fleet:
        for nth in range(windows):
            window = start_ms + nth * HOUR_MS
            rows = rows_of(host, window, seed=seed)
            yield write_file(path_of(folder, host, window), rows, metadata_of(host, window, len(rows)))


def with_policy(host: Host, workload: str, mode: str, policy: str, min_age_s: int) -> Host:
    """The host with a policy for one of its classes."""
    return replace(host, policies={**host.policies, workload: (mode, policy, min_age_s)})
