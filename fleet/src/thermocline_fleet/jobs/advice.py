"""The smallest age of each class that keeps refaults within the bound, and what it would save.

The model is that of `thermo advise`: with a minimum age, all memory that was idle for this time is out, and
every access to memory of this idle age is a refault. Memory leaves three scan passes after it has the age, so
memory that comes back sooner is not saved. Where `thermo advise` leaves such accesses out of the refaults,
here they count: the advice is given to machines that nobody watched.

An age is judged by host-hours, an hour of a class on a host, and only by hours that can tell:

* The host was seen for the age before. Memory that was idle before looks younger than it is.
* A scan pass takes no longer than the age: a pass is the resolution of ages.
* The idle age of at least half of the resident memory is known.
* No policy acts: it takes away the memory that is to be judged.
"""

from __future__ import annotations

from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from .._hosts import HOST, LAGS, Hosts, by_age
from .._question import Question
from .._sums import ADVISED

PASSES_TO_LEAVE = 3.0
"""Passes between having the age and leaving: crates/report/src/advice/rows.rs."""

PAGE = 4096
LOWER = 1.645
"""Standard errors below an estimate that are reached from above with a probability of 95 %."""
BOTH = 1.96
"""Standard errors around an estimate that hold the value with a probability of 95 %."""
WORTHWHILE = 0.01
"""Less than this share of resident memory is not worth the effort."""


def judged_hours(hosts: Hosts, question: Question) -> DataFrame:
    """A row for each host of a class, hour and age that the hour can judge."""
    columns = (
        "cluster", "class", "node", "hour", "first_hour", "instants", "covered_ms", "resident", "unknown",
        "working_set", "pass_ms", "pass_rows", "swap_cost", "swap_cost_rows",
    )  # fmt: skip
    observing = hosts.hours.where(~F.col("acting") & (F.col("pass_rows") > 0))
    long = by_age(observing, ADVISED, *columns)
    lag = F.element_at(
        F.create_map(*(F.lit(value) for value in chain(*LAGS.items()))), F.col("min_s").cast("int")
    )
    pass_ms = F.col("pass_ms") / F.col("pass_rows")
    can_tell = (
        (F.col("hour") >= F.col("first_hour") + lag)
        & (pass_ms <= F.col("min_s") * 1000)
        & (F.col("unknown") * 2 <= F.col("resident"))
    )
    working_set = F.greatest("working_set", F.col("instants") * PAGE).cast("double")
    # Means over the hour's rows; both sides are multiplied, so that nothing is divided.
    refaults = F.col("again").cast("double") * 60_000 * F.col("instants")
    allowed = working_set * F.col("covered_ms") * question.max_refaults
    out = _share_out(pass_ms)
    cost = F.when(F.col("swap_cost_rows") > 0, F.col("swap_cost") / F.col("swap_cost_rows")).otherwise(
        question.swap_cost
    )
    swapped = F.greatest(F.col("cold") - F.col("file"), F.lit(0))
    saved = F.col("file") + swapped * F.greatest(1 - cost, F.lit(0.0))
    return long.where(can_tell).select(
        *HOST,
        "hour",
        "age",
        "min_s",
        "instants",
        (refaults <= allowed).cast("int").alias("held"),
        (F.col("again").cast("double") * 60_000 / F.col("covered_ms")).alias("refaults"),
        (working_set / F.col("instants")).alias("working_set"),
        (F.col("resident") / F.col("instants")).alias("resident"),
        (F.col("cold") * out / F.col("instants")).alias("leaves"),
        (saved * out / F.col("instants")).alias("net"),
    )


def _share_out(pass_ms: Column) -> Column:
    """The share of the memory of an age that is out: the rest waits to leave, and comes back before."""
    waits = F.col("again") / F.col("covered_ms") * pass_ms * PASSES_TO_LEAVE
    cold = F.greatest(F.col("cold") / F.col("instants"), F.lit(1.0))
    return 1 - F.least(waits / cold, F.lit(1.0))


def curve(hosts: Hosts, question: Question) -> DataFrame:
    """A row for each class and age that can be judged: what the age would save and cost.

    `held`: the share of host-hours within the bound; `held_low`: its lower end at 95 %, by the spread over
    hosts and over hours. `net_saved_bytes` lies between `low` and `high` at 95 %, by the spread over hosts
    and by the 5th to 95th percentile over hours. `net_running_bytes`: the mean of a host while it runs the
    class.
    """
    judged = hosts.fleet.keep(judged_hours(hosts, question))
    weighted = [
        (F.sum(F.col(name) * F.col("instants")) / F.sum("instants")).alias(name)
        for name in ("refaults", "working_set", "resident", "leaves", "net")
    ]
    by_host = judged.groupBy(*HOST, "age", "min_s").agg(
        F.count("*").alias("hours"), F.sum("held").alias("held"), *weighted
    )
    there = F.col("presence")
    spread = by_host.join(hosts.presence(), list(HOST)).groupBy("class", "age", "min_s").agg(
        F.count("*").alias("hosts"),
        F.sum("hours").alias("host_hours"),
        (F.sum("held") / F.sum("hours")).alias("held"),
        F.var_samp(F.col("held") / F.col("hours")).alias("var_hosts"),
        F.sum(F.col("refaults") * there).alias("refault_bytes_per_min"),
        F.sum(F.col("working_set") * there).alias("working_set_bytes"),
        F.sum(F.col("resident") * there).alias("resident_bytes"),
        F.sum(F.col("leaves") * there).alias("leaves_bytes"),
        F.sum(F.col("net") * there).alias("net_saved_bytes"),
        F.stddev_samp(F.col("net") * there).alias("sd_net"),
        F.avg("net").alias("net_running_bytes"),
    )  # fmt: skip
    by_hour = (
        judged.groupBy("class", "age", "hour")
        .agg(F.avg("held").alias("held"), F.avg("net").alias("net"))
        .groupBy("class", "age")
        .agg(
            F.count("*").alias("nr_hours"),
            F.var_samp("held").alias("var_hours"),
            F.avg("net").alias("hour_mean"),
            F.percentile("net", F.lit(0.05)).alias("hour_low"),
            F.percentile("net", F.lit(0.95)).alias("hour_high"),
        )
    )
    return _with_intervals(spread.join(by_hour, ["class", "age"]))


def _with_intervals(joined: DataFrame) -> DataFrame:
    zero = F.lit(0.0)
    variance = F.coalesce(F.col("var_hosts") / F.col("hosts"), zero) + F.coalesce(
        F.col("var_hours") / F.col("nr_hours"), zero
    )
    margin = F.coalesce(F.col("sd_net") * F.sqrt("hosts") * BOTH, zero)
    net = F.col("net_saved_bytes")

    def end(quantile: str) -> Column:
        share = F.when(F.col("hour_mean") > 0, F.col(quantile) / F.col("hour_mean") - 1).otherwise(zero)
        return F.sqrt(F.pow(net * share, F.lit(2.0)) + F.pow(margin, F.lit(2.0)))

    return joined.select(
        "class",
        "age",
        "min_s",
        "hosts",
        "host_hours",
        "held",
        F.greatest(F.col("held") - LOWER * F.sqrt(variance), zero).alias("held_low"),
        "refault_bytes_per_min",
        (F.col("refault_bytes_per_min") / F.greatest("working_set_bytes", F.lit(float(PAGE)))).alias(
            "share_per_min"
        ),
        "working_set_bytes",
        "resident_bytes",
        "leaves_bytes",
        "net_saved_bytes",
        F.greatest(net - end("hour_low"), zero).alias("low"),
        (net + end("hour_high")).alias("high"),
        "net_running_bytes",
    )


def advice(curve: DataFrame, question: Question) -> DataFrame:
    """A row for each class that has an age within the bound: the smallest such age.

    The bound holds on average, and in at least the share `hold` of host-hours, counted at the lower end.
    `worth`: whether at least 1 % of resident memory leaves.
    """
    within = (F.col("held_low") >= question.hold) & (F.col("share_per_min") <= question.max_refaults)
    smallest = curve.where(within).groupBy("class").agg(F.min("age").alias("age"))
    worth = F.col("leaves_bytes") >= F.col("resident_bytes") * WORTHWHILE
    return smallest.join(curve, ["class", "age"]).withColumn("worth", worth)
