"""The tables of a recording. Sizes are bytes, times nanoseconds of `CLOCK_MONOTONIC` (`time`: of UTC).

`regions`, and `ages` with `reaccess`, have the columns of `thermo export` and `time`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from . import _rows as kinds
from ._reader import Contents
from ._rows import Array, Rows, Table, cycle, pc, repeat

METHODS = pa.array(["sampling", "scan"])
"""Monitoring methods, by the number in the recording."""
UNKNOWN_REASONS = pa.array(["not_scanned", "first_scan", "uncleared", "hugetlb"])
"""Why an idle age is unknown, by the order of the values."""
_FIRST_UNKNOWN = 5
"""The first of these values."""
_SCHEME_TOTALS = (
    "nr_tried",
    "sz_tried",
    "nr_applied",
    "sz_applied",
    "sz_ops_filter_passed",
    "sz_changed",
    "qt_exceeds",
    "effective_sz",
)
"""The values of a scheme after its number."""


class Tables:
    """Makes the tables of a recording."""

    def __init__(self, contents: Contents) -> None:
        self._table = Table(contents.rows)
        self._offset_ns = contents.metadata.wall_clock_offset_ns
        self._edges = contents.age_edges_s

    def make(self, name: str) -> pa.Table:
        """Makes the table `name`. Raises `Inconsistent` if rows do not fit together."""
        maker: Callable[[], pa.Table] = getattr(self, name)
        return maker()

    def has_access_tables(self) -> bool:
        """Whether a target has access tables, or there is no target at all."""
        return len(self._of(kinds.TABLES)) > 0 or len(self._of(kinds.TARGET)) == 0

    def snapshots(self) -> pa.Table:
        """A row for each snapshot."""
        rows = self._of(kinds.SNAPSHOT)
        return self._timed(
            rows,
            start_ns=rows.value(0),
            aggr_ns=rows.value(1),
            max_nr_accesses=rows.needed("max_nr_accesses"),
            nr_targets=rows.count_behind(kinds.TARGET),
            nr_regions=rows.count_behind(kinds.REGION),
        )

    def targets(self) -> pa.Table:
        """A row for each target of each snapshot. Columns of scan passes are null without access tables."""
        rows, heads = self._of(kinds.TARGET), self._of(kinds.TABLES)
        ordinals = pa.array(range(len(rows)), pa.int64())
        head = pc.index_in(ordinals, value_set=heads.head(kinds.TARGET))
        # Old recordings have one method for all targets of a snapshot.
        snapshots = self._of(kinds.SNAPSHOT).take(rows.head(kinds.SNAPSHOT))
        scanned = pc.coalesce(rows.value_or_null(0), snapshots.value_or_null(2))
        return self._timed(
            rows,
            target=rows.needed("target"),
            pid=rows.column("pid"),
            method=METHODS.take(pc.cast(pc.not_equal(scanned, 0), pa.int8())),
            averaged=rows.value_or_null(1),
            pass_ns=heads.value(0).take(head),
            nr_passes=heads.value(1).take(head),
            as_of_ns=heads.value(2).take(head),
        )

    def regions(self) -> pa.Table:
        """A row for each region of each snapshot."""
        rows = self._of(kinds.REGION)
        aggr_ns = self._of(kinds.SNAPSHOT).value(1)
        age = rows.column("age")  # of another program: may be missing
        age_ns = pc.multiply_checked(pc.cast(age, pa.uint64()), aggr_ns.take(rows.head(kinds.SNAPSHOT)))
        return self._timed(
            rows,
            target=rows.needed("target"),
            pid=rows.column("pid"),
            start=rows.needed("start"),
            end=rows.needed("end"),
            nr_accesses=rows.needed("nr_accesses"),
            max_nr_accesses=rows.needed("max_nr_accesses"),
            age=age,
            age_ns=age_ns,
            unknown=rows.needed("unknown"),
        )

    def ages(self) -> pa.Table:
        """A row for each idle age (`table` is `idle`) or reason (`unknown`) with bytes, of each target."""
        idle, unknown = self._idle(), self._unknown()
        both = pa.concat_tables([idle, unknown])
        # In the order of the recording: of each target, first the idle ages, then the reasons.
        order = pc.sort_indices(both, sort_keys=[("head", "ascending"), ("table", "ascending")])
        return both.take(order).drop_columns(["head"])

    def reaccess(self) -> pa.Table:
        """A row for each idle age that memory had when it was accessed again, of each target."""
        rows = self._of(kinds.REACCESSED)
        text = pa.nulls(len(rows), pa.string())
        return self._by_age(rows, "reaccessed", text).drop_columns(["head", "table", "name"])

    def _idle(self) -> pa.Table:
        rows = self._of(kinds.IDLE_AGES)
        return self._by_age(rows, "idle", rows.needed("name"))

    def _by_age(self, rows: Rows, table: str, name: Array) -> pa.Table:
        """The bytes of each row by idle age, without zeros."""
        count = len(self._edges)
        heads = rows.head(kinds.TABLES)
        minimum = pa.array(self._edges, pa.uint64())
        maximum = pa.array([*self._edges[1:], None][:count], pa.uint64())
        age = cycle(count, len(rows))
        return self._access_table(
            repeat(heads, count),
            table,
            repeat(name, count),
            minimum.take(age),
            maximum.take(age),
            rows.all_values(count),
        )

    def _unknown(self) -> pa.Table:
        heads = self._of(kinds.TABLES)
        count = len(UNKNOWN_REASONS)
        values = heads.all_values(_FIRST_UNKNOWN + count)
        reason = pc.subtract(cycle(_FIRST_UNKNOWN + count, len(heads)), _FIRST_UNKNOWN)
        is_reason = pc.greater_equal(reason, 0)
        reason = reason.filter(is_reason)
        no_age = pa.nulls(len(reason), pa.uint64())
        head = repeat(heads.head(kinds.TABLES), count)
        return self._access_table(
            head, "unknown", UNKNOWN_REASONS.take(reason), no_age, no_age, values.filter(is_reason)
        )

    def _access_table(
        self, head: Array, table: str, name: Array, minimum: Array, maximum: Array, size: Array
    ) -> pa.Table:
        """Adds the columns of the access tables' first rows, and drops what has no bytes."""
        kept = pc.not_equal(size, 0)
        head = head.filter(kept)
        rows = self._of(kinds.TABLES).take(head)
        return self._timed(
            rows,
            target=rows.needed("target"),
            pid=rows.column("pid"),
            method=rows.needed("name"),
            pass_ns=rows.value(0),
            nr_passes=rows.value(1),
            as_of_ns=rows.value(2),
            table=pa.array([table]).take(pc.multiply(head, 0)),
            name=name.filter(kept),
            min_age_s=minimum.filter(kept),
            max_age_s=maximum.filter(kept),
            bytes=size.filter(kept),
            head=head,
        )

    def actions(self) -> pa.Table:
        """A row for each application of a scheme. The numbers are totals since the scheme began."""
        rows = self._of(kinds.SCHEME)
        totals = {name: rows.value(nth) for nth, name in enumerate(_SCHEME_TOTALS, 1)}
        return self._timed(rows, scheme=rows.value(0), action=rows.needed("name"), **totals)

    def skipped(self) -> pa.Table:
        """A row for each reason for which a scheme skipped memory in one application."""
        rows = self._of(kinds.SKIPPED)
        schemes = self._of(kinds.SCHEME).take(rows.head(kinds.SCHEME))
        return self._timed(
            rows,
            scheme=schemes.value(0),
            action=schemes.needed("name"),
            reason=rows.needed("name"),
            bytes=rows.value(0),
        )

    def plans(self) -> pa.Table:
        """A row for each plan: the method and intervals that the CPU budget was found to allow."""
        rows = self._of(kinds.NOTE)
        rows = rows.where(pc.equal(rows.needed("name"), "plan"))
        return self._timed(rows, text=rows.needed("text"))

    def notes(self) -> pa.Table:
        """A row for each event: a target appeared or ended, a warning, a plan."""
        rows = self._of(kinds.NOTE)
        return self._timed(rows, kind=rows.needed("name"), text=rows.needed("text"))

    def mappings(self) -> pa.Table:
        """A row for each mapping of a target, each time the mappings were read."""
        rows = self._of(kinds.MAPPING)
        columns = {name: rows.needed(name) for name in ("target", "start", "end", "name")}
        return self._timed(rows, **columns)

    def footprint(self) -> pa.Table:
        """A row for each time the memory size of a target was read."""
        rows = self._of(kinds.FOOTPRINT)
        sizes = {name: rows.value(nth) for nth, name in enumerate(("vsz", "rss", "swap"))}
        return self._timed(rows, target=rows.needed("target"), **sizes)

    def cost(self) -> pa.Table:
        """A row for each measurement of what recording cost so far."""
        rows = self._of(kinds.COST)
        return self._timed(rows, cpu_ns=rows.value(0), monitoring_cpu_ns=rows.value(1), rss=rows.value(2))

    def totals(self) -> pa.Table:
        """A row for each use of the memory of the machine or of a control group."""
        rows = self._of(kinds.TOTALS_ROW)
        scopes = self._of(kinds.TOTALS).needed("name")
        scope = scopes.take(rows.head(kinds.TOTALS))
        return self._timed(rows, scope=scope, name=rows.needed("name"), bytes=rows.value(0))

    def _of(self, kind: int) -> Rows:
        return self._table.of_kind(kind)

    def _timed(self, rows: Rows, **columns: Any) -> pa.Table:
        """A table of these columns after the times of `rows`."""
        time_ns = rows.column("time_ns")
        unix_ns = pc.add_checked(pc.cast(time_ns, pa.int64()), self._offset_ns)
        time = pc.cast(unix_ns, pa.timestamp("ns", "UTC"))
        return pa.table({"time": time, "time_ns": time_ns, **columns})
