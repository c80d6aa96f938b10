"""Cold memory by age, class and cluster; and how much of it is accessed again, at each age."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from .._hosts import Hosts, by_age
from .._sums import AGES

KEYS = ("cluster", "class")


def _long(hosts: Hosts) -> DataFrame:
    return by_age(
        hosts.means(), AGES, "cluster", "class", "node", "rows", "resident", "unknown", "swap", "working_set"
    )


def cold_memory(hosts: Hosts) -> DataFrame:
    """A row for each cluster, class and age.

    `bytes`: resident memory that was idle for `min_s` or longer; `file_bytes`: the part of it that needs no
    swap; `share`: `bytes` of resident memory. All are sums over hosts of means over time.
    """
    share = F.when(F.col("resident_bytes") > 0, F.col("bytes") / F.col("resident_bytes")).otherwise(0.0)
    return (
        _long(hosts)
        .groupBy(*KEYS, "min_s")
        .agg(
            F.count("*").alias("hosts"),
            F.sum("rows").alias("rows"),
            F.sum("resident").alias("resident_bytes"),
            F.sum("unknown").alias("unknown_bytes"),
            F.sum("swap").alias("swap_bytes"),
            F.sum("cold").alias("bytes"),
            F.sum("file").alias("file_bytes"),
        )
        .withColumn("share", share)
    )


def refaults(hosts: Hosts) -> DataFrame:
    """A row for each cluster, class and age.

    `bytes_per_min`: memory that was accessed again after being idle for `min_s` or longer; `share_per_min`:
    the same as a share of the working set, the memory that was accessed within the last minute.
    """
    share = F.col("bytes_per_min") / F.greatest("working_set_bytes", F.lit(4096.0))
    return (
        _long(hosts)
        .groupBy(*KEYS, "min_s")
        .agg(
            F.count("*").alias("hosts"),
            F.sum("working_set").alias("working_set_bytes"),
            F.sum("again").alias("bytes_per_min"),
        )
        .withColumn("share_per_min", share)
    )
