"""What is asked of the fleet, and the values of flags as people write them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from ._errors import BadInput

CLASSES = ("workload", "namespace", "container", "policy", "target")
"""Columns that can name the classes."""

DEFAULT_SWAP_COST = 0.35

_UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "min": 60_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}


@dataclass(frozen=True)
class Question:
    """The bounds of the advice, and what is assumed."""

    max_refaults: float = 0.002
    """Bytes refaulted in a minute, as a share of the working set."""
    hold: float = 0.95
    """Share of the host-hours in which the bound must hold."""
    swap_cost: float = DEFAULT_SWAP_COST
    """Memory that a byte in swap occupies on nodes without swap."""
    headroom: float = 0.15
    """Added to memory requests."""
    outlier: float = 3.5
    """Robust z-score from which a host is an outlier."""


def parse_time(text: str, flag: str) -> int:
    """A date or an ISO time, UTC unless it says otherwise, as Unix time in milliseconds."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(f"{flag} {text} is not a time: write 2026-11-26 or 2026-11-26T14:00") from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_length(text: str, flag: str) -> int:
    """A length of time such as `2d`, in milliseconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip())
    if not found or found[2] not in _UNITS_MS:
        raise BadInput(f"{flag} {text} is not a length of time: write 90min, 36h or 2d")
    return round(float(found[1]) * _UNITS_MS[found[2]])


def parse_share(text: str, flag: str, maximum: float = 1.0) -> float:
    """A share: `0.15`, `15%`, or for refaults `0.2%/min`."""
    plain = text.strip().removesuffix("/min")
    try:
        value = float(plain[:-1]) / 100 if plain.endswith("%") else float(plain)
    except ValueError as error:
        raise BadInput(f"{flag} {text} is not a share: write 15% or 0.15") from error
    if not (math.isfinite(value) and 0 <= value <= maximum):
        raise BadInput(f"{flag} {text} is not between 0 and {maximum:.0%}: choose a value between them")
    return value


def check_range(from_ms: int | None, to_ms: int | None, texts: tuple[str | None, str | None]) -> None:
    """Raises `BadInput` if a range has no time in it."""
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise BadInput(f"--from {texts[0]} is not before --to {texts[1]}: swap them, or choose a later --to")
