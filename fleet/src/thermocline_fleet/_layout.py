"""The files that agents write: names, metadata and columns of schema version 1 (docs/guide/fleet.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

SCHEMA = 1
"""The newest schema version that this package reads."""

AGE_EDGES_S = (0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
"""Lower edges of the buckets of idle ages, in seconds. The last bucket has no upper edge."""

NR_AGES = len(AGE_EDGES_S)

FIRST_AGE = AGE_EDGES_S.index(10)
"""Index of the shortest age that is advised: with shorter ages, refaults would dominate."""

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS

MAX_TIME_MS = 253_402_300_800_000
"""The end of the calendar: the year 10000."""

MAX_VALUE = 1 << 48
"""No number of a row is larger: 256 TiB, or 8,900 years in ms. Sums over a fleet stay in 64 bits."""

MAX_ROWS = 250_000
"""Rows of a file: 20,000 targets every five minutes for an hour."""

MAX_NAME = 4096
"""Bytes of a name."""

PREFIX = "thermo.fleet."
"""Prefix of the keys in a file's metadata."""

_LIST = pa.list_(pa.field("item", pa.int64(), nullable=False))

_FIELDS: list[tuple[str, pa.DataType, bool]] = [
    ("time_ms", pa.int64(), False),
    ("interval_ms", pa.int64(), False),
    ("row", pa.string(), False),
    ("node", pa.string(), False),
    ("namespace", pa.string(), True),
    ("pod", pa.string(), True),
    ("container", pa.string(), True),
    ("workload", pa.string(), False),
    ("target", pa.string(), False),
    ("policy", pa.string(), False),
    ("mode", pa.string(), False),
    ("min_age_ms", pa.int64(), True),
    ("processes", pa.int32(), False),
    ("resident_bytes", pa.int64(), False),
    ("swap_bytes", pa.int64(), False),
    ("unknown_bytes", pa.int64(), False),
    ("working_set_bytes", pa.int64(), False),
    ("idle_bytes", _LIST, False),
    ("idle_file_bytes", _LIST, False),
    ("reaccess_bytes", _LIST, False),
    ("pass_ms", pa.int64(), True),
    ("paged_out_bytes", pa.int64(), False),
    ("would_page_out_bytes", pa.int64(), True),
    ("back_bytes", pa.int64(), False),
    ("out_bytes", pa.int64(), False),
    ("out_swap_bytes", pa.int64(), False),
    ("net_saved_bytes", pa.int64(), False),
    ("swap_cost", pa.float64(), True),
    ("watching_cpu_us", pa.int64(), False),
    ("acting_cpu_us", pa.int64(), False),
]

COLUMNS = pa.schema([pa.field(name, kind, nullable=nullable) for name, kind, nullable in _FIELDS])
"""The columns of a file, in their order."""

UNUSED = frozenset({"pod", "processes", "would_page_out_bytes"})
"""Columns that no job needs. They are not read."""

NAME = re.compile(r"(?P<node>[A-Za-z0-9._-]+)\.(?P<start>\d+)\.v(?P<version>\d+)\.parquet")
"""Names of files, as agents give them."""


@dataclass(frozen=True)
class Metadata:
    """What a file says about itself. Times are Unix time in milliseconds."""

    cluster: str
    node: str
    window_start_ms: int
    window_ms: int
    interval_ms: int
    written_ms: int
    rows: int
    link: str

    @property
    def window_end_ms(self) -> int:
        return self.window_start_ms + self.window_ms


class OtherSchema(ValueError):
    """The file has a schema that this package does not know."""


class Foreign(ValueError):
    """The file was not written by an agent."""


_NUMBERS = {
    "window_start_ms": MAX_TIME_MS,
    "window_ms": MAX_TIME_MS,
    "interval_ms": MAX_TIME_MS,
    "written_ms": MAX_TIME_MS,
    "rows": MAX_ROWS + 1,
}
"""The numbers of the metadata, and what they are below."""


def parse_metadata(texts: dict[bytes, bytes] | None) -> Metadata:
    """The metadata of a file.

    Raises `OtherSchema`, `Foreign`, or `ValueError` if a value is missing or has no sense.
    """
    values = {
        key.decode(): value.decode() for key, value in (texts or {}).items() if key.startswith(b"thermo.")
    }
    schema = values.get(PREFIX + "schema")
    if schema is None:
        raise Foreign("it has no metadata of Thermocline")
    if schema != str(SCHEMA):
        raise OtherSchema(f"its schema version is {schema[:20]}; this package reads {SCHEMA}")
    edges = values.get(PREFIX + "age_edges_s", "")
    if edges != ",".join(map(str, AGE_EDGES_S)):
        raise OtherSchema(f"its idle ages have other edges: {edges[:100]}")
    try:
        number = {name: int(values[PREFIX + name]) for name in _NUMBERS}
        found = Metadata(
            cluster=values[PREFIX + "cluster"],
            node=values[PREFIX + "node"],
            link=values.get(PREFIX + "link", ""),
            **number,
        )
    except KeyError as error:
        raise ValueError(f"its metadata lacks {error.args[0]}") from error
    for name, value in number.items():
        if not 0 <= value < _NUMBERS[name]:
            raise ValueError(f"its {name} is {str(value)[:40]}: it must be below {_NUMBERS[name]}")
    if found.window_ms <= 0 or found.interval_ms <= 0 or found.window_start_ms % found.window_ms != 0:
        raise ValueError(f"its window of {found.window_ms} ms at {found.window_start_ms} ms is not valid")
    return found


def plain_name(name: str) -> str:
    """A cluster or node as it stands in a path."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def day(time_ms: int) -> str:
    """The UTC day of a Unix time, as in the names of folders."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d")
