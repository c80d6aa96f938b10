"""Hosts whose cold memory lies far from that of their class, and changes from week to week."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from .._hosts import HOST, Hosts, at_age
from .._layout import AGE_EDGES_S, HOUR_MS, WEEK_MS
from .._question import Question

DEFAULT_AGE = AGE_EDGES_S.index(300)
"""The age of classes without advice."""

LEAST_DISTANCE = 0.05
"""A host that is closer to the median of its class is no outlier, however alike the others are."""
LEAST_HOSTS = 5
"""Fewer hosts say nothing about what is usual."""
SCALE = 0.6745
"""Makes the median absolute deviation comparable with a standard deviation."""
SMALLEST_MAD = 1e-5

LEAST_SHARE_DRIFT = 0.1
LEAST_GROWTH = 0.25
"""Changes of the cold share, in points, and of resident memory, as a share, that are named."""


def _ages(advised: DataFrame) -> DataFrame:
    return F.broadcast(advised.select("class", "age"))


def _share(cold: Column, resident: Column) -> Column:
    """A share in steps of 0.001 %: few distinct values keep exact percentiles small."""
    return F.round(F.when(resident > 0, cold / resident).otherwise(0.0), 5)


def cold_shares(hosts: Hosts, advised: DataFrame) -> DataFrame:
    """A row for each host of a class that observes: its cold share at the advised age, or at 5 min."""
    with_age = hosts.nodes.where(~F.col("acting")).join(_ages(advised), "class", "left")
    with_age = with_age.withColumn("age", F.coalesce("age", F.lit(DEFAULT_AGE)))
    return with_age.select(
        *HOST,
        _edge().alias("min_s"),
        _share(at_age("cold"), F.col("resident")).alias("share"),
        (F.col("resident") / F.col("instants")).alias("resident_bytes"),
    )


def _edge() -> Column:
    return F.element_at(F.array(*(F.lit(edge) for edge in AGE_EDGES_S)), F.col("age").cast("int") + 1)


def outliers(hosts: Hosts, advised: DataFrame, question: Question) -> DataFrame:
    """A row for each host whose cold share lies far from its class. `z`: (share - median) * 0.6745 / MAD."""
    shares = cold_shares(hosts, advised)
    half = F.lit(0.5)
    medians = shares.groupBy("class").agg(
        F.percentile("share", half).alias("median"), F.count("*").alias("hosts")
    )
    away = shares.join(F.broadcast(medians.where(F.col("hosts") >= LEAST_HOSTS)), "class").withColumn(
        "distance", F.round(F.abs(F.col("share") - F.col("median")), 7)
    )
    mads = away.groupBy("class").agg(F.percentile("distance", half).alias("mad"))
    z = (F.col("share") - F.col("median")) * SCALE / F.greatest("mad", F.lit(SMALLEST_MAD))
    far = away.join(F.broadcast(mads), "class").withColumn("z", z)
    found = far.where((F.abs("z") >= question.outlier) & (F.col("distance") >= LEAST_DISTANCE))
    linked = found.join(hosts.times.select("cluster", "node", "link"), ["cluster", "node"])
    return linked.select(*HOST, "min_s", "share", "median", "mad", "z", "resident_bytes", "link")


def _weeks(hosts: Hosts, advised: DataFrame) -> DataFrame:
    """For each host of a class that observes: sums of the last seven days, and of the seven days before."""
    end_hour = -(-hosts.fleet.counts.end_ms // HOUR_MS)
    week = F.floor((F.lit(end_hour - 1) - F.col("hour")) * HOUR_MS / WEEK_MS)
    hours = hosts.hours.where(~F.col("acting")).withColumn("week", week).where(F.col("week") < 2)
    with_age = hours.join(_ages(advised), "class", "left").withColumn(
        "age", F.coalesce("age", F.lit(DEFAULT_AGE))
    )

    def of(number: int, value: Column) -> Column:
        return F.sum(F.when(F.col("week") == number, value))

    return with_age.groupBy(*HOST, _edge().alias("min_s")).agg(
        *(
            of(number, value).alias(f"{name}_{number}")
            for number in (0, 1)
            for name, value in (
                ("cold", at_age("cold")),
                ("resident", F.col("resident")),
                ("instants", F.col("instants")),
            )
        )
    )


def _changes(both: DataFrame) -> DataFrame:
    """Shares and sizes of both weeks. Hosts or classes that were not there in both have none."""
    present = both.where(F.col("resident_0").isNotNull() & F.col("resident_1").isNotNull())
    size = {number: F.col(f"resident_{number}") / F.col(f"instants_{number}") for number in (0, 1)}
    return (
        present.withColumn("share", _share(F.col("cold_0"), F.col("resident_0")))
        .withColumn("share_before", _share(F.col("cold_1"), F.col("resident_1")))
        .withColumn("resident_bytes", size[0])
        .withColumn("resident_before_bytes", size[1])
        .withColumn("share_change", F.round(F.col("share") - F.col("share_before"), 7))
        .withColumn("growth", F.when(size[1] > 0, size[0] / size[1] - 1).otherwise(0.0))
        .drop(*(f"{name}_{number}" for name in ("cold", "resident", "instants") for number in (0, 1)))
    )


def drift(hosts: Hosts, advised: DataFrame) -> DataFrame:
    """A row for each class that was there in both of the last two weeks, sizes as means of a host; `node` is
    null. And a row for each host of which the cold share changed by 10 points, or resident memory by 25 %."""
    by_host = _weeks(hosts, advised)
    sums = [
        F.sum(f"{name}_{n}").alias(f"{name}_{n}") for name in ("cold", "resident", "instants") for n in (0, 1)
    ]
    both = by_host.where(F.col("resident_0").isNotNull() & F.col("resident_1").isNotNull())
    classes = _changes(both.groupBy("class", "min_s").agg(*sums))
    large = (F.abs("share_change") >= LEAST_SHARE_DRIFT) | (F.abs("growth") >= LEAST_GROWTH)
    nodes = _changes(by_host).where(large)
    linked = nodes.join(hosts.times.select("cluster", "node", "link"), ["cluster", "node"])
    return classes.unionByName(linked, allowMissingColumns=True)
