"""The heatmap of a recording."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

import rows
import thermocline
from conftest import RECORDING


@pytest.fixture(autouse=True)
def no_window() -> Iterator[None]:
    matplotlib.use("agg")
    yield
    plt.close("all")


def cells(ax: Axes, which: int = 0) -> list[list[Any]]:
    """The cells of a layer, a list for each row from below: 0 is the access rate, 1 unknown memory."""
    mesh = ax.collections[which]
    assert isinstance(mesh, QuadMesh)
    values: Any = np.ma.masked_invalid(np.ma.asarray(mesh.get_array()))
    return [[None if cell is np.ma.masked else float(cell) for cell in row] for row in values]


def snapshot(number: int, *regions: rows.Row, target: int = 0) -> list[rows.Row]:
    time_ns = (number + 1) * 10**9
    head = rows.row(0, time_ns, number * 10**9, 10**9, max_nr_accesses=20)
    return [head, rows.row(1, time_ns, 1, 0, target=target), *regions]


def region(number: int, start: int, pages: int, nr_accesses: int, **columns: object) -> rows.Row:
    return rows.region((number + 1) * 10**9, start, pages, nr_accesses, 0, **columns)


def edges(ax: Axes) -> list[float]:
    mesh = ax.collections[0]
    assert isinstance(mesh, QuadMesh)
    coordinates: Any = mesh.get_coordinates()
    return [float(at) for at in coordinates[0, :, 0]]


def test_heatmap_folds_gaps_and_averages_by_bytes(tmp_path: Path) -> None:
    # 4 pages, a gap, and 4 pages; two rows have 4 pages each. The first row is half hot, and the rates of the
    # second one differ by snapshot.
    first = [region(0, 0x1000, 2, 20), region(0, 0x3000, 2, 0), region(0, 0x7000_0000, 4, 20)]
    second = [region(1, 0x1000, 2, 20), region(1, 0x3000, 2, 0), region(1, 0x7000_0000, 4, 5)]
    path = rows.write(tmp_path / "r.arrow", [snapshot(0, *first), snapshot(1, *second)])
    recording = thermocline.open(path)
    ax = recording.heatmap(rows=2)
    assert cells(ax) == [pytest.approx([0.5, 0.5]), pytest.approx([1.0, 0.25])]
    assert edges(ax) == [0, 1, 2]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0x1000", "0x70000000"]
    # One column has the mean of both snapshots.
    assert cells(recording.heatmap(rows=2, columns=1)) == [pytest.approx([0.5]), pytest.approx([0.625])]


def test_cell_has_the_parts_of_regions_in_it(tmp_path: Path) -> None:
    parts = [region(0, 0x1000, 1, 20), region(0, 0x2000, 2, 0), region(0, 0x4000, 3, 10)]
    recording = thermocline.open(rows.write(tmp_path / "r.arrow", [snapshot(0, *parts)]))
    # Six pages in four rows of one and a half.
    column = [row[0] for row in cells(recording.heatmap(rows=4))]
    assert column == pytest.approx([1 / 1.5, 0, 0.5, 0.5])


def test_unknown_memory_is_grey_and_counts_for_no_rate(tmp_path: Path) -> None:
    parts = [region(0, 0x1000, 1, 20), region(0, 0x2000, 3, 0, unknown=True)]
    recording = thermocline.open(rows.write(tmp_path / "r.arrow", [snapshot(0, *parts)]))
    ax = recording.heatmap(rows=2)
    assert cells(ax) == [[pytest.approx(1.0)], [None]]
    assert cells(ax, 1) == [[None], [1.0]]


def test_region_over_a_gap_covers_only_mappings(tmp_path: Path) -> None:
    mappings = [
        rows.row(4, 1, target=0, start=0x1000, end=0x2000, name="/usr/lib/libx.so"),
        rows.row(4, 1, target=0, start=0x9000, end=0xA000, name="[stack]"),
    ]
    whole = snapshot(0, region(0, 0x1000, 9, 20))
    recording = thermocline.open(rows.write(tmp_path / "r.arrow", [[rows.row(3, 1), *mappings, *whole]]))
    ax = recording.heatmap(rows=2)
    assert cells(ax) == [[pytest.approx(1.0)], [pytest.approx(1.0)]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0x1000 libx.so", "0x9000 [stack]"]
    assert ax.get_ylim() == (0, 2 * 4096)


def test_time_without_target_is_a_gap(tmp_path: Path) -> None:
    absent = rows.row(0, 2 * 10**9, 10**9, 10**9, max_nr_accesses=20)
    hot = [snapshot(number, region(number, 0x1000, 1, 20)) for number in (0, 2)]
    recording = thermocline.open(rows.write(tmp_path / "r.arrow", [hot[0], [absent], hot[1]]))
    ax = recording.heatmap(rows=1)
    assert edges(ax) == [0, 1, 2, 3]
    assert cells(ax) == [[pytest.approx(1.0), None, pytest.approx(1.0)]]


def test_regions_cover_time_since_the_ones_before(tmp_path: Path) -> None:
    # A history has regions only in some snapshots.
    batches = [snapshot(0, region(0, 0x1000, 1, 20)), snapshot(1), snapshot(2, region(2, 0x1000, 1, 0))]
    ax = thermocline.open(rows.write(tmp_path / "r.arrow", batches)).heatmap(rows=1)
    assert edges(ax) == [0, 1, 3]
    assert cells(ax) == [[pytest.approx(1.0), pytest.approx(0.0)]]


def test_largest_target_is_drawn_unless_one_is_named(tmp_path: Path) -> None:
    small = snapshot(0, region(0, 0x1000, 1, 20))
    large = [rows.row(1, 10**9, target=5), region(0, 0x1000, 2, 0, target=5, pid=None)]
    recording = thermocline.open(rows.write(tmp_path / "r.arrow", [[*small, *large]]))
    ax = recording.heatmap(rows=1)
    assert (ax.get_title(), cells(ax)) == ("physical memory", [[pytest.approx(0.0)]])
    ax = recording.heatmap(target=0, rows=1)
    assert (ax.get_title(), cells(ax)) == ("pid 7", [[pytest.approx(1.0)]])
    with pytest.raises(thermocline.Error, match="no regions of target 9: .targets lists the targets"):
        recording.heatmap(target=9)


def test_heatmap_uses_given_axes() -> None:
    _, (left, right) = plt.subplots(1, 2)
    assert thermocline.open(RECORDING).heatmap(right) is right
    assert not left.collections
    assert right.collections


def test_heatmap_without_regions_is_refused(tmp_path: Path, sample: Path) -> None:
    with pytest.raises(thermocline.Error, match="has no regions, .*record for longer"):
        thermocline.open(rows.write(tmp_path / "r.arrow", [])).heatmap()
    with pytest.raises(thermocline.Error, match="a heatmap of 0 rows .*give at least 1"):
        thermocline.open(sample).heatmap(rows=0)


def test_real_heatmap_shows_the_hot_part_move() -> None:
    ax = thermocline.open(RECORDING).heatmap(rows=60)
    rates = np.array([[np.nan if cell is None else cell for cell in row] for row in cells(ax)])
    hot_rows = [set(np.flatnonzero(column > 0.5)) for column in rates.T]
    # About a third of the memory is hot at each moment, and hardly any of it all the time.
    assert 10 < np.median([len(hot) for hot in hot_rows]) < 35
    assert len(set.intersection(*hot_rows[4:])) < 6
