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

MAX_UNCOMPRESSED = 1 << 30
"""A file of a node and a window is far smaller. A footer that claims more is damaged, and not tried."""

_READ = pa.schema([column for column in COLUMNS if column.name not in UNUSED])
_LISTS = [column.name for column in _READ if pa.types.is_list(column.type)]


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
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        footer = file.metadata
        metadata = parse_metadata(footer.metadata)
        if not reading.overlaps(metadata.window_start_ms, metadata.window_end_ms):
            return metadata, _READ.empty_table()
        if footer.num_rows != metadata.rows:
            raise ValueError(f"it has {footer.num_rows} rows; its metadata says {metadata.rows}")
        claimed = sum(footer.row_group(nth).total_byte_size for nth in range(footer.num_row_groups))
        if claimed > MAX_UNCOMPRESSED:
            raise ValueError(f"its footer claims {claimed} bytes, more than {MAX_UNCOMPRESSED}")
        missing = set(_READ.names) - set(file.schema_arrow.names)
        if missing:
            raise ValueError(f"it lacks the columns {', '.join(sorted(missing))}")
        rows = file.read(columns=_READ.names, use_threads=False).select(_READ.names)
    rows = rows.combine_chunks() if rows.schema.equals(_READ) else rows.cast(_READ).combine_chunks()
    _check_rows(rows, metadata)
    return metadata, rows


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
    target, agent = (pc.equal(rows["row"], pa.scalar(kind)) for kind in ("target", "agent"))
    if not pc.all(pc.or_(target, agent)).as_py():
        raise ValueError("it has rows of an unknown kind")
    times, intervals = rows["time_ms"].to_numpy(), rows["interval_ms"].to_numpy()
    begin, end = times - intervals, times
    if (intervals <= 0).any() or (end <= metadata.window_start_ms - metadata.interval_ms).any():
        raise ValueError("it has rows of a time before its window")
    if (begin >= metadata.window_end_ms + metadata.interval_ms).any():
        raise ValueError("it has rows of a time after its window")
