"""What policies saved, beside what observing hosts of the same class predict; and what agents cost."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from .._stage import Fleet


def policies(fleet: Fleet, curve: DataFrame) -> DataFrame:
    """A row for each class, policy and minimum age with rows of the mode `act`.

    `saved_bytes`: the mean of a host; `predicted_bytes`: the net saving at this age, as the mean of the
    class's hosts that observe; null without such hosts. `ratio` is saved by predicted. `back_bytes_per_min`:
    memory that came back after the policy had paged it out.
    """
    sums = fleet.policy_sums()
    keys = ("class", "policy", "min_age_ms")
    by_host = sums.groupBy(*keys, "cluster", "node").agg(
        (F.sum("net_saved") / F.sum("instants")).alias("saved"),
        (F.sum("out") / F.sum("instants")).alias("out"),
        (F.sum("out_swap") / F.sum("instants")).alias("out_swap"),
        (F.sum("came_back") / F.sum("covered_ms") * 60_000).alias("back"),
        (F.sum("paged_out") / F.sum("covered_ms") * 60_000).alias("paged_out"),
        ((F.sum("watching_us") + F.sum("acting_us")) / 1000 / F.sum("covered_ms")).alias("cpu"),
    )
    saved = by_host.groupBy(*keys).agg(
        F.count("*").alias("hosts"),
        F.avg("saved").alias("saved_bytes"),
        F.avg("out").alias("out_bytes"),
        F.avg("out_swap").alias("out_swap_bytes"),
        F.avg("paged_out").alias("paged_out_bytes_per_min"),
        F.avg("back").alias("back_bytes_per_min"),
        F.avg("cpu").alias("cpu_share"),
    )
    points = curve.groupBy("class").agg(
        F.sort_array(
            F.collect_list(
                F.struct("min_s", F.col("net_running_bytes").alias("net"), F.col("hosts").alias("n"))
            )
        ).alias("points")
    )
    joined = saved.join(points, "class", "left").withColumn("predicted_bytes", _predicted())
    ratio = F.when(F.col("predicted_bytes") > 0, F.col("saved_bytes") / F.col("predicted_bytes"))
    observing = F.array_max(F.transform("points", lambda point: point["n"]))
    return joined.withColumn("ratio", ratio).withColumn("observing_hosts", observing).drop("points")


def _predicted() -> Column:
    """The net saving at the policy's minimum age, between the two ages around it. Within a bucket, memory is
    taken to be spread evenly over the ages. Null for an age outside of those that can be judged."""
    age_s = F.col("min_age_ms") / 1000
    below = F.try_element_at(F.filter("points", lambda point: point["min_s"] <= age_s), F.lit(-1))
    above = F.get(F.filter("points", lambda point: point["min_s"] >= age_s), F.lit(0))
    width = above["min_s"] - below["min_s"]
    share = F.when(width > 0, (age_s - below["min_s"]) / width).otherwise(0.0)
    some = F.exists("points", lambda point: point["min_s"] <= age_s)
    return F.when(some, below["net"] + (above["net"] - below["net"]) * share)


def agents(fleet: Fleet) -> DataFrame:
    """One row: what the agents cost a host. `cpu_share` is of one CPU; its 99th percentile is over hosts."""
    by_host = fleet.agent_sums().groupBy("cluster", "node").agg(
        ((F.sum("watching_us") + F.sum("acting_us")) / 1000 / F.sum("covered_ms")).alias("cpu"),
        (F.sum("resident") / F.sum("instants")).alias("resident"),
        F.sum("rows").alias("rows"),
    )  # fmt: skip
    # Steps of a millionth keep exact percentiles small.
    return by_host.agg(
        F.count("*").alias("hosts"),
        F.sum("rows").alias("rows"),
        F.avg("cpu").alias("cpu_share"),
        F.percentile(F.round("cpu", 6), F.lit(0.99)).alias("cpu_share_p99"),
        F.avg("resident").alias("resident_bytes"),
        F.max("resident").alias("resident_max_bytes"),
    )
