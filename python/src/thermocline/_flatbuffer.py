"""Reads single fields of FlatBuffers tables, the format of the headers of Arrow messages.

Positions come from a file of anybody: reading outside the header raises `struct.error`.
"""

from __future__ import annotations

import struct


class Damaged(Exception):
    """A message is invalid, for this reason."""


def root(head: memoryview) -> int:
    """The position of the table that all others hang from."""
    return number("<I", head, 0)


def field(head: memoryview, table: int, index: int) -> int | None:
    """The position of a field of a table; `None` if it has its default."""
    vtable = table - number("<i", head, table)
    if vtable < 0:
        raise Damaged("a message does not parse")
    if 6 + 2 * index > number("<H", head, vtable):
        return None
    offset = number("<H", head, vtable + 4 + 2 * index)
    return table + offset if offset else None


def number_of(head: memoryview, table: int, index: int) -> int:
    """A field that is a number of 64 bits."""
    position = field(head, table, index)
    return 0 if position is None else number("<q", head, position)


def table_of(head: memoryview, table: int, index: int) -> int | None:
    """The position of a table that a field leads to."""
    position = field(head, table, index)
    return None if position is None else position + number("<I", head, position)


def pairs_of(head: memoryview, table: int, index: int) -> list[tuple[int, int]] | None:
    """A field that is a list of structures of two numbers of 64 bits."""
    position = table_of(head, table, index)
    if position is None:
        return None
    begin = position + 4
    end = begin + 16 * number("<I", head, position)
    if end > len(head):
        raise Damaged("a message does not parse")
    return list(struct.iter_unpack("<qq", head[begin:end]))


def number(form: str, data: memoryview, at: int) -> int:
    """The number at this position."""
    (value,) = struct.unpack_from(form, data, at)
    return int(value)
