"""Checks the lengths in a batch before the Arrow library decodes it.

Older Arrow libraries crash on a column with too few bytes for its rows, and all allocate any amount of memory
that a length asks for. The columns are known, so each length can be checked first, as the Rust reader does
(crates/recording/src/layout.rs).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from . import _flatbuffer as flatbuffer
from ._flatbuffer import Damaged
from ._messages import Message

MAX_UNCOMPRESSED = 128 << 20
"""Maximum bytes of a batch, and maximum of its rows."""

MAX_RATIO = 256
"""Maximum decoded bytes for each byte of a recording, beyond those that any may have."""
FREE = 256 << 20
"""Decoded bytes that any recording may have."""

# Fields of the tables `Message` and `RecordBatch` of Arrow's format/Message.fbs, by their order there.
_HEADER = 2
_LENGTH, _NODES, _BUFFERS, _COMPRESSION, _VARIADIC = range(5)

_BIT, _TEXT, _LIST = 0, -1, -2
_COLUMNS = {
    "kind": 1,
    "time_ns": 8,
    "target": 4,
    "pid": 4,
    "start": 8,
    "end": 8,
    "nr_accesses": 4,
    "max_nr_accesses": 4,
    "age": 4,
    "unknown": _BIT,
    "name": _TEXT,
    "text": _TEXT,
    "values": _LIST,
}
"""Bytes of a value of each column."""
_NEVER_NULL = {"kind", "time_ns", "values"}


def check_batch(data: memoryview, message: Message) -> int:
    """The bytes of a batch once it is decoded.

    Raises `Damaged` if a column does not fit its rows, or the batch needs more memory than one may.
    """
    try:
        return _check(data[message.start + 8 : message.body], data[message.body : message.end])
    except struct.error:
        raise Damaged("a message does not parse") from None


def _check(head: memoryview, body: memoryview) -> int:
    batch = flatbuffer.table_of(head, flatbuffer.root(head), _HEADER)
    if batch is None:
        raise Damaged("a message is not a batch")
    rows = flatbuffer.number_of(head, batch, _LENGTH)
    has_variadic = flatbuffer.field(head, batch, _VARIADIC) is not None
    if not 0 <= rows <= MAX_UNCOMPRESSED or has_variadic:
        raise Damaged(f"a batch says it has {rows} rows")
    nodes = flatbuffer.pairs_of(head, batch, _NODES)
    buffers = flatbuffer.pairs_of(head, batch, _BUFFERS)
    if nodes is None or buffers is None:
        raise Damaged("a batch has no columns")
    compressed = flatbuffer.field(head, batch, _COMPRESSION) is not None
    lengths = [_uncompressed(body, start, length, compressed) for start, length in buffers]
    if (total := sum(lengths)) > MAX_UNCOMPRESSED:
        raise Damaged(f"a batch of {total} bytes is larger than the maximum of {MAX_UNCOMPRESSED}")
    _check_columns(rows, iter(nodes), iter(lengths))
    return total


def _uncompressed(body: memoryview, start: int, length: int, compressed: bool) -> int:
    """The length of a buffer after decompression, as it says itself."""
    if start < 0 or length < 0 or start + length > len(body):
        raise Damaged("a column reaches beyond its batch")
    if start % 8:
        raise Damaged("a column is not aligned")
    if not compressed or length == 0:
        return length
    if length < 8:
        raise Damaged("a compressed column lacks its length")
    size = flatbuffer.number("<q", body, start)
    if not -1 <= size <= MAX_UNCOMPRESSED:
        raise Damaged(f"a column has an uncompressed length of {size} bytes")
    return size if size >= 0 else length - 8


def _check_columns(rows: int, nodes: Iterator[tuple[int, int]], lengths: Iterator[int]) -> None:
    try:
        for name, width in _COLUMNS.items():
            count, nulls = next(nodes)
            if count != rows or not 0 <= nulls <= (0 if name in _NEVER_NULL else rows):
                raise Damaged(f"column {name} has {count} of {rows} rows, {nulls} of them null")
            if not _fits(rows, nulls, width, nodes, lengths):
                raise Damaged(f"column {name} is too short for its rows")
    except StopIteration:
        raise Damaged("a batch has too few columns") from None
    if next(nodes, None) is not None or next(lengths, None) is not None:
        raise Damaged("a batch has too many columns")


def _fits(
    rows: int, nulls: int, width: int, nodes: Iterator[tuple[int, int]], lengths: Iterator[int]
) -> bool:
    """Whether the buffers of a column have the bytes that its rows need."""
    validity = next(lengths)
    fits = validity >= _bits(rows) or (validity == 0 and nulls == 0)
    length = next(lengths)
    if width > 0:
        return fits and length >= rows * width and length % width == 0
    if width == _BIT:
        return fits and length >= _bits(rows)
    fits = fits and length >= (rows + 1) * 4 and length % 4 == 0
    if width == _TEXT:
        # The bytes of all texts: where each begins is checked when they are decoded.
        next(lengths)
        return fits
    values, null_values = next(nodes)
    if not 0 <= values <= MAX_UNCOMPRESSED or null_values != 0:
        return False
    return _fits(values, 0, 8, nodes, lengths) and fits


def _bits(rows: int) -> int:
    return (rows + 7) // 8
