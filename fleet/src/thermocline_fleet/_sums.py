"""The first sums, in executors: rows of many files become sums by file, hour and class.

A row of the output is a file, or a sum over rows of one file. Sums keep the path of their file: whether a
file is a duplicate shows only later, when all files are known.

Ages are summed from the oldest bucket downward: `cold_I` are the bytes that were idle for edge I or longer,
`file_I` those of them that belong to files, and `again_I` the bytes that were accessed again after being idle
for edge I or longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ._files import File, Reading, read_file
from ._layout import FIRST_AGE, HOUR_MS, NR_AGES

FILE, CLASS, TARGET, POLICY, AGENT = range(5)
"""Kinds of rows of the output."""

AGES = range(NR_AGES)
ADVISED = range(FIRST_AGE, NR_AGES)
"""Indices of all ages, and of those that can be advised."""

NO_CLASS = "(none)"
"""The class of rows whose column is empty or null."""

MAX_FILES, MAX_ROWS = 256, 50_000
"""Files and rows that are summed at once."""

_TEXTS = ["path", "cluster", "node", "reason", "detail", "link", "class", "target", "policy"]
_FACTS = ["window_start_ms", "window_end_ms", "written_ms", "size_bytes"]
_TIMES = ["hour", "min_age_ms", "rows", "instants", "covered_ms"]
_BYTES = [
    "resident",
    "swap",
    "unknown",
    "working_set",
    "paged_out",
    "came_back",
    "out",
    "out_swap",
    "net_saved",
]
_OTHERS = ["pass_ms", "pass_rows", "swap_cost_rows", "watching_us", "acting_us", "peak_resident"]
_AGES = [f"{name}_{age}" for name in ("cold", "file", "again") for age in AGES]
_PEAKS = [f"peak_{age}" for age in ADVISED]

_TYPES: dict[str, pa.DataType] = {
    "kind": pa.int8(),
    **dict.fromkeys(_TEXTS, pa.string()),
    "acting": pa.bool_(),
    **dict.fromkeys((*_FACTS, *_TIMES, *_BYTES, *_OTHERS, *_AGES, *_PEAKS), pa.int64()),
    "swap_cost": pa.float64(),
}

OUTPUT = pa.schema(_TYPES)
"""Columns of the output. A column that a kind does not have is null."""

Array = np.ndarray[Any, np.dtype[Any]]
Columns = dict[str, Any]


def sum_files(reading: Reading) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`, from batches of `path` and `size` to batches of `OUTPUT`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pending: list[File] = []
        rows = 0
        for batch in batches:
            paths, sizes = batch.column("path").to_pylist(), batch.column("size").to_pylist()
            for path, size in zip(map(str, paths), sizes, strict=True):
                file = read_file(reading, path, int(size or 0))
                if file is None:
                    continue
                pending.append(file)
                rows += file.rows.num_rows
                if len(pending) >= MAX_FILES or rows >= MAX_ROWS:
                    yield from sums(pending, reading)
                    pending, rows = [], 0
        if pending:
            yield from sums(pending, reading)

    return run


def sums(files: list[File], reading: Reading) -> Iterator[pa.RecordBatch]:
    """The files, and the sums over their rows, as batches of `OUTPUT`."""
    lengths = [file.rows.num_rows for file in files]
    rows = pa.concat_tables([file.rows for file in files]).combine_chunks()
    of_file = np.repeat(np.arange(len(files)), lengths)
    # A row belongs to the hour that holds the middle of its interval, whatever end belongs to a window.
    middle = rows["time_ms"].to_numpy() - rows["interval_ms"].to_numpy() // 2
    within = np.ones(len(middle), dtype=bool)
    if reading.from_ms is not None:
        within &= middle >= reading.from_ms
    if reading.to_ms is not None:
        within &= middle < reading.to_ms
    if not within.all():
        rows, of_file, middle = rows.filter(pa.array(within)), of_file[within], middle[within]
    batch = _Rows(files, rows, of_file, middle // HOUR_MS)
    yield batch.files_table()
    if rows.num_rows:
        is_agent = batch.texts("row") == "agent"
        agents, targets = batch.where(is_agent), batch.where(~is_agent)
        parts = []
        if agents.nr_rows:
            parts.append(agents.agent_sums())
        if targets.nr_rows:
            acting = targets.texts("mode") == "act"
            classes = targets.classes(reading.class_by)
            parts += [targets.class_sums(classes, acting), targets.target_sums(classes)]
            if acting.any():
                parts.append(targets.where(acting).policy_sums(classes[acting]))
        yield from parts


class _Rows:
    """Rows of several files. `of_file` is the index of each row's file, `hour` its hour since 1970."""

    def __init__(self, files: list[File], rows: pa.Table, of_file: Array, hour: Array) -> None:
        self.files, self.rows, self.of_file, self.hour = files, rows, of_file, hour

    @property
    def nr_rows(self) -> int:
        return self.rows.num_rows

    def where(self, mask: Array) -> _Rows:
        return _Rows(self.files, self.rows.filter(pa.array(mask)), self.of_file[mask], self.hour[mask])

    def texts(self, name: str) -> Array:
        return self.rows[name].to_numpy().astype(object)

    def numbers(self, name: str) -> Array:
        return self.rows[name].to_numpy()

    def nullable(self, name: str, default: float = 0) -> tuple[Array, Array]:
        """Values of a column with nulls as `default`, and where there are values."""
        column = self.rows[name]
        return pc.fill_null(column, pa.scalar(default, column.type)).to_numpy(), column.is_valid().to_numpy()

    def ages(self, name: str) -> Array:
        """For each row, the bytes of each age or older."""
        chunks: Any = self.rows[name].chunks
        matrix = np.concatenate([chunk.flatten().to_numpy() for chunk in chunks]).reshape(-1, NR_AGES)
        return np.cumsum(matrix[:, ::-1], axis=1)[:, ::-1]

    def classes(self, class_by: str) -> Array:
        found = self.texts(class_by)
        return np.array([name or NO_CLASS for name in found], dtype=object)

    def files_table(self) -> pa.RecordBatch:
        """A row for each file, with the time that its rows cover."""
        count = len(self.files)
        instants, covered = self.coverage([self.of_file], np.arange(count))
        rows = np.bincount(self.of_file, minlength=count)
        known = [file.metadata for file in self.files]
        columns: Columns = {
            "path": [file.path for file in self.files],
            "cluster": [file.cluster for file in self.files],
            "size_bytes": [file.size for file in self.files],
            "reason": [file.reason and file.reason.value for file in self.files],
            "detail": [file.detail for file in self.files],
            "rows": rows,
            "instants": instants,
            "covered_ms": covered,
        }
        for name in ("node", "window_start_ms", "window_end_ms", "written_ms", "link"):
            columns[name] = [None if found is None else getattr(found, name) for found in known]
        return _batch(FILE, count, columns)

    def coverage(self, keys: list[Array], groups: Array) -> tuple[Array, Array]:
        """For each group, the number of its distinct times, and the milliseconds that their intervals cover.

        `keys` give the group of each row as a number; `groups` are all groups in order.
        """
        key = keys[0]
        order = np.lexsort((self.numbers("interval_ms"), self.numbers("time_ms"), key))
        key, time = key[order], self.numbers("time_ms")[order]
        interval = self.numbers("interval_ms")[order]
        # The last of equal times has the longest interval.
        last = np.ones(len(key), dtype=bool)
        last[:-1] = (key[1:] != key[:-1]) | (time[1:] != time[:-1])
        count = len(groups)
        instants = np.bincount(key[last], minlength=count)
        covered = np.zeros(count, dtype=np.int64)
        np.add.at(covered, key[last], interval[last])
        return instants, covered

    def group(self, *keys: Array) -> _Groups:
        return _Groups(self, [self.of_file, *keys])

    def class_sums(self, classes: Array, acting: Array) -> pa.RecordBatch:
        groups = self.group(self.hour, classes, acting)
        first = groups.first
        columns = groups.identity() | {
            "hour": self.hour[first],
            "class": classes[first],
            "acting": acting[first],
        }
        columns |= groups.sums_of("resident", "swap", "unknown", "working_set")
        for name, column in (("cold", "idle"), ("file", "idle_file"), ("again", "reaccess")):
            columns |= groups.sums_of_ages(name, self.ages(f"{column}_bytes"))
        passes, known = self.nullable("pass_ms")
        columns |= {"pass_ms": groups.sum(passes), "pass_rows": groups.sum(known.astype(np.int64))}
        costs, known = self.nullable("swap_cost", 0.0)
        columns |= {"swap_cost": groups.sum(costs), "swap_cost_rows": groups.sum(known.astype(np.int64))}
        columns |= groups.cpu()
        return _batch(CLASS, groups.count, columns)

    def target_sums(self, classes: Array) -> pa.RecordBatch:
        """The hour's peak of resident memory, and of what remains at each age. Several groups or processes of
        one target at the same time are summed before."""
        targets = self.texts("target")
        moments = self.group(self.numbers("time_ms"), self.hour, classes, targets)
        resident = moments.sum(self.numbers("resident_bytes"))
        cold = moments.sum(self.ages("idle_bytes")[:, FIRST_AGE:])
        at = _Rows(
            self.files, self.rows.take(moments.first), self.of_file[moments.first], self.hour[moments.first]
        )
        classes, targets = classes[moments.first], targets[moments.first]
        groups = at.group(at.hour, classes, targets)
        first = groups.first
        columns = groups.identity() | {
            "hour": at.hour[first],
            "class": classes[first],
            "target": targets[first],
        }
        columns |= {"resident": groups.sum(resident), "peak_resident": groups.max(resident)}
        peaks = groups.max(resident[:, None] - cold)
        columns |= {name: peaks[:, nth] for nth, name in enumerate(_PEAKS)}
        return _batch(TARGET, groups.count, columns)

    def policy_sums(self, classes: Array) -> pa.RecordBatch:
        policies = self.texts("policy")
        ages, known = self.nullable("min_age_ms", -1)
        groups = self.group(classes, policies, ages)
        first = groups.first
        columns = groups.identity() | {"class": classes[first], "policy": policies[first]}
        columns["min_age_ms"] = pa.array(ages[first], pa.int64(), mask=~known[first])
        columns |= groups.sums_of("paged_out", "out", "out_swap", "net_saved") | groups.cpu()
        columns["came_back"] = groups.sum(self.numbers("back_bytes"))
        return _batch(POLICY, groups.count, columns)

    def agent_sums(self) -> pa.RecordBatch:
        groups = self.group()
        return _batch(AGENT, groups.count, groups.identity() | groups.sums_of("resident") | groups.cpu())


class _Groups:
    """Rows grouped by keys. `first` is the index of the first row of each group."""

    def __init__(self, rows: _Rows, keys: list[Array]) -> None:
        self.rows = rows
        combined = np.zeros(rows.nr_rows, dtype=np.int64)
        for key in keys:
            values, codes = _codes(key)
            combined = combined * values + codes
            # Codes stay small, so that products of many keys cannot overflow.
            combined = np.unique(combined, return_inverse=True)[1]
        _, self.first, self.of_row = np.unique(combined, return_index=True, return_inverse=True)
        self.count = len(self.first)
        self.order = np.argsort(self.of_row, kind="stable")
        self.starts = np.searchsorted(self.of_row[self.order], np.arange(self.count))

    def sum(self, values: Array) -> Array:
        """Sums by group, of each column of `values`."""
        result: Array = np.add.reduceat(values[self.order], self.starts, axis=0)
        return result

    def max(self, values: Array) -> Array:
        """Maxima by group."""
        result: Array = np.maximum.reduceat(values[self.order], self.starts, axis=0)
        return result

    def identity(self) -> Columns:
        """What every sum has: its file, number of rows, and the time that they cover."""
        files = [self.rows.files[nth] for nth in self.rows.of_file[self.first]]
        instants, covered = self.rows.coverage([self.of_row], np.arange(self.count))
        return {
            "path": [file.path for file in files],
            "cluster": [file.cluster for file in files],
            "node": [file.metadata.node if file.metadata else None for file in files],
            "rows": np.bincount(self.of_row, minlength=self.count),
            "instants": instants,
            "covered_ms": covered,
        }

    def sums_of(self, *names: str) -> Columns:
        return {name: self.sum(self.rows.numbers(f"{name}_bytes")) for name in names}

    def sums_of_ages(self, name: str, values: Array) -> Columns:
        sums = self.sum(values)
        return {f"{name}_{age}": sums[:, age] for age in AGES}

    def cpu(self) -> Columns:
        names = {"watching_us": "watching_cpu_us", "acting_us": "acting_cpu_us"}
        return {name: self.sum(self.rows.numbers(column)) for name, column in names.items()}


def _codes(key: Array) -> tuple[int, Array]:
    """Number of distinct values of a key, and the code of each row's value."""
    if key.dtype == object:
        encoded = pa.array(key, pa.string()).dictionary_encode()
        return len(encoded.dictionary), encoded.indices.to_numpy().astype(np.int64)
    values, codes = np.unique(key, return_inverse=True)
    return len(values), codes


def _batch(kind: int, count: int, columns: Columns) -> pa.RecordBatch:
    arrays: list[pa.Array[Any]] = []
    for column in OUTPUT:
        if column.name == "kind":
            arrays.append(pa.array(np.full(count, kind, dtype=np.int8)))
        elif column.name in columns:
            values = columns[column.name]
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, column.type))
        else:
            arrays.append(pa.nulls(count, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=OUTPUT)
