"""Sums by host and hour, and by host: what most jobs begin with."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from ._layout import AGE_EDGES_S, HOUR_MS
from ._stage import Fleet
from ._sums import ADVISED, AGES

HOST = ("cluster", "class", "node")
"""A host of a class. Clusters may have nodes of the same name."""

_SUMS = (
    "rows", "instants", "covered_ms", "resident", "swap", "unknown", "working_set", "pass_ms", "pass_rows",
    "swap_cost", "swap_cost_rows", "watching_us", "acting_us",
)  # fmt: skip
_BY_AGE = tuple(f"{name}_{age}" for name in ("cold", "file", "again") for age in AGES)


class Hosts:
    """Sums of a fleet. `hours` has a row for each host of a class and hour, `observing` or acting apart."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        every = (*_SUMS, *_BY_AGE)
        first = F.min("hour").over(Window.partitionBy(*HOST))
        self.hours = fleet.keep(
            fleet.class_sums()
            .repartition(*HOST)
            .groupBy(*HOST, "hour", "acting")
            .agg(*_sum(every))
            .withColumn("first_hour", first)
        )
        by_host = self.hours.groupBy(*HOST, "acting").agg(F.count("*").alias("hours"), *_sum(every))
        self.nodes = fleet.keep(by_host)
        self.times = fleet.keep(fleet.node_times())

    def means(self) -> DataFrame:
        """The mean over the time that each node reported: sizes in bytes, `again_I` in bytes a minute. A job
        that ran half of the time counts half."""
        both = self.nodes.groupBy(*HOST).agg(*_sum((*_SUMS, *_BY_AGE)))
        sizes = ["resident", "swap", "unknown", "working_set", *_BY_AGE[: 2 * len(AGES)]]
        rates = _BY_AGE[2 * len(AGES) :]
        return both.join(self.times, ["cluster", "node"]).select(
            *HOST,
            "rows",
            "link",
            *((F.col(name) / F.col("node_instants")).alias(name) for name in sizes),
            *((F.col(name) / F.col("node_ms") * 60_000).alias(name) for name in rates),
            ((F.col("watching_us") + F.col("acting_us")) / 1000 / F.col("node_ms")).alias("cpu"),
        )

    def presence(self) -> DataFrame:
        """The share of its node's time in which each host of a class had rows."""
        both = self.nodes.groupBy(*HOST).agg(F.sum("instants").alias("instants"))
        share = F.col("instants") / F.col("node_instants")
        return both.join(self.times, ["cluster", "node"]).select(*HOST, share.alias("presence"))


def _sum(names: Iterable[str]) -> list[Column]:
    return [F.sum(name).alias(name) for name in names]


def by_age(frame: DataFrame, ages: range, *columns: str) -> DataFrame:
    """A row for each age instead of columns by age. `columns` are the other columns to keep."""
    parts = ", ".join(f"{age}, {AGE_EDGES_S[age]}L, cold_{age}, file_{age}, again_{age}" for age in ages)
    return frame.selectExpr(*columns, f"stack({len(ages)}, {parts}) as (age, min_s, cold, file, again)")


def at_age(name: str, age: str = "age") -> Column:
    """The column of `name` by age, for the index in the column `age`."""
    return F.element_at(F.array(*(F.col(f"{name}_{nth}") for nth in AGES)), F.col(age).cast("int") + 1)


def lag_hours(min_s: int) -> int:
    """Hours after the first one of a host until an age can be judged. Before, memory cannot have the age, so
    it could not come back either; a quarter of an hour of that may remain."""
    return max(0, -(-(min_s * 1000 - HOUR_MS // 4) // HOUR_MS))


LAGS = {AGE_EDGES_S[age]: lag_hours(AGE_EDGES_S[age]) for age in ADVISED}
"""`lag_hours` of each age that can be advised."""
