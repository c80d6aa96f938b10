"""Selects rows of a recording by kind, and takes their columns and values apart.

All records of a recording are rows of one table; docs/reference/formats.md describes it. Rows of a record
follow each other: a row of a target belongs to the last row of kind `SNAPSHOT` before it, and so on.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pyarrow as pa
from pyarrow import compute

pc: Any = compute
"""The functions of Arrow. Their stubs refuse Python's numbers and texts, which the functions take."""

SNAPSHOT, TARGET, REGION, MAPPING, FOOTPRINT, COST = 0, 1, 2, 4, 5, 6
SCHEME, SKIPPED, NOTE, TABLES, IDLE_AGES, REACCESSED, TOTALS, TOTALS_ROW = 7, 8, 9, 10, 11, 12, 13, 14

Array = Any
"""An Arrow array or chunked array. Their types differ between versions of pyarrow."""


class Inconsistent(Exception):
    """Rows that cannot be: the recording is damaged, or written by another program."""


class Table:
    """The table of a recording, with what is derived from its order once."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.kind: Array = one_chunk(rows.column("kind"))
        self._ordinals: dict[int, Array] = {}

    def of_kind(self, kind: int) -> Rows:
        """The rows of one kind, in order."""
        return Rows(self, pc.indices_nonzero(pc.equal(self.kind, pa.scalar(kind, pa.uint8()))))

    def ordinals(self, kind: int) -> Array:
        """For each row of the table, the number of rows of `kind` up to and with it."""
        if kind not in self._ordinals:
            is_kind = pc.equal(self.kind, pa.scalar(kind, pa.uint8()))
            self._ordinals[kind] = pc.cumulative_sum(pc.cast(is_kind, pa.int64()))
        return self._ordinals[kind]


class Rows:
    """Some rows of the table."""

    def __init__(self, table: Table, indices: Array) -> None:
        self._table = table
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, indices: Array) -> Rows:
        """The rows with these positions among these."""
        return Rows(self._table, self.indices.take(indices))

    def where(self, mask: Array) -> Rows:
        """The rows where `mask` is true."""
        return Rows(self._table, self.indices.filter(mask))

    def column(self, name: str) -> Array:
        """A column. Raises `Inconsistent` if a row lacks a value that all rows of its kind have."""
        return one_chunk(self._table.rows.column(name)).take(self.indices)

    def needed(self, name: str) -> Array:
        """A column in which no value may be missing."""
        column = self.column(name)
        if column.null_count:
            raise Inconsistent(f"a row has no {name}")
        return column

    @cached_property
    def _values(self) -> tuple[Array, Array, Array]:
        """Where the values of each row begin, how many there are, and the values of all rows."""
        lists = one_chunk(self._table.rows.column("values"))
        starts = lists.offsets.slice(0, len(lists)).take(self.indices)
        return pc.cast(starts, pa.int64()), pc.list_value_length(lists).take(self.indices), lists.values

    def value(self, nth: int) -> Array:
        """The value `nth` of each row. Raises `Inconsistent` if a row has fewer."""
        values = self.value_or_null(nth)
        if values.null_count:
            raise Inconsistent(f"a row has too few values: value {nth} is missing")
        return values

    def value_or_null(self, nth: int) -> Array:
        """The value `nth` of each row, null where a row has fewer."""
        starts, lengths, values = self._values
        indices = pc.if_else(pc.greater(lengths, nth), pc.add(starts, nth), None)
        return values.take(indices)

    def all_values(self, count: int) -> Array:
        """The values of all rows in one array, `count` of each. Raises `Inconsistent` if a row has others."""
        starts, lengths, values = self._values
        if not pc.all(pc.equal(lengths, count)).as_py() and len(self):
            raise Inconsistent(f"a row does not have {count} values")
        return values.take(pc.add(repeat(starts, count), cycle(count, len(self))))

    def head(self, kind: int) -> Array:
        """For each row, the position among all rows of `kind` of the last one up to it."""
        ordinals = pc.subtract(self._table.ordinals(kind).take(self.indices), 1)
        if len(self) and pc.min(ordinals).as_py() < 0:
            raise Inconsistent(f"a row comes before the first row of kind {kind} that it belongs to")
        return ordinals

    def count_behind(self, kind: int) -> Array:
        """For each row, the number of rows of `kind` between it and the next one of these."""
        if not len(self):
            return pa.array([], pa.int64())
        ordinals = self._table.ordinals(kind)
        counts, total = ordinals.take(self.indices), ordinals[-1].as_py()
        return pc.subtract(pa.concat_arrays([counts.slice(1), pa.array([total], pa.int64())]), counts)


def one_chunk(column: Array) -> Array:
    """A chunked array as one array."""
    chunks = column.combine_chunks()
    return pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks


def repeat(values: Array, times: int) -> Array:
    """Each value so many times: a, a, b, b."""
    return values.take(pc.divide(_count(len(values) * times), times))


def cycle(length: int, times: int) -> Array:
    """The numbers below `length`, so many times: 0, 1, 0, 1."""
    numbers = _count(length * times)
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, length), length))


def _count(length: int) -> Array:
    """The numbers below `length`."""
    ones = pa.array([], pa.int64()) if not length else pa.repeat(pa.scalar(1, pa.int64()), length)
    return pc.subtract(pc.cumulative_sum(ones), 1)
