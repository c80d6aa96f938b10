"""A recording as tables."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from . import _packages
from ._errors import Error
from ._messages import Truncated
from ._metadata import Metadata

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas
    import polars
    import pyarrow as pa

    from ._reader import Contents
    from ._tables import Tables

TableName = Literal[
    "snapshots", "targets", "regions", "ages", "reaccess", "actions", "skipped", "plans", "notes",
    "mappings", "footprint", "cost", "totals",
]  # fmt: skip
"""The tables of a recording."""


class Recording:
    """A recording. Its tables are made when they are first asked for, and kept.

    Times are nanoseconds of `CLOCK_MONOTONIC` in `time_ns` and UTC in `time`; sizes are bytes.
    """

    def __init__(self, contents: Contents | None) -> None:
        self._contents = contents
        self._made: dict[str, pa.Table] = {}

    def __repr__(self) -> str:
        contents = self._read()
        return f"<Recording {contents.path}: {contents.metadata.targets}, {len(contents.rows)} rows>"

    @property
    def path(self) -> Path:
        """The file."""
        return self._read().path

    @property
    def metadata(self) -> Metadata:
        """Who recorded what, where, and with which settings."""
        return self._read().metadata

    @property
    def truncated(self) -> Truncated | None:
        """What is missing at the end: the recording has no end mark. `None` if it is complete."""
        return self._read().truncated

    @property
    def in_progress(self) -> bool:
        """Whether the recording was still being written when it was read."""
        return self._read().in_progress

    @property
    def snapshots(self) -> pa.Table:
        """A row for each snapshot: its aggregation, and how many targets and regions it has."""
        return self.table("snapshots")

    @property
    def targets(self) -> pa.Table:
        """A row for each target of each snapshot: method, and length and number of scan passes."""
        return self.table("targets")

    @property
    def regions(self) -> pa.Table:
        """A row for each region of each snapshot, as in `thermo export --table regions`."""
        return self.table("regions")

    @property
    def ages(self) -> pa.Table:
        """Resident bytes of each target by idle age and kind of page, and by reason if unknown.

        Raises `Error` if the recording has no idle ages: it is of schema 1, or its tracker has only regions.
        """
        return self.table("ages")

    @property
    def reaccess(self) -> pa.Table:
        """Bytes of each target that were accessed again, by the idle age that they had. Raises as `ages`."""
        return self.table("reaccess")

    @property
    def actions(self) -> pa.Table:
        """A row for each application of a scheme. The numbers are totals since the scheme began."""
        return self.table("actions")

    @property
    def skipped(self) -> pa.Table:
        """The bytes that a scheme skipped in each application, by reason."""
        return self.table("skipped")

    @property
    def plans(self) -> pa.Table:
        """The plans, as sentences: which method and intervals the CPU budget was found to allow."""
        return self.table("plans")

    @property
    def notes(self) -> pa.Table:
        """All events as sentences: a target appeared or ended, a warning, a plan."""
        return self.table("notes")

    @property
    def mappings(self) -> pa.Table:
        """The mappings of each target, each time they were read."""
        return self.table("mappings")

    @property
    def footprint(self) -> pa.Table:
        """Virtual size, resident memory and swap of each target over time."""
        return self.table("footprint")

    @property
    def cost(self) -> pa.Table:
        """CPU time and memory of the recording program over time."""
        return self.table("cost")

    @property
    def totals(self) -> pa.Table:
        """Memory of the machine or of a control group by use, over time."""
        return self.table("totals")

    def table(self, name: TableName) -> pa.Table:
        """A table by its name. Raises `Error` if there is none of this name, or its rows are damaged."""
        if name not in get_args(TableName):
            raise Error(f"a recording has no table {name!r}: use one of {', '.join(get_args(TableName))}")
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def to_pandas(self, table: TableName = "regions") -> pandas.DataFrame:
        """A table as a data frame of pandas. Raises `Error` if pandas is not installed."""
        _packages.need("pandas")
        return self.table(table).to_pandas()

    def to_polars(self, table: TableName = "regions") -> polars.DataFrame:
        """A table as a data frame of polars. Raises `Error` if polars is not installed."""
        frame = _packages.need("polars").from_arrow(self.table(table))
        return cast("polars.DataFrame", frame)

    def heatmap(
        self,
        ax: matplotlib.axes.Axes | None = None,
        *,
        target: int | None = None,
        rows: int = 200,
        columns: int = 400,
    ) -> matplotlib.axes.Axes:
        """Draws the access rate of a target's memory: time by address. Addresses without memory are folded.

        Without `ax`, new axes are made. Without `target` (a number of the column `target`), the target with
        the most memory is drawn. Raises `Error` if matplotlib is not installed, or there are no regions.
        """
        from . import _heatmap

        return _heatmap.draw(self, ax, target, rows, columns)

    def _read(self) -> Contents:
        if self._contents is None:
            raise Error("nothing was recorded yet: use the recording after the with block")
        return self._contents

    @cached_property
    def _tables(self) -> Tables:
        from ._tables import Tables

        return Tables(self._read())

    def _make(self, name: TableName) -> pa.Table:
        import pyarrow as pa

        from ._rows import Inconsistent

        contents = self._read()
        if name in ("ages", "reaccess") and not self._tables.has_access_tables():
            raise Error(_no_access_tables(contents))
        try:
            return self._tables.make(name)
        except (Inconsistent, pa.ArrowException) as error:
            raise Error(
                f"{contents.path} is damaged: {error}; its {name} cannot be read, record again"
            ) from error


def open(path: str | os.PathLike[str], *, strict: bool = True) -> Recording:
    """Opens a recording of `thermo record`, or a segment of the agent's history.

    A truncated recording gives its rows up to the last whole batch, and a `TruncatedWarning`. Raises `Error`
    if the file cannot be read, is no recording, has a newer schema, or is damaged; if not `strict`, the rows
    before the damage are read, with a `TruncatedWarning`.
    """
    from ._reader import read

    return Recording(read(path, strict))


def _no_access_tables(contents: Contents) -> str:
    path, found = contents.path, contents.metadata
    if found.schema < 2:
        return (
            f"{path} has schema {found.schema}, of an older thermo, which recorded no idle ages and "
            "re-accesses: use .regions, or record again"
        )
    return (
        f"{path} has no idle ages and re-accesses, because the tracker {found.tracker} reports only regions: "
        "use .regions, or record with  --tracker pte"
    )
