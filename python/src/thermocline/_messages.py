"""Finds the messages of an Arrow IPC stream that may be truncated or damaged.

The stream reader of the Arrow library cannot distinguish a truncated file from a damaged one, and allocates
any amount of memory that a length in the file asks for. So the lengths are checked here first, with the
limits of the Rust reader (crates/recording/src/frames.rs).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from . import _flatbuffer as flatbuffer
from ._flatbuffer import Damaged

MARKER = b"\xff\xff\xff\xff"
"""The first bytes of each message."""

MAX_HEAD = 4 << 20
"""Maximum bytes of a header."""
MAX_BODY = 32 << 20
"""Maximum bytes of a batch in the file."""

# A field of the table `Message` of Arrow's format/Message.fbs, by its order there.
_BODY_LENGTH = 3


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


def _check_length(what: str, length: int, maximum: int) -> None:
    if not 0 <= length <= maximum:
        raise Damaged(f"a {what} of {length} bytes is larger than the maximum of {maximum}")


def _body_length(head: memoryview) -> int:
    try:
        return flatbuffer.number_of(head, flatbuffer.root(head), _BODY_LENGTH)
    except struct.error:
        raise Damaged("a message does not parse") from None
