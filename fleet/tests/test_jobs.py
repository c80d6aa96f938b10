"""Each job gives what DuckDB gives on the same files, and what the generator's own rows add up to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import fleet
import sql
import thermocline_fleet as tf
from thermocline_fleet import jobs
from thermocline_fleet._layout import HOUR_MS, WEEK_MS

QUESTION = tf.Question()


@dataclass
class Both:
    """The jobs of Spark, and DuckDB, on the same files."""

    fleet: tf.Fleet
    hosts: tf.Hosts
    curve: DataFrame
    advised: DataFrame
    database: sql.Database


def both(spark: SparkSession, folder: Path, class_by: str = "workload") -> Both:
    whole = tf.Fleet(spark, tf.Reading(str(folder), class_by=class_by))
    hosts = tf.Hosts(whole)
    curve = whole.keep(jobs.curve(hosts, QUESTION))
    advised = whole.keep(jobs.advice(curve, QUESTION))
    database = sql.Database([str(path) for path in folder.rglob("*.parquet")], QUESTION, class_by)
    return Both(whole, hosts, curve, advised, database)


@pytest.fixture(scope="module")
def made(spark: SparkSession, small: Path) -> Iterator[Both]:
    found = both(spark, small)
    yield found
    found.fleet.close()


def assert_same(frame: DataFrame, expected: sql.Rows, keys: tuple[str, ...]) -> None:
    """Both have the same keys, and the same values in all columns of `expected`."""
    assert expected, "an empty result shows nothing"
    found = {tuple(row[key] for key in keys): row.asDict() for row in frame.collect()}
    wanted = {tuple(row[key] for key in keys): row for row in expected}
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for name, value in row.items():
            if name not in ("age", "running"):
                same(found[key][name], value, (key, name))


def same(found: Any, expected: Any, what: object) -> None:
    if isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9), what
    else:
        assert found == expected, what


def test_cold_memory_equals_duckdb(made: Both) -> None:
    assert_same(
        jobs.cold_memory(made.hosts), made.database.rows("cold_memory"), ("cluster", "class", "min_s")
    )


def test_cold_memory_equals_sum_of_rows_made(made: Both, small: Path) -> None:
    rows = [
        row for path in small.rglob("*.parquet") for row in pq.read_table(path, partitioning=None).to_pylist()
    ]
    intervals = 5 * 12
    for found in jobs.cold_memory(made.hosts).where("min_s = 1800").collect():
        mine = [
            row for row in rows if row["workload"] == found["class"] and row["node"].startswith(found.cluster)
        ]
        assert mine
        assert found.bytes == pytest.approx(
            sum(sum(row["idle_bytes"][10:]) for row in mine) / intervals, rel=1e-12
        )
        resident = sum(row["resident_bytes"] for row in mine) / intervals
        assert found.resident_bytes == pytest.approx(resident, rel=1e-12)


def test_refaults_equal_duckdb(made: Both) -> None:
    assert_same(jobs.refaults(made.hosts), made.database.rows("refaults"), ("cluster", "class", "min_s"))


def test_minimum_ages_equal_duckdb(made: Both) -> None:
    assert_same(made.curve, made.database.rows("curve"), ("class", "min_s"))


def test_advice_is_smallest_age_within_the_bound(made: Both) -> None:
    assert_same(made.advised, made.database.rows("advice"), ("class",))
    # Each class comes back at the age before: 10 to 30 s for batch, 2 min for cache, 1 to 2 min for web.
    ages = {row["class"]: row.min_s for row in made.advised.collect()}
    assert ages == {"batch": 30, "cache": 300, "idle": 10, "web": 120}
    for row in made.advised.collect():
        assert row.low <= row.net_saved_bytes <= row.high


def test_requests_equal_duckdb(made: Both) -> None:
    found = jobs.requests(made.fleet, made.advised, QUESTION)
    assert_same(found, made.database.rows("requests"), ("class", "target"))


def test_policies_equal_duckdb_and_prediction(made: Both) -> None:
    found = jobs.policies(made.fleet, made.curve)
    assert_same(found, made.database.rows("policies"), ("class", "policy", "min_age_ms"))
    (policy,) = found.collect()
    nets = {row["min_s"]: row["running"] for row in made.database.rows("curve") if row["class"] == "web"}
    # 90 s lie in the middle between the ages of 60 and 120 s.
    assert policy.predicted_bytes == pytest.approx((nets[60] + nets[120]) / 2, rel=1e-9)
    assert policy.ratio == pytest.approx(policy.saved_bytes / policy.predicted_bytes, rel=1e-9)


def test_agents_equal_duckdb(made: Both) -> None:
    assert_same(jobs.agents(made.fleet), made.database.rows("agents"), ("hosts",))


@pytest.mark.parametrize("class_by", ["namespace", "target"])
def test_classes_follow_another_column(spark: SparkSession, small: Path, class_by: str) -> None:
    found = both(spark, small, class_by)
    assert_same(
        jobs.cold_memory(found.hosts), found.database.rows("cold_memory"), ("cluster", "class", "min_s")
    )
    assert_same(found.curve, found.database.rows("curve"), ("class", "min_s"))
    if class_by == "namespace":
        classes = {row["class"] for row in found.curve.collect()}
        assert classes == {"default", "jobs", "(none)"}
    found.fleet.close()


def test_outliers_and_drift_equal_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    """Nine hosts in two weeks. One grows by 40 % in a week; one has far more cold memory than the others."""
    cache, web = fleet.JOBS[1], fleet.JOBS[0]
    odd = fleet.Job(cache.workload, cache.resident, fleet.JOBS[3].idle, cache.again)
    hosts = [fleet.Host(number, jobs=(cache, web)) for number in range(7)]
    hosts += [fleet.Host(7, jobs=(odd, web)), fleet.Host(8, jobs=(cache, web), growth=0.4)]
    for start in (fleet.START_MS, fleet.START_MS + WEEK_MS):
        fleet.write(tmp_path, hosts, 2, start - 2 * HOUR_MS)
    found = both(spark, tmp_path)
    outliers = jobs.outliers(found.hosts, found.advised, QUESTION)
    assert_same(outliers, found.database.rows("outliers"), ("cluster", "class", "node"))
    assert [(row["class"], row.node, row.link) for row in outliers.collect()] == [
        ("cache", "east-7", "https://dash.example/east-7")
    ]
    drift = jobs.drift(found.hosts, found.advised)
    assert_same(drift, found.database.rows("drift"), ("class", "cluster", "node"))
    named = {(row["class"], row.node) for row in drift.collect() if row.node is not None}
    assert named == {("cache", "east-8"), ("web", "east-8")}
    found.fleet.close()


def test_advice_needs_every_hour_of_the_day(spark: SparkSession, tmp_path: Path) -> None:
    """A class breaks the bound in one of ten hours on every host: 90 % of host-hours are not enough."""
    calm = fleet.Job("app", 256 * fleet.MIB, fleet.JOBS[1].idle, fleet._ages((1800, 1e-6)))
    busy = fleet.Job("app", 256 * fleet.MIB, fleet.JOBS[1].idle, fleet._ages((120, 0.05), (1800, 1e-6)))
    for number in range(4):
        fleet.write(tmp_path, [fleet.Host(number, jobs=(calm,))], 9)
        fleet.write(tmp_path, [fleet.Host(number, jobs=(busy,))], 1, fleet.START_MS + 9 * HOUR_MS)
    found = both(spark, tmp_path)
    assert_same(found.curve, found.database.rows("curve"), ("class", "min_s"))
    points = {row.min_s: row for row in found.curve.collect()}
    assert (points[120].held, points[300].held) == (0.9, 1.0)
    assert points[120].held_low < 0.9
    assert [row.min_s for row in found.advised.collect()] == [300]
    found.fleet.close()
