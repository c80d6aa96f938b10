"""Writes recordings for tests: rows of the table that crates/recording/src/row.rs describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

Row = dict[str, Any]

EDGES_S = [0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400]
METADATA: Row = {
    "schema": 2,
    "writer": "thermo 0.1.0",
    "kernel": "6.1.0",
    "arch": "x86_64",
    "tracker": "sim",
    "tracker_reason": "a test",
    "seed": 42,
    "wall_clock_offset_ns": 1_700_000_000_000_000_000,
    "start_ns": 1000,
    "targets": "pid 7",
    "settings": {
        "sample_ns": 5_000_000,
        "aggr_ns": 100_000_000,
        "update_ns": 1_000_000_000,
        "min_nr_regions": 10,
        "max_nr_regions": 1000,
        "cpu_budget_percent": 1.5,
    },
    "schemes": [],
}
_FIELDS: list[Any] = [
    pa.field("kind", pa.uint8(), False),
    pa.field("time_ns", pa.uint64(), False),
    pa.field("target", pa.uint32()),
    pa.field("pid", pa.uint32()),
    pa.field("start", pa.uint64()),
    pa.field("end", pa.uint64()),
    pa.field("nr_accesses", pa.uint32()),
    pa.field("max_nr_accesses", pa.uint32()),
    pa.field("age", pa.uint32()),
    pa.field("unknown", pa.bool_()),
    pa.field("name", pa.string()),
    pa.field("text", pa.string()),
    pa.field("values", pa.list_(pa.field("item", pa.uint64(), False)), False),
]
COLUMNS = pa.schema(_FIELDS)


def row(kind: int, time_ns: int, *values: int, **columns: Any) -> Row:
    return {"kind": kind, "time_ns": time_ns, "values": list(values), **columns}


def region(time_ns: int, start: int, pages: int, nr_accesses: int, age: int, **columns: Any) -> Row:
    given = {"target": 0, "pid": 7, "max_nr_accesses": 20, "unknown": False, **columns}
    return row(2, time_ns, start=start, end=start + pages * 4096, nr_accesses=nr_accesses, age=age, **given)


def snapshot(number: int) -> list[Row]:
    """The snapshot `number` of two targets; the second one has neither regions nor access tables."""
    time_ns, ages = (number + 1) * 100_000_000, [0] * len(EDGES_S)
    common = {"target": 0, "pid": 7, "max_nr_accesses": 20}
    return [
        row(0, time_ns, number * 100_000_000, 100_000_000, max_nr_accesses=20),
        row(1, time_ns, 1, 4096, **common),
        row(10, time_ns, 130_000_000, 7, 60_000_000, 0, 0, 0, 12288, 0, 0, name="scan", **common),
        row(11, time_ns, 8192, *ages[1:-1], 4096, name="anon", **common),
        row(11, time_ns, *ages[:2], 2 << 20, *ages[3:], name="file_huge", **common),
        row(12, time_ns, *ages[:4], 16384, *ages[5:], **common),
        region(time_ns, 0x1000, 4, 20, 3),
        region(time_ns, 0x7FFF_0000_0000, 9, 0, 250),
        row(1, time_ns, 0, 4096, target=1, max_nr_accesses=20),
    ]


def events() -> list[Row]:
    """A record of each other kind."""
    time_ns = 250_000_000
    return [
        row(9, time_ns, name="target_appeared", text='it is thére, "quoted"\n'),
        row(9, time_ns, name="plan", text="scan every page"),
        row(3, time_ns, target=0),
        row(4, time_ns, target=0, start=0x1000, end=0x5000, name="[heap]"),
        row(5, time_ns, 9 << 30, 5 << 20, 1, target=0),
        row(6, time_ns, 12, 11, 4 << 20),
        row(7, time_ns, 1, 1, 2, 3, 4, 5, 6, 7, 8, name="pageout"),
        row(8, time_ns, 4096, name="young"),
        row(8, time_ns, 2**64 - 1, name="shared"),
        row(13, time_ns, name="machine"),
        row(14, time_ns, 5 << 30, name="free"),
        row(14, time_ns, 3 << 30, name="mapped, monitored"),
    ]


def write(path: Path, batches: list[list[Row]], metadata: Row | None = None) -> Path:
    """Writes a recording with its end mark, compressed as `thermo record` does it."""
    described = {
        "thermo": json.dumps(metadata or METADATA),
        "thermo.age_edges_s": json.dumps(EDGES_S),
    }
    schema = COLUMNS.with_metadata(described)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema, options=options) as stream:
        for rows in batches:
            stream.write_batch(pa.RecordBatch.from_pylist(rows, schema))
    return path
