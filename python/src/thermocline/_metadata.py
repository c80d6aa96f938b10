"""The metadata of a recording: who recorded what, where, and with which settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA = 2
"""The newest schema of recordings that this module reads."""

KEY = b"thermo"
"""Key of the metadata, as JSON, in the metadata of the Arrow schema."""
AGE_EDGES_KEY = b"thermo.age_edges_s"
"""Key of the seconds at which the ranges of idle ages begin, as a JSON list."""


@dataclass(frozen=True)
class Settings:
    """Monitoring settings at the beginning of the recording; `None`: the recording does not say."""

    sample_ns: int | None
    """Sampling interval."""
    aggr_ns: int | None
    """Aggregation interval."""
    update_ns: int | None
    """Update interval."""
    min_nr_regions: int | None
    """Minimum number of regions."""
    max_nr_regions: int | None
    """Maximum number of regions."""
    cpu_budget_percent: float | None
    """CPU budget for monitoring, in percent of one CPU; `None` if the user set the intervals."""


@dataclass(frozen=True)
class Metadata:
    """Metadata of a recording."""

    schema: int
    """Version of the schema: 1 has no access tables, so no `ages` and no `reaccess`."""
    writer: str
    """Name and version of the writer."""
    kernel: str
    """`uname -r`."""
    arch: str
    """`uname -m`."""
    tracker: str
    """Name of the tracker, as `thermo doctor` prints it."""
    tracker_reason: str
    """Why this tracker was chosen."""
    seed: int
    """Seed of all random choices."""
    wall_clock_offset_ns: int
    """Unix time minus `CLOCK_MONOTONIC` when the recording began."""
    start_ns: int
    """When the recording began, on `CLOCK_MONOTONIC`."""
    targets: str
    """The monitored targets, as text."""
    settings: Settings
    """Settings at the beginning of the recording."""
    schemes: tuple[str, ...]
    """The schemes, each as a sentence."""


def schema_of(text: bytes) -> int:
    """The schema that this metadata names, or 0. Raises `ValueError` if it is no JSON."""
    value = json.loads(text)
    found = value.get("schema") if isinstance(value, dict) else None
    return found if isinstance(found, int) else 0


def parse(text: bytes) -> Metadata:
    """Parses the metadata. Raises `ValueError` if a field is missing or of another type."""
    value = json.loads(text)
    try:
        # Files have 0 for a number that is missing: no interval and no number of regions is 0.
        numbers = {name: number or None for name, number in _known(Settings, value["settings"]).items()}
        settings = Settings(**numbers)
        schemes = tuple(str(scheme) for scheme in value["schemes"])
        return Metadata(**{**_known(Metadata, value), "settings": settings, "schemes": schemes})
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None


def parse_age_edges(text: bytes | None) -> list[int]:
    """Parses the seconds at which the ranges of idle ages begin; none in recordings of schema 1."""
    edges = json.loads(text) if text is not None else []
    if not isinstance(edges, list) or not all(isinstance(edge, int) for edge in edges):
        raise ValueError("the ranges of idle ages are no list of seconds")
    return edges


def _known(kind: type, value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `value` that `kind` has. Later versions may add others."""
    return {name: value[name] for name in kind.__dataclass_fields__ if name in value}  # type: ignore[attr-defined]
