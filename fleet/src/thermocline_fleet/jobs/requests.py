"""Right-sized memory requests: what remains resident at the advised age, and headroom."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from .._question import Question
from .._stage import Fleet
from .._sums import ADVISED

MIB = 1 << 20


def requests(fleet: Fleet, advised: DataFrame, question: Question) -> DataFrame:
    """A row for each class and target, and for each class with all of its targets, where `target` is null.

    `need_p99_bytes`: the 99th percentile, over host-hours, of the hour's peak of resident memory without what
    was idle for the advised age or longer, in whole MiB; all resident memory where no age is advised.
    `request_bytes` has the headroom. Beside it: `resident_p99_bytes`, the same with all resident memory, and
    `resident_now_bytes`, the mean over hosts in the last hour.
    """
    peaks = F.array(*(F.col(f"peak_{age}") for age in ADVISED))
    nth = F.col("age") - ADVISED.start + 1
    need = F.when(F.col("age").isNull(), F.col("peak_resident")).otherwise(
        F.element_at(peaks, nth.cast("int"))
    )
    ages = F.broadcast(advised.select("class", "age", "min_s"))
    hours = (
        fleet.target_sums()
        .join(ages, "class", "left")
        .groupBy("class", "target", "cluster", "node", "hour")
        .agg(
            F.max(_mib(need)).alias("need"),
            F.max(_mib(F.col("peak_resident"))).alias("peak"),
            (F.sum("resident") / F.sum("instants")).alias("resident"),
            F.first("min_s").alias("min_s"),
        )
    )
    last_hour = (fleet.counts.end_ms - 1) // 3_600_000
    is_last = F.col("hour") == last_hour
    p99 = F.lit(0.99)
    both = hours.rollup("class", "target").agg(
        F.countDistinct("cluster", "node").alias("hosts"),
        F.count("*").alias("host_hours"),
        F.first("min_s").alias("min_age_s"),
        (F.percentile("need", p99) * MIB).alias("need_p99_bytes"),
        (F.ceil(F.percentile("need", p99) * (1 + question.headroom)) * MIB).alias("request_bytes"),
        (F.percentile("peak", p99) * MIB).alias("resident_p99_bytes"),
        F.avg(F.when(is_last, F.col("resident"))).alias("resident_now_bytes"),
    )
    return both.where(F.col("class").isNotNull())


def _mib(value: Column) -> Column:
    """Whole MiB, rounded up. Few distinct values keep exact percentiles small."""
    return F.ceil(value / MIB)
