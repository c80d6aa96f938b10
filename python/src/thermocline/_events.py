"""Server-sent events, the format of the agent's live stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def parse(lines: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yields name and data of each event. Comments, and fields that the agent does not use, are skipped."""
    name, data = "message", list[str]()
    for line in lines:
        text = line.decode().rstrip("\r\n")
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if not text:
            if data:
                yield name, "\n".join(data)
            name, data = "message", []
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)
