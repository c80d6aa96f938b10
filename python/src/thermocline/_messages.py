"""Finds the messages of an Arrow IPC stream that may be truncated or damaged.

The stream reader of the Arrow library cannot distinguish a truncated file from a damaged one, and allocates
any amount of memory that a length in the file asks for. So the lengths are checked here first, with the
limits of the Rust reader (crates/recording/src/frames.rs and layout.rs).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MARKER = b"\xff\xff\xff\xff"
"""The first bytes of each message."""

MAX_HEAD = 4 << 20
"""Maximum bytes of a header."""
MAX_BODY = 32 << 20
"""Maximum bytes of a batch in the file."""
MAX_UNCOMPRESSED = 128 << 20
"""Maximum bytes of a batch, and maximum of its rows."""

# Fields of the tables `Message` and `RecordBatch` of Arrow's format/Message.fbs, by their order there.
_HEADER, _BODY_LENGTH = 2, 3
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3


class Damaged(Exception):
    """A message is invalid, for this reason."""


@dataclass(frozen=True)
class Truncated:
    """A recording has no end mark."""

    whole_bytes: int
    """Size of the complete batches."""
    lost_bytes: int
    """Size of an incomplete batch behind them; 0 if the recording ends between two batches."""

    def __str__(self) -> str:
        return (
            f"the recording is truncated: its first {self.whole_bytes} bytes are complete, "
            f"{self.lost_bytes} bytes of an incomplete batch are ignored"
        )


@dataclass(frozen=True)
class Message:
    """A complete message: its bytes are `start` to `end` of the file."""

    start: int
    body: int
    end: int


def messages(data: memoryview) -> Iterator[Message | Truncated]:
    """Yields the messages of `data`, and last a `Truncated` if there is no end mark.

    Raises `Damaged` where no message begins, or where a length is impossible.
    """
    at = 0
    while True:
        prefix = data[at : at + 8]
        # A crash of the machine can leave zeros in place of the last batch.
        if len(prefix) < 8 or prefix == bytes(8):
            yield Truncated(at, len(data) - at)
            return
        if prefix[:4] != MARKER:
            raise Damaged("no message begins there")
        (head_length,) = struct.unpack_from("<I", prefix, 4)
        if head_length == 0:
            return
        _check_length("header", head_length, MAX_HEAD)
        body = at + 8 + head_length
        if body > len(data):
            yield Truncated(at, len(data) - at)
            return
        body_length = _body_length(data[at + 8 : body])
        _check_length("batch", body_length, MAX_BODY)
        if body + body_length > len(data):
            yield Truncated(at, len(data) - at)
            return
        yield Message(at, body, body + body_length)
        at = body + body_length


def check_batch(data: memoryview, message: Message) -> None:
    """Raises `Damaged` if the batch asks for more memory than a batch may have."""
    try:
        _check_batch(data[message.start + 8 : message.body], data[message.body : message.end])
    except struct.error:
        raise Damaged("a message does not parse") from None


def _check_batch(head: memoryview, body: memoryview) -> None:
    batch = _field(head, _root(head), _HEADER)
    if batch is None:
        raise Damaged("a message is not a batch")
    batch += _number("<I", head, batch)
    length = _field(head, batch, _LENGTH)
    rows = 0 if length is None else _number("<q", head, length)
    if not 0 <= rows <= MAX_UNCOMPRESSED:
        raise Damaged(f"a batch says it has {rows} rows")
    buffers = _field(head, batch, _BUFFERS)
    if buffers is None:
        raise Damaged("a batch has no columns")
    buffers += _number("<I", head, buffers)
    end = buffers + 4 + 16 * _number("<I", head, buffers)
    if end > len(head):
        raise Damaged("a message does not parse")
    compressed = _field(head, batch, _COMPRESSION) is not None
    pairs = struct.iter_unpack("<qq", head[buffers + 4 : end])
    total = sum(_uncompressed(body, start, length, compressed) for start, length in pairs)
    if total > MAX_UNCOMPRESSED:
        raise Damaged(f"a batch of {total} bytes is larger than the maximum of {MAX_UNCOMPRESSED}")


def _uncompressed(body: memoryview, start: int, length: int, compressed: bool) -> int:
    if start < 0 or length < 0 or start + length > len(body):
        raise Damaged("a column reaches beyond its batch")
    if not compressed or length == 0:
        return length
    if length < 8:
        raise Damaged("a compressed column lacks its length")
    size = _number("<q", body, start)
    if not -1 <= size <= MAX_UNCOMPRESSED:
        raise Damaged(f"a column has an uncompressed length of {size} bytes")
    return size if size >= 0 else length - 8


def _check_length(what: str, length: int, maximum: int) -> None:
    if not 0 <= length <= maximum:
        raise Damaged(f"a {what} of {length} bytes is larger than the maximum of {maximum}")


def _body_length(head: memoryview) -> int:
    try:
        field = _field(head, _root(head), _BODY_LENGTH)
        return 0 if field is None else _number("<q", head, field)
    except struct.error:
        raise Damaged("a message does not parse") from None


def _root(head: memoryview) -> int:
    return _number("<I", head, 0)


def _field(head: memoryview, table: int, index: int) -> int | None:
    """The position of a field of a FlatBuffers table; `None` if it has its default."""
    vtable = table - _number("<i", head, table)
    if vtable < 0:
        raise Damaged("a message does not parse")
    if 6 + 2 * index > _number("<H", head, vtable):
        return None
    offset = _number("<H", head, vtable + 4 + 2 * index)
    return table + offset if offset else None


def _number(form: str, data: memoryview, at: int) -> int:
    (value,) = struct.unpack_from(form, data, at)
    return int(value)
