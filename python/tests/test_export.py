"""DuckDB and polars read what `thermo export` writes, and it is what the module reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import thermocline
from conftest import RECORDING, SCHEMA_1


def export(thermo: str, recording: Path, table: str, output: Path) -> Path:
    command = [thermo, "export", str(recording), "--format", output.suffix[1:], "--table", table]
    subprocess.run([*command, "--output", str(output)], check=True)
    return output


def without_time(table: pa.Table) -> list[dict[str, object]]:
    return table.drop_columns(["time"]).to_pylist()


@pytest.mark.parametrize("recording", [RECORDING, SCHEMA_1])
def test_exported_regions_are_those_of_the_module(thermo: str, tmp_path: Path, recording: Path) -> None:
    file = export(thermo, recording, "regions", tmp_path / "regions.parquet")
    exported = pyarrow.parquet.read_table(file)
    assert exported.to_pylist() == without_time(thermocline.open(recording).regions)


def test_exported_ages_are_ages_and_reaccess(thermo: str, tmp_path: Path) -> None:
    file = export(thermo, RECORDING, "ages", tmp_path / "ages.parquet")
    exported = pyarrow.parquet.read_table(file).to_pylist()
    recording = thermocline.open(RECORDING)
    assert [row for row in exported if row["table"] != "reaccessed"] == without_time(recording.ages)
    reaccessed = [row for row in exported if row["table"] == "reaccessed"]
    for row in reaccessed:
        del row["table"], row["name"]
    assert reaccessed == without_time(recording.reaccess)
    assert reaccessed


def test_exported_csv_is_the_same(thermo: str, tmp_path: Path) -> None:
    exported = pa.csv.read_csv(export(thermo, RECORDING, "regions", tmp_path / "regions.csv"))
    assert exported.to_pylist() == without_time(thermocline.open(RECORDING).regions)


IDLE_BY_SNAPSHOT = """
    SELECT time_ns, sum(bytes) AS idle
    FROM '{file}' WHERE "table" = 'idle' AND min_age_s >= 5
    GROUP BY time_ns ORDER BY time_ns
"""


def test_duckdb_and_polars_read_exported_parquet(thermo: str, tmp_path: Path) -> None:
    file = export(thermo, RECORDING, "ages", tmp_path / "ages.parquet")
    by_duckdb = duckdb.execute(IDLE_BY_SNAPSHOT.format(file=file)).fetchall()
    is_idle = (pl.col("table") == "idle") & (pl.col("min_age_s") >= 5)
    idle = pl.scan_parquet(file).filter(is_idle).group_by("time_ns").agg(pl.col("bytes").sum())
    by_polars = idle.sort("time_ns").collect().rows()
    ages = thermocline.open(RECORDING).ages.to_pandas()
    ages = ages[(ages["table"] == "idle") & (ages["min_age_s"] >= 5)]
    expected = list(ages.groupby("time_ns")["bytes"].sum().items())
    assert [tuple(map(int, row)) for row in by_duckdb] == by_polars == expected
    assert len(expected) > 10


def test_duckdb_reads_tables_of_the_module() -> None:
    regions = thermocline.open(RECORDING).regions
    (count,) = duckdb.execute("SELECT count(*) FROM regions WHERE nr_accesses > 0").fetchall()[0]
    assert count == (regions.to_pandas()["nr_accesses"] > 0).sum() > 0
