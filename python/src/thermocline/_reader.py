"""Reads the file of a recording: checks it, and decodes its batches into one table of rows."""

from __future__ import annotations

import fcntl
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from . import _metadata as metadata
from ._errors import Error, TruncatedWarning
from ._flatbuffer import Damaged
from ._layout import FREE, MAX_RATIO, check_batch
from ._messages import MARKER, Message, Truncated, messages

if TYPE_CHECKING:
    import pyarrow as pa

LAST_KIND = 14
"""The largest number in the column `kind`: row.rs of crates/recording/ describes all."""


@dataclass(frozen=True)
class Contents:
    """What the file of a recording holds."""

    path: Path
    metadata: metadata.Metadata
    age_edges_s: list[int]
    rows: pa.Table
    truncated: Truncated | None
    in_progress: bool


def read(path: str | os.PathLike[str], strict: bool) -> Contents:
    """Reads the recording at `path`.

    Raises `Error` if it cannot be read, is no recording, has a newer schema, or is damaged. If not `strict`,
    the rows before the damage are read, with a warning.
    """
    file = Path(path)
    # Asked first: a recording that is complete by then has its end mark.
    in_progress = _is_being_written(file)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise Error(
            f"cannot open the recording {file}: {error.strerror}; check the path and its permissions"
        ) from error
    _check_type(file, data)
    return _decode(file, data, strict, in_progress)


def _decode(path: Path, data: bytes, strict: bool, in_progress: bool) -> Contents:
    import pyarrow as pa

    found, end = _find_messages(data)
    if not found:
        _raise_no_message(path, end)
    buffer = pa.py_buffer(data)
    schema, described, edges = _read_head(path, buffer, found[0])
    batches, damage = _read_batches(buffer, found)
    at = found[len(batches)].end
    damage = damage or (end if isinstance(end, Damaged) else None)
    truncated = end if isinstance(end, Truncated) else None
    if damage is not None:
        sentence = _damage(path, at, damage)
        if strict:
            raise Error(f"{sentence}: open(path, strict=False) reads them")
        truncated = Truncated(at, len(data) - at)
        warnings.warn(sentence, TruncatedWarning, stacklevel=4)
    elif truncated and not in_progress:
        warnings.warn(f"{path}: {truncated}", TruncatedWarning, stacklevel=4)
    rows = pa.Table.from_batches(batches, schema).combine_chunks()
    return Contents(path, described, edges, rows, truncated, in_progress)


def _find_messages(data: bytes) -> tuple[list[Message], Truncated | Damaged | None]:
    """The complete messages, and how the recording ends; `None` is the end mark."""
    view, found, decoded = memoryview(data), list[Message](), 0
    try:
        for message in messages(view):
            if isinstance(message, Truncated):
                return found, message
            if found:
                decoded += check_batch(view, message)
                if decoded > FREE + MAX_RATIO * message.end:
                    raise Damaged(
                        f"its first {message.end} bytes would become more than {decoded} bytes, "
                        "which those of no recording do"
                    )
            found.append(message)
    except Damaged as error:
        return found, error
    return found, None


def _read_head(
    path: Path, buffer: pa.Buffer, first: Message
) -> tuple[pa.Schema, metadata.Metadata, list[int]]:
    """Reads the schema with the metadata, and the ranges of idle ages."""
    import pyarrow as pa

    try:
        schema = pa.ipc.read_schema(buffer.slice(0, first.end))
        described = schema.metadata or {}
        if metadata.KEY not in described:
            _raise_not_recording(path, "an Arrow stream of another program")
        _check_schema(path, schema, metadata.schema_of(described[metadata.KEY]))
        edges = metadata.parse_age_edges(described.get(metadata.AGE_EDGES_KEY))
        return schema, metadata.parse(described[metadata.KEY]), edges
    except (pa.ArrowException, OSError) as error:
        raise Error(_damage(path, 0, error)) from None
    except ValueError as error:
        raise Error(_damage(path, 0, f"its metadata does not parse ({error})")) from None


def _check_schema(path: Path, schema: pa.Schema, version: int) -> None:
    if version > metadata.SCHEMA:
        raise Error(
            f"{path} has schema {version}, but this version of thermocline reads only schemas up to "
            f"{metadata.SCHEMA}: run  pip install --upgrade thermocline"
        )
    if [(field.name, field.type) for field in schema] != _columns():
        raise Error(_damage(path, 0, f"its columns are not those of schema {version}"))


def _read_batches(buffer: pa.Buffer, found: list[Message]) -> tuple[list[pa.RecordBatch], Exception | None]:
    """Decodes the batches up to the first damaged one, and why that is damaged."""
    import pyarrow as pa

    # Threads decode the columns of one batch. That takes longer than one thread does for such small batches.
    options = pa.ipc.IpcReadOptions(use_threads=False)
    batches: list[pa.RecordBatch] = []
    try:
        stream = pa.ipc.open_stream(buffer.slice(0, found[-1].end), options=options)
        for _ in found[1:]:
            batch = stream.read_next_batch()
            batch.validate(full=True)
            _check_kinds(batch)
            batches.append(batch)
    except (Damaged, pa.ArrowException, OSError, MemoryError, StopIteration) as error:
        return batches, error
    return batches, None


def _check_kinds(batch: pa.RecordBatch) -> None:
    from ._rows import pc

    last = pc.max(batch.column(0)).as_py()
    if last is not None and last > LAST_KIND:
        raise Damaged(f"a row of the batch has the unknown kind {last}")


def _columns() -> list[tuple[str, pa.DataType]]:
    """The columns of a recording. All versions have the same."""
    import pyarrow as pa

    return [
        ("kind", pa.uint8()),
        ("time_ns", pa.uint64()),
        ("target", pa.uint32()),
        ("pid", pa.uint32()),
        ("start", pa.uint64()),
        ("end", pa.uint64()),
        ("nr_accesses", pa.uint32()),
        ("max_nr_accesses", pa.uint32()),
        ("age", pa.uint32()),
        ("unknown", pa.bool_()),
        ("name", pa.string()),
        ("text", pa.string()),
        ("values", pa.list_(pa.field("item", pa.uint64(), nullable=False))),
    ]


def _check_type(path: Path, data: bytes) -> None:
    """Refuses what is no Arrow stream, by its first bytes."""
    if not data:
        raise Error(
            f"{path} is empty (0 bytes); record again, or check whether {path}.old is the recording you want"
        )
    head = data[:64].lstrip()
    if MARKER.startswith(data[:4]):
        return
    if data.startswith(b"ARROW1"):
        _raise_not_recording(path, "an Arrow file, not a stream")
    if data.startswith(b"PAR1"):
        _raise_not_recording(path, "a Parquet file, which pandas, polars and DuckDB read themselves")
    if head[:1] in (b"[", b"{") or (data[0] == 0x78 and int.from_bytes(data[:2], "big") % 31 == 0):
        raise Error(
            f"{path} is not a recording of thermo but looks like the JSON of damo: run  "
            f"thermo export {path} --format parquet -o regions.parquet  and read that file"
        )
    _raise_not_recording(path, "data of another program")


def _raise_not_recording(path: Path, looks_like: str) -> NoReturn:
    raise Error(f"{path} is not a recording: it looks like {looks_like}; give a file of `thermo record`")


def _raise_no_message(path: Path, end: Truncated | Damaged | None) -> NoReturn:
    if isinstance(end, Damaged):
        raise Error(_damage(path, 0, end))
    if end is None:
        _raise_not_recording(path, "an Arrow stream without a schema")
    raise Error(
        f"{path} is truncated before its first record; record again, or check whether {path}.old is the "
        "recording you want"
    )


def _damage(path: Path, at: int, reason: object) -> str:
    usable = "the records before that byte are valid" if at else "no record can be read; record again"
    return f"{path} is damaged at byte {at}: {' '.join(str(reason).split())}; {usable}"


def _is_being_written(path: Path) -> bool:
    """Whether a writer has the file open: it holds a lock (flock(2))."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # Not readable, which read() reports, or a file system without locks.
        return False
    return False
