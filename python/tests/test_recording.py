"""The tables of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rows
import thermocline
from conftest import RECORDING, SCHEMA_1


def test_every_table_is_an_arrow_table_with_times(sample: Path) -> None:
    recording = thermocline.open(sample)
    for name in get_args(thermocline.TableName):
        table = getattr(recording, name)
        assert isinstance(table, pa.Table)
        assert table is recording.table(name)
        assert table.schema.names[:2] == ["time", "time_ns"]
        assert table.schema.field("time").type == pa.timestamp("ns", "UTC")
        assert len(table), name
        offset = rows.METADATA["wall_clock_offset_ns"]
        times = table.column("time").cast(pa.int64()).to_pylist()
        assert times == [time + offset for time in table.column("time_ns").to_pylist()]


def test_snapshots_count_their_targets_and_regions(sample: Path) -> None:
    table = thermocline.open(sample).snapshots.drop_columns(["time"])
    first = {
        "time_ns": 100_000_000,
        "start_ns": 0,
        "aggr_ns": 100_000_000,
        "max_nr_accesses": 20,
        "nr_targets": 2,
        "nr_regions": 2,
    }
    second = {**first, "time_ns": 200_000_000, "start_ns": 100_000_000}
    assert table.to_pylist() == [first, second]


def test_targets_have_scan_passes_only_with_access_tables(sample: Path) -> None:
    table = thermocline.open(sample).targets.drop_columns(["time"]).slice(2)
    passes = {"pass_ns": 130_000_000, "nr_passes": 7, "as_of_ns": 60_000_000}
    common = {"time_ns": 200_000_000, "averaged": 4096}
    assert table.to_pylist() == [
        {**common, "target": 0, "pid": 7, "method": "scan", **passes},
        {**common, "target": 1, "pid": None, "method": "sampling", **dict.fromkeys(passes)},
    ]


def test_regions_have_ages_in_time(sample: Path) -> None:
    table = thermocline.open(sample).regions.drop_columns(["time"]).slice(2, 1)
    assert table.to_pylist() == [
        {
            "time_ns": 200_000_000,
            "target": 0,
            "pid": 7,
            "start": 0x1000,
            "end": 0x5000,
            "nr_accesses": 20,
            "max_nr_accesses": 20,
            "age": 3,
            "age_ns": 300_000_000,
            "unknown": False,
        }
    ]


def test_age_of_region_follows_aggregation_interval_of_its_snapshot(tmp_path: Path) -> None:
    def snapshot(time_ns: int, aggr_ns: int) -> list[rows.Row]:
        head = rows.row(0, time_ns, time_ns - 1, aggr_ns, max_nr_accesses=20)
        return [head, rows.row(1, time_ns, 1, 0, target=0), rows.region(time_ns, 0x1000, 1, 0, 3)]

    # The second snapshot begins in the batch of the first.
    batches = [[*snapshot(10, 100), *snapshot(20, 7)], snapshot(30, 1000)]
    recording = thermocline.open(rows.write(tmp_path / "r.arrow", batches))
    assert recording.regions.column("age_ns").to_pylist() == [300, 21, 3000]


def test_ages_are_idle_ages_then_reasons(sample: Path) -> None:
    ages = thermocline.open(sample).ages
    shown = ages.select(["time_ns", "table", "name", "min_age_s", "max_age_s", "bytes"]).to_pylist()
    of_one = [
        ("idle", "anon", 0, 1, 8192),
        ("idle", "anon", 86400, None, 4096),
        ("idle", "file_huge", 2, 5, 2 << 20),
        ("unknown", "first_scan", None, None, 12288),
    ]
    expected = [(time_ns, *cells) for time_ns in (100_000_000, 200_000_000) for cells in of_one]
    assert [tuple(cells.values()) for cells in shown] == expected
    passes = ages.select(["target", "pid", "method", "pass_ns", "nr_passes", "as_of_ns"]).to_pylist()
    assert {tuple(cells.values()) for cells in passes} == {(0, 7, "scan", 130_000_000, 7, 60_000_000)}


def test_reaccess_has_age_before_access(sample: Path) -> None:
    table = thermocline.open(sample).reaccess
    assert (
        table.select(["min_age_s", "max_age_s", "bytes"]).to_pylist()
        == [{"min_age_s": 10, "max_age_s": 30, "bytes": 16384}] * 2
    )


def test_actions_and_skipped_belong_to_scheme(sample: Path) -> None:
    recording = thermocline.open(sample)
    (action,) = recording.actions.drop_columns(["time"]).to_pylist()
    assert action == {
        "time_ns": 250_000_000,
        "scheme": 1,
        "action": "pageout",
        "nr_tried": 1,
        "sz_tried": 2,
        "nr_applied": 3,
        "sz_applied": 4,
        "sz_ops_filter_passed": 5,
        "sz_changed": 6,
        "qt_exceeds": 7,
        "effective_sz": 8,
    }
    skipped = recording.skipped.select(["scheme", "action", "reason", "bytes"]).to_pylist()
    common = {"scheme": 1, "action": "pageout"}
    assert skipped == [
        {**common, "reason": "young", "bytes": 4096},
        {**common, "reason": "shared", "bytes": 2**64 - 1},
    ]


def test_events_keep_names_and_texts(sample: Path) -> None:
    recording = thermocline.open(sample)
    assert recording.plans.column("text").to_pylist() == ["scan every page"]
    assert recording.notes.select(["kind", "text"]).to_pylist()[0] == {
        "kind": "target_appeared",
        "text": 'it is thére, "quoted"\n',
    }
    assert recording.mappings.select(["start", "end", "name"]).to_pylist() == [
        {"start": 0x1000, "end": 0x5000, "name": "[heap]"}
    ]
    assert recording.footprint.select(["vsz", "rss", "swap"]).to_pylist() == [
        {"vsz": 9 << 30, "rss": 5 << 20, "swap": 1}
    ]
    assert recording.cost.select(["cpu_ns", "monitoring_cpu_ns", "rss"]).to_pylist() == [
        {"cpu_ns": 12, "monitoring_cpu_ns": 11, "rss": 4 << 20}
    ]
    assert recording.totals.select(["scope", "name", "bytes"]).to_pylist() == [
        {"scope": "machine", "name": "free", "bytes": 5 << 30},
        {"scope": "machine", "name": "mapped, monitored", "bytes": 3 << 30},
    ]


def test_recording_without_rows_has_empty_tables(tmp_path: Path) -> None:
    recording = thermocline.open(rows.write(tmp_path / "r.arrow", []))
    for name in get_args(thermocline.TableName):
        assert len(recording.table(name)) == 0, name


def test_metadata_says_what_was_recorded() -> None:
    metadata = thermocline.open(RECORDING).metadata
    assert metadata.schema == 2
    assert metadata.writer.startswith("thermo ")
    assert metadata.settings.aggr_ns is not None
    assert metadata.settings.aggr_ns > 0
    assert metadata.schemes


def test_real_recording_is_consistent() -> None:
    recording = thermocline.open(RECORDING)
    assert recording.truncated is None
    assert not recording.in_progress
    regions, snapshots = recording.regions, recording.snapshots
    assert len(regions) == snapshots.to_pandas()["nr_regions"].sum()
    assert len(recording.targets) == snapshots.to_pandas()["nr_targets"].sum()
    # Idle and unknown bytes of a snapshot sum to what the kernel said about the same time, roughly.
    ages = recording.ages.to_pandas()
    resident = ages.groupby("time_ns")["bytes"].sum().iloc[-1]
    rss = recording.footprint.to_pandas()["rss"].iloc[-1]
    assert 0.9 < resident / rss < 1.1


def test_older_recording_has_regions_but_no_ages() -> None:
    recording = thermocline.open(SCHEMA_1)
    assert len(recording.regions) == 4
    assert recording.targets.column("pass_ns").null_count == len(recording.targets)
    for name in ("ages", "reaccess"):
        with pytest.raises(thermocline.Error, match="has schema 1, of an older thermo.*use .regions"):
            getattr(recording, name)


def test_recording_of_regions_only_names_its_tracker(tmp_path: Path) -> None:
    without = [row for row in rows.snapshot(0) if row["kind"] not in (10, 11, 12)]
    recording = thermocline.open(rows.write(tmp_path / "r.arrow", [without]))
    with pytest.raises(thermocline.Error, match="the tracker sim reports only regions: use .regions"):
        _ = recording.ages


def test_unknown_table_is_refused(sample: Path) -> None:
    with pytest.raises(thermocline.Error, match="no table 'region': use one of snapshots, targets"):
        thermocline.open(sample).table("region")  # type: ignore[arg-type]


def test_to_pandas_gives_frame_of_each_table(sample: Path) -> None:
    recording = thermocline.open(sample)
    frame = recording.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["start"].tolist() == [0x1000, 0x7FFF_0000_0000] * 2
    assert str(frame["time"].dt.tz) == "UTC"
    assert recording.to_pandas("ages").equals(recording.ages.to_pandas())


def test_to_polars_gives_frame_of_each_table(sample: Path) -> None:
    recording = thermocline.open(sample)
    frame = recording.to_polars()
    assert isinstance(frame, pl.DataFrame)
    assert frame["start"].to_list() == [0x1000, 0x7FFF_0000_0000] * 2
    assert recording.to_polars("ages")["bytes"].sum() == 2 * (8192 + 4096 + (2 << 20) + 12288)


def test_recording_describes_itself(sample: Path) -> None:
    recording = thermocline.open(str(sample))
    assert repr(recording) == f"<Recording {sample}: pid 7, 30 rows>"
    assert recording.path == sample
