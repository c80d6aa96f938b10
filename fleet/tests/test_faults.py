"""Files that cannot be used are counted and set aside. The sums are those of the other files, exactly."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import fleet
import thermocline_fleet as tf
from thermocline_fleet import _files, jobs
from thermocline_fleet._files import read_file
from thermocline_fleet._layout import COLUMNS, HOUR_MS
from thermocline_fleet._session import readable_errors
from thermocline_fleet._store import StoreError

HOST = fleet.Host(1)
DAY_MS = 24 * HOUR_MS


def one(folder: Path, host: fleet.Host = HOST, window: int = fleet.START_MS, **metadata: Any) -> Path:
    """A file with this metadata."""
    rows = fleet.rows_of(host, window)
    return fleet.write_file(
        fleet.path_of(folder, host, window), rows, {**fleet.metadata_of(host, window, len(rows)), **metadata}
    )


def judge(folder: Path, path: Path, **reading: Any) -> tuple[str | None, str]:
    """Reason and detail of a file."""
    file = read_file(tf.Reading(str(folder), **reading), str(path), path.stat().st_size)
    assert file is not None
    assert (file.rows.num_rows == 0) == (file.reason is not None)
    return file.reason, file.detail


def test_file_without_faults_is_read(tmp_path: Path) -> None:
    assert judge(tmp_path, one(tmp_path)) == (None, "")


def test_file_cut_at_any_byte_is_truncated(tmp_path: Path) -> None:
    path = one(tmp_path)
    data = path.read_bytes()
    for length in (*range(0, len(data), 997), len(data) - 1):
        path.write_bytes(data[:length])
        assert judge(tmp_path, path)[0] == "truncated", length


def test_file_with_changed_bytes_is_set_aside_or_read_whole(tmp_path: Path) -> None:
    path = one(tmp_path)
    data = bytearray(path.read_bytes())
    seen = set()
    for at in range(4, len(data), 211):
        changed = bytearray(data)
        changed[at : at + 8] = bytes(8)
        path.write_bytes(changed)
        file = read_file(tf.Reading(str(tmp_path)), str(path), len(data))
        seen.add(None if file is None else file.reason)
    assert "truncated" in seen


@pytest.mark.parametrize(
    ("metadata", "reason", "detail"),
    [
        ({"schema": "2"}, "future_schema", "its schema version is 2; this package reads 1"),
        ({"age_edges_s": "0,1,2"}, "future_schema", "its idle ages have other edges: 0,1,2"),
        ({"rows": "35"}, "truncated", "it has 36 rows; its metadata says 35"),
        ({"window_start_ms": str(1 << 62)}, "truncated", "its window_start_ms is 4611686018427387904"),
        ({"window_start_ms": str(-HOUR_MS)}, "truncated", "its window_start_ms is -3600000"),
        ({"window_ms": str(10**15)}, "truncated", "its window_ms is 1000000000000000"),
        ({"written_ms": str(10**30)}, "truncated", "its written_ms is 1000000000000000000000000000000"),
        ({"written_ms": "9" * 5000}, "truncated", "Exceeds the limit"),
        ({"rows": str(10**9)}, "truncated", "its rows is 1000000000"),
        ({"window_start_ms": "soon"}, "truncated", "invalid literal"),
        ({"window_start_ms": str(fleet.START_MS + 1)}, "truncated", "is not valid"),
        ({"window_start_ms": str(fleet.START_MS + 3 * HOUR_MS)}, "truncated", "a time before its window"),
        ({"cluster": "north"}, "wrong_partition", "it belongs into date=2026-06-01/cluster=north"),
        ({"node": "other"}, "truncated", "it has rows of another node"),
        (
            {"written_ms": str(fleet.START_MS + HOUR_MS + 2 * DAY_MS + 1)},
            "late",
            "it was written 48.0 h after",
        ),
        ({"written_ms": str(fleet.START_MS + HOUR_MS + 2 * DAY_MS)}, None, ""),
    ],
)
def test_metadata_is_checked(
    tmp_path: Path, metadata: dict[str, Any], reason: str | None, detail: str
) -> None:
    found = judge(tmp_path, one(tmp_path, fleet.Host(1, jobs=fleet.JOBS[:2]), **metadata))
    assert found[0] == reason
    assert detail in found[1]


def test_late_follows_its_limit(tmp_path: Path) -> None:
    path = one(tmp_path, written_ms=str(fleet.START_MS + 2 * HOUR_MS))
    assert judge(tmp_path, path, late_after_ms=HOUR_MS)[0] is None
    assert judge(tmp_path, path, late_after_ms=HOUR_MS - 1)[0] == "late"


def test_name_of_future_version_is_set_aside_unread(tmp_path: Path) -> None:
    path = one(tmp_path)
    newer = path.with_name(path.name.replace(".v1.", ".v2."))
    newer.write_bytes(b"not even Parquet")
    assert judge(tmp_path, newer) == ("future_schema", "its name says schema version 2; this package reads 1")


def test_parquet_of_another_program_is_foreign(tmp_path: Path) -> None:
    path = one(tmp_path)
    pq.write_table(pq.read_table(path, partitioning=None).replace_schema_metadata(None), path)
    assert judge(tmp_path, path) == ("foreign", "it has no metadata of Thermocline")


@pytest.mark.parametrize(
    ("column", "value", "detail"),
    [
        ("idle_bytes", [1] * 14, "column idle_bytes has a list that is not of 15 values"),
        ("row", "group", "it has rows of an unknown kind"),
        ("time_ms", fleet.START_MS + DAY_MS, "it has rows of a time after its window"),
        ("interval_ms", 0, "it has rows of a time before its window"),
        ("workload", None, "null"),
        ("interval_ms", 2**63 - 1, "column interval_ms has the values"),
        ("resident_bytes", 2**62, "column resident_bytes has the values"),
        ("idle_bytes", [-(2**62)] * 15, "column idle_bytes has the values"),
        ("swap_cost", float("inf"), "column swap_cost has the values"),
        ("target", "x" * 5000, "column target has a value of 5000 bytes, more than 4096"),
    ],
)
def test_rows_are_checked(tmp_path: Path, column: str, value: Any, detail: str) -> None:
    path = one(tmp_path)
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    rows[5][column] = value
    # A nullable column can hold what the schema does not allow.
    fields = [field.with_nullable(True) for field in COLUMNS]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields).with_metadata(table.schema.metadata)), path)
    reason, found = judge(tmp_path, path)
    assert reason == "truncated"
    assert detail in found


def test_missing_column_is_named(tmp_path: Path) -> None:
    path = one(tmp_path)
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["out_bytes"]), path)
    assert judge(tmp_path, path) == ("truncated", "it lacks the columns out_bytes")


def test_lack_of_memory_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(_files, "_parse", fails)
    with pytest.raises(MemoryError):
        judge(tmp_path, one(tmp_path))


def cold(spark: SparkSession, folder: Path, **reading: Any) -> tuple[tf.FileCounts, list[Any]]:
    """Counts of the files, and all of the cold memory."""
    whole = tf.Fleet(spark, tf.Reading(str(folder), **reading))
    frame: DataFrame = jobs.cold_memory(tf.Hosts(whole))
    rows = sorted(tuple(row) for row in frame.collect())
    whole.close()
    return whole.counts, rows


def test_faulty_files_change_no_sum(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    counts, expected = cold(spark, small)
    assert (counts.read, counts.reasons) == (60, {})
    shutil.copytree(small, tmp_path / "in")
    files = sorted((tmp_path / "in").rglob("*.parquet"))
    # A copy under any name is a duplicate. The older of two versions is, whatever its name.
    shutil.copy(files[0], files[0].with_name("copy.parquet"))
    table = pq.read_table(files[1], partitioning=None)
    assert table.schema.metadata is not None
    older = {**table.schema.metadata, b"thermo.fleet.written_ms": b"1"}
    rows = table.slice(0, 9).replace_schema_metadata({**older, b"thermo.fleet.rows": b"9"})
    pq.write_table(rows, files[1].with_name("0-older.parquet"))
    # Files of other nodes, which would add to the sums.
    other = fleet.Host(90)
    one(tmp_path / "in", other, schema="2")
    one(tmp_path / "in", other, fleet.START_MS + HOUR_MS, written_ms=str(fleet.START_MS + 9 * DAY_MS))
    one(tmp_path / "in", other, fleet.START_MS + 2 * HOUR_MS, cluster="north")
    cut = one(tmp_path / "in", other, fleet.START_MS + 3 * HOUR_MS)
    os.truncate(cut, cut.stat().st_size // 2)
    # What is not a file of an agent is no file at all.
    (files[0].parent / "_SUCCESS").write_text("")
    (files[0].parent / ".hidden.parquet").write_text("")
    (tmp_path / "in" / "truth.json").write_text("{}")
    counts, found = cold(spark, tmp_path / "in")
    assert counts.read == 60
    assert counts.reasons == {
        "duplicate": 2,
        "future_schema": 1,
        "late": 1,
        "truncated": 1,
        "wrong_partition": 1,
    }
    assert counts.set_aside == 6
    assert found == expected


def test_range_takes_rows_of_its_time(spark: SparkSession, small: Path) -> None:
    begin, end = fleet.START_MS + HOUR_MS // 2, fleet.START_MS + 2 * HOUR_MS
    counts, found = cold(spark, small, from_ms=begin, to_ms=end)
    assert counts.read == 24
    rows = [
        row for path in small.rglob("*.parquet") for row in pq.read_table(path, partitioning=None).to_pylist()
    ]
    within = [row for row in rows if begin < row["time_ms"] <= end]
    assert counts.rows == len(within)
    mine = [row for row in within if row["workload"] == "cache" and row["node"].startswith("west")]
    resident = next(row[5] for row in found if row[:3] == ("west", "cache", 0))
    assert resident == pytest.approx(sum(row["resident_bytes"] for row in mine) / 18, rel=1e-12)


def test_file_that_cannot_be_read_ends_the_job(spark: SparkSession, tmp_path: Path) -> None:
    fleet.write(tmp_path, fleet.hosts(2), 1)
    path = one(tmp_path, fleet.Host(50))
    path.unlink()
    path.symlink_to(tmp_path)
    with pytest.raises(StoreError, match="cannot read .*; check permissions, and run again"):
        read_file(tf.Reading(str(tmp_path)), str(path), 1)
    with pytest.raises(StoreError, match="disappeared while the report was made; run again"):
        read_file(tf.Reading(str(tmp_path)), str(tmp_path / "date=2026-06-01" / "gone.parquet"), 1)
    path.unlink()
    # Even root must not read this file of the kernel.
    path.symlink_to("/proc/sys/vm/compact_memory")
    expected = f"^cannot read .*{path.name}: .*; check permissions, and run again$"
    with pytest.raises(tf.Error, match=expected), readable_errors():
        cold(spark, tmp_path)


def test_nothing_usable_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    one(tmp_path, schema="2")
    with pytest.raises(
        tf.Error, match=r"no file of .* can be used \(1 future_schema\): run  check  to see why"
    ):
        tf.Fleet(spark, tf.Reading(str(tmp_path)))


def test_changed_files_are_no_result(spark: SparkSession, small: Path) -> None:
    whole = tf.Fleet(spark, tf.Reading(str(small)))
    with pytest.raises(tf.Error, match="the files changed while the report was made: .* run again"):
        whole.check_rows(whole.counts.rows - 1)
    whole.close()


def test_small_file_with_large_rows_is_set_aside(tmp_path: Path) -> None:
    """A dictionary of one long name, or one run of a number, is short. Its rows are not."""
    path = one(tmp_path)
    table = pq.read_table(path, partitioning=None)
    row = table.slice(0, 1)

    def write(rows: pa.Table) -> str:
        metadata = {**table.schema.metadata, b"thermo.fleet.rows": str(rows.num_rows).encode()}
        pq.write_table(rows.replace_schema_metadata(metadata), path)
        assert path.stat().st_size < 1 << 20
        return judge(tmp_path, path)[1]

    names = {name: pa.array(["x" * 4000]) for name in ("target", "workload", "policy", "mode")}
    for name, value in names.items():
        row = row.set_column(row.schema.get_field_index(name), COLUMNS.field(name), value)
    assert write(pa.concat_tables([row] * 20_000)).startswith("its names take 320")
    long = pa.array([[7] * 5_000_000], COLUMNS.field("idle_bytes").type)
    row = row.set_column(row.schema.get_field_index("idle_bytes"), COLUMNS.field("idle_bytes"), long)
    assert write(row) == "column idle_bytes.list.element claims 5000000 values in 1 rows"
