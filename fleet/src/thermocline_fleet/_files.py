"""Reads one file whole, or says why it is set aside."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ._layout import (
    COLUMNS,
    HOUR_MS,
    MAX_NAME,
    MAX_VALUE,
    NAME,
    NR_AGES,
    SCHEMA,
    UNUSED,
    Foreign,
    Metadata,
    OtherSchema,
    day,
    parse_metadata,
    plain_name,
)
from ._store import read_bytes

MAX_UNCOMPRESSED = 256 << 20
"""Bytes of a file's columns, and of the names in its rows. A file of a node and a window is far smaller."""

_READ = pa.schema([column for column in COLUMNS if column.name not in UNUSED])
_LISTS = [column.name for column in _READ if pa.types.is_list(column.type)]
_TEXTS = [column.name for column in _READ if pa.types.is_string(column.type)]


class Reason(StrEnum):
    """Why a file is set aside."""

    TRUNCATED = "truncated"
    """It cannot be read to its end, or is not what its metadata says."""
    FUTURE_SCHEMA = "future_schema"
    """A newer agent wrote it."""
    FOREIGN = "foreign"
    """It is Parquet, but no agent wrote it."""
    WRONG_PARTITION = "wrong_partition"
    """It lies in the folder of another day or cluster."""
    LATE = "late"
    """It was written too long after the end of its window."""
    DUPLICATE = "duplicate"
    """A newer file has the same cluster, node and window."""


@dataclass(frozen=True)
class Reading:
    """What is read, and how. Times are Unix time in milliseconds."""

    uri: str
    class_by: str = "workload"
    from_ms: int | None = None
    to_ms: int | None = None
    late_after_ms: int = 2 * 24 * HOUR_MS

    def overlaps(self, start_ms: int, end_ms: int) -> bool:
        """Whether a window has time in the range."""
        after = self.from_ms is None or end_ms > self.from_ms
        return after and (self.to_ms is None or start_ms < self.to_ms)


@dataclass
class File:
    """A file: what it says about itself, and its rows, or the reason why it is set aside."""

    path: str
    size: int
    cluster: str
    metadata: Metadata | None = None
    reason: Reason | None = None
    detail: str = ""
    rows: pa.Table = field(default_factory=_READ.empty_table)

    def set_aside(self, reason: Reason, detail: str) -> File:
        self.reason, self.detail, self.rows = reason, detail, _READ.empty_table()
        return self


def read_file(reading: Reading, path: str, size: int) -> File | None:
    """A file of the store; `None` if its window is not in the range.

    Raises `StoreError`: only what was read can be judged.
    """
    date, cluster = _folder(path)
    file = File(path, size, cluster)
    named = NAME.fullmatch(path.rpartition("/")[2])
    if named is not None:
        start = int(named["start"]) * 1000
        # Without its metadata, the length of a window is not known; the usual one is an hour.
        if not reading.overlaps(start, start + HOUR_MS) and (
            reading.to_ms is not None and start >= reading.to_ms
        ):
            return None
        if int(named["version"]) > SCHEMA:
            version = f"its name says schema version {named['version']}; this package reads {SCHEMA}"
            return (
                file.set_aside(Reason.FUTURE_SCHEMA, version)
                if reading.overlaps(start, start + HOUR_MS)
                else None
            )
    data = read_bytes(reading.uri, path)
    try:
        file.metadata, file.rows = _parse(data, reading)
    except OtherSchema as error:
        file.set_aside(Reason.FUTURE_SCHEMA, str(error))
    except Foreign as error:
        file.set_aside(Reason.FOREIGN, str(error))
    except MemoryError:
        # It says nothing about the file. Arrow's own is an ArrowException as well.
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        file.set_aside(Reason.TRUNCATED, " ".join(str(error).split())[:200])
    if file.metadata is None:
        known_outside = named is not None and not reading.overlaps(start, start + HOUR_MS)
        return None if known_outside else file
    found = file.metadata
    if not reading.overlaps(found.window_start_ms, found.window_end_ms):
        return None
    if (day(found.window_start_ms), plain_name(found.cluster)) != (date, cluster):
        expected = f"date={day(found.window_start_ms)}/cluster={plain_name(found.cluster)}"
        return file.set_aside(Reason.WRONG_PARTITION, f"it belongs into {expected}")
    if found.written_ms - found.window_end_ms > reading.late_after_ms:
        hours = (found.written_ms - found.window_end_ms) / HOUR_MS
        return file.set_aside(Reason.LATE, f"it was written {hours:.1f} h after the end of its window")
    return file


def _folder(path: str) -> tuple[str, str]:
    """Day and cluster of a path."""
    values = dict(part.split("=", 1) for part in path.split("/") if "=" in part)
    return values.get("date", ""), values.get("cluster", "")


def _parse(data: bytes, reading: Reading) -> tuple[Metadata, pa.Table]:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        metadata = parse_metadata(file.metadata.metadata)
        if not reading.overlaps(metadata.window_start_ms, metadata.window_end_ms):
            return metadata, _READ.empty_table()
        _check_claims(file.metadata, metadata)
        missing = set(_READ.names) - set(file.schema_arrow.names)
        if missing:
            raise ValueError(f"it lacks the columns {', '.join(sorted(missing))}")
    # A dictionary of names takes what the file holds. Written out, each row would repeat them.
    with pq.ParquetFile(
        pa.BufferReader(data), read_dictionary=_TEXTS, page_checksum_verification=True
    ) as file:
        rows = file.read(columns=_READ.names, use_threads=False).select(_READ.names)
    _check_names(rows)
    rows = rows.cast(_READ).combine_chunks()
    _check_rows(rows, metadata)
    return metadata, rows


def _check_claims(footer: pq.FileMetaData, metadata: Metadata) -> None:
    """Raises `ValueError` if the columns would be too large, by what the footer says of them."""
    if footer.num_rows != metadata.rows:
        raise ValueError(f"it has {footer.num_rows} rows; its metadata says {metadata.rows}")
    size = 0
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            size += column.total_uncompressed_size
            if column.num_values > footer.num_rows * NR_AGES:
                name, values = column.path_in_schema, column.num_values
                raise ValueError(f"column {name} claims {values} values in {footer.num_rows} rows")
    if size > MAX_UNCOMPRESSED:
        raise ValueError(f"its footer claims {size} bytes, more than {MAX_UNCOMPRESSED}")


def _check_names(rows: pa.Table) -> None:
    """Raises `ValueError` if the names of the rows would be too large once they are written out."""
    size = 0
    for name in _TEXTS:
        chunks: list[Any] = rows.column(name).chunks
        for chunk in chunks:
            if not pa.types.is_dictionary(chunk.type):
                raise ValueError(f"column {name} has no text")
            lengths: Any = pc.binary_length(chunk.dictionary)
            longest = pc.max(lengths).as_py() or 0
            if longest > MAX_NAME:
                raise ValueError(f"column {name} has a value of {longest} bytes, more than {MAX_NAME}")
            size += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    if size > MAX_UNCOMPRESSED:
        raise ValueError(f"its names take {size} bytes, more than {MAX_UNCOMPRESSED}")


def _check_rows(rows: pa.Table, metadata: Metadata) -> None:
    """Raises `ValueError` if rows contradict each other or the metadata."""
    if rows.num_rows != metadata.rows:
        raise ValueError(f"{rows.num_rows} of {metadata.rows} rows can be read")
    if rows.num_rows == 0:
        return
    for column in _READ:
        if not column.nullable and rows.column(column.name).null_count:
            raise ValueError(f"column {column.name} has nulls")
    for name in _LISTS:
        lists: Any = rows.column(name).chunk(0)
        if (np.diff(lists.offsets.to_numpy()) != NR_AGES).any():
            raise ValueError(f"column {name} has a list that is not of {NR_AGES} values")
    if not pc.all(pc.equal(rows["node"], pa.scalar(metadata.node))).as_py():
        raise ValueError("it has rows of another node")
    for column in _READ:
        _check_values(column.name, rows.column(column.name).chunk(0))
    target, agent = (pc.equal(rows["row"], pa.scalar(kind)) for kind in ("target", "agent"))
    if not pc.all(pc.or_(target, agent)).as_py():
        raise ValueError("it has rows of an unknown kind")
    times, intervals = rows["time_ms"].to_numpy(), rows["interval_ms"].to_numpy()
    begin, end = times - intervals, times
    if (intervals <= 0).any() or (end <= metadata.window_start_ms - metadata.interval_ms).any():
        raise ValueError("it has rows of a time before its window")
    if (begin >= metadata.window_end_ms + metadata.interval_ms).any():
        raise ValueError("it has rows of a time after its window")


def _check_values(name: str, values: Any) -> None:
    """Raises `ValueError` if a sum over a fleet could not hold a number."""
    if pa.types.is_list(values.type):
        values = values.flatten()
    if pa.types.is_string(values.type):
        return
    bounds: Any = pc.min_max(values)
    least, largest = bounds["min"].as_py(), bounds["max"].as_py()
    # A number that is none has no order either.
    if largest is not None and not -MAX_VALUE <= least <= largest <= MAX_VALUE:
        raise ValueError(f"column {name} has the values {least} to {largest}")
