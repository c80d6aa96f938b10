"""Draws a heatmap: time to the right, addresses upward, the access rate as colour.

Only memory is drawn: addresses between mappings are folded. Each cell has the mean access rate of the known
memory in it, weighted by bytes. Memory whose accesses cannot be known is grey.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _packages
from ._errors import Error

if TYPE_CHECKING:
    import matplotlib.axes
    import numpy as np
    import pyarrow as pa

    from ._recording import Recording

    Floats = np.ndarray[Any, np.dtype[np.float64]]
    Integers = np.ndarray[Any, np.dtype[np.int64]]

MAX_LABELS = 8
"""Maximum number of address ranges that get a label."""


@dataclass(frozen=True)
class Columns:
    """The columns of the picture: groups of snapshots, and gaps where the target was absent."""

    edges_s: Floats
    """Where columns begin and end, in seconds since the first."""
    of_snapshot: Integers
    """The column of each snapshot."""
    time_ns: Integers
    """The end of each snapshot, which regions are found by."""


@dataclass(frozen=True)
class Fold:
    """Ranges of addresses with memory, drawn without the gaps between them."""

    starts: Floats
    ends: Floats

    def position(self, addresses: Floats) -> Floats:
        """Bytes of memory below these addresses."""
        import numpy as np

        sizes = self.ends - self.starts
        below = np.concatenate([[0.0], np.cumsum(sizes)])
        # Both ends of a gap have the same position.
        edges = np.stack([self.starts, self.ends], axis=1).ravel()
        values = np.stack([below[:-1], below[1:]], axis=1).ravel()
        return np.asarray(np.interp(addresses, edges, values), np.float64)


def draw(
    recording: Recording, ax: matplotlib.axes.Axes | None, target: int | None, rows: int, columns: int
) -> matplotlib.axes.Axes:
    """Draws the heatmap of `target` on `ax`, in at most this many rows and columns."""
    plt = _packages.need("matplotlib.pyplot")
    if rows < 1 or columns < 1:
        raise Error(f"a heatmap of {rows} rows and {columns} columns has no cells: give at least 1 of each")
    if target is None:
        target = _largest(recording)
    regions = _of_target(recording.regions, target)
    if not len(regions):
        raise Error(f"{recording.path} has no regions of target {target}: .targets lists the targets")
    time = _columns(recording, regions, target, columns)
    fold = _fold(_of_target(recording.mappings, target), regions)
    rates, unknown = _cells(regions, time, fold, rows)
    if ax is None:
        _, ax = plt.subplots(figsize=(9, 5), layout="constrained")
    _paint(ax, time, fold, rates, unknown, _of_target(recording.mappings, target))
    pids = [pid for pid in regions.column("pid").unique().to_pylist() if pid is not None]
    ax.set_title(f"pid {pids[0]}" if pids else "physical memory")
    return ax


def _largest(recording: Recording) -> int:
    """The target with the most bytes in regions, over all snapshots."""
    import numpy as np

    regions = recording.regions
    if not len(regions):
        raise Error(f"{recording.path} has no regions, so there is nothing to draw: record for longer")
    targets, index = np.unique(_numbers(regions, "target"), return_inverse=True)
    sizes = np.bincount(index, _numbers(regions, "end") - _numbers(regions, "start"))
    return int(targets[np.argmax(sizes)])


def _of_target(table: pa.Table, target: int) -> pa.Table:
    from ._rows import pc

    return table.filter(pc.equal(table.column("target"), target))


def _numbers(table: pa.Table, column: str) -> Floats:
    import numpy as np

    return np.asarray(table.column(column).to_numpy(), np.float64)


def _times(table: pa.Table, column: str) -> Integers:
    import numpy as np

    return np.asarray(table.column(column).to_numpy(), np.int64)


def _columns(recording: Recording, regions: pa.Table, target: int, most: int) -> Columns:
    """Groups the snapshots that have regions of the target."""
    import numpy as np

    snapshots = recording.snapshots
    all_ends = _times(snapshots, "time_ns")
    ends = np.unique(_times(regions, "time_ns"))
    starts = _times(snapshots, "start_ns")[np.searchsorted(all_ends, ends)]
    # A history has regions only once a minute: they cover the time since the ones before, unless the target
    # was absent in between.
    present = np.unique(_times(_of_target(recording.targets, target), "time_ns"))
    missing = np.diff(np.searchsorted(all_ends, ends)) - np.diff(np.searchsorted(present, ends))
    starts[1:] = np.where(missing == 0, ends[:-1], starts[1:])
    per_column = -(-len(ends) // most)
    edges, of_snapshot = [int(starts[0])], np.zeros(len(ends), np.int64)
    for first in range(0, len(ends), per_column):
        if starts[first] > edges[-1]:
            edges.append(int(starts[first]))
        of_snapshot[first : first + per_column] = len(edges) - 1
        edges.append(int(ends[min(first + per_column, len(ends)) - 1]))
    edges_s = (np.asarray(edges, np.int64) - edges[0]) / 1e9
    return Columns(edges_s, of_snapshot, ends)


def _fold(mappings: pa.Table, regions: pa.Table) -> Fold:
    """The addresses in regions. A region of sampling may span a gap between mappings, which has no memory."""
    import numpy as np

    covered = _union(regions)
    if not len(mappings):
        return covered
    mapped = _union(mappings)
    edges = np.unique(np.concatenate([covered.starts, covered.ends, mapped.starts, mapped.ends]))
    inside = np.ones(len(edges) - 1, bool)
    for ranges in (covered, mapped):
        nth = np.searchsorted(ranges.starts, edges[:-1], side="right") - 1
        inside &= (nth >= 0) & (edges[:-1] < ranges.ends[np.maximum(nth, 0)])
    if not inside.any():
        return covered
    return _merge(edges[:-1][inside], edges[1:][inside])


def _union(table: pa.Table) -> Fold:
    import numpy as np

    starts, ends = _numbers(table, "start"), _numbers(table, "end")
    order = np.argsort(starts, kind="stable")
    return _merge(starts[order], ends[order])


def _merge(starts: Floats, ends: Floats) -> Fold:
    """Merges ranges, ascending by their starts, that overlap or touch."""
    import numpy as np

    reach = np.maximum.accumulate(ends)
    begins = np.concatenate([[True], starts[1:] > reach[:-1]])
    lasts = np.concatenate([begins[1:], [True]])
    return Fold(starts[begins], reach[lasts])


def _cells(regions: pa.Table, time: Columns, fold: Fold, rows: int) -> tuple[Floats, Any]:
    """The access rate of each cell, NaN without known memory; and which cells are mostly unknown."""
    import numpy as np

    total = float((fold.ends - fold.starts).sum())
    low = fold.position(_numbers(regions, "start")) * (rows / total)
    high = fold.position(_numbers(regions, "end")) * (rows / total)
    column = time.of_snapshot[np.searchsorted(time.time_ns, _times(regions, "time_ns"))]
    most = np.maximum(_numbers(regions, "max_nr_accesses"), 1)
    rate = np.minimum(_numbers(regions, "nr_accesses") / most, 1)
    is_unknown = np.asarray(regions.column("unknown").to_numpy(), np.float64)
    shape = (len(time.edges_s) - 1, rows)
    known = _sum_on_grid(shape, column, low, high, 1 - is_unknown)
    accessed = _sum_on_grid(shape, column, low, high, rate * (1 - is_unknown))
    unknown = _sum_on_grid(shape, column, low, high, is_unknown)
    # Sums of many parts differ from zero by rounding.
    has_known = known > 1e-6
    rates = np.where(has_known, accessed / np.where(has_known, known, 1), np.nan)
    return np.clip(rates, 0, 1), (unknown > 1e-6) & (unknown > known)


def _sum_on_grid(
    shape: tuple[int, int], column: Integers, low: Floats, high: Floats, weight: Floats
) -> Floats:
    """For each cell, the sum of `weight` over all ranges `low` to `high`, by the part they cover."""
    import numpy as np

    columns, rows = shape
    # A range from x to infinity covers a part of the cell of x, and all cells above: two steps. Adding up the
    # steps of a column gives what is covered.
    steps = np.zeros(columns * (rows + 2))
    for at, sign in ((low, 1.0), (high, -1.0)):
        cell = np.floor(at).astype(np.int64)
        part = at - cell
        index = column * (rows + 2) + cell
        steps += np.bincount(index, sign * weight * (1 - part), steps.size)
        steps += np.bincount(index + 1, sign * weight * part, steps.size)
    return np.asarray(steps.reshape(columns, rows + 2).cumsum(axis=1)[:, :rows], np.float64)


def _paint(
    ax: matplotlib.axes.Axes, time: Columns, fold: Fold, rates: Floats, unknown: Any, mappings: pa.Table
) -> None:
    import numpy as np
    from matplotlib.colors import ListedColormap

    total = float((fold.ends - fold.starts).sum())
    edges = np.linspace(0, total, rates.shape[1] + 1)
    mesh = ax.pcolormesh(time.edges_s, edges, rates.T, vmin=0, vmax=1, cmap="inferno")
    grey = np.where(unknown, 1.0, np.nan)
    ax.pcolormesh(time.edges_s, edges, grey.T, vmin=0, vmax=1, cmap=ListedColormap(["0.75"]))
    ax.figure.colorbar(mesh, ax=ax, label="access rate")
    positions = fold.position(fold.starts)
    labelled = _labelled(positions, fold.ends - fold.starts)
    for position in positions[labelled]:
        ax.axhline(float(position), color="white", linewidth=0.4)
    labels = [f"{int(start):#x} {_name(mappings, start)}".rstrip() for start in fold.starts[labelled]]
    ax.set_yticks([float(at) for at in positions[labelled]], labels)
    ax.set_xlabel("time (s)")
    ax.set_ylabel("address")


def _labelled(positions: Floats, sizes: Floats) -> list[int]:
    """The ranges that get a label: the largest ones that leave room for the text of each other."""
    import numpy as np

    room = float(sizes.sum()) / 20
    chosen: list[int] = []
    for nth in np.argsort(-sizes, kind="stable"):
        if all(abs(positions[nth] - positions[other]) >= room for other in chosen):
            chosen.append(int(nth))
    return sorted(chosen[:MAX_LABELS])


def _name(mappings: pa.Table, address: float) -> str:
    """A short name of the mapping at this address, as last read."""
    import pyarrow as pa

    from ._rows import pc

    # The highest addresses, of the kernel's pages, are beyond signed numbers.
    at = pa.scalar(int(address), pa.uint64())
    here = pc.and_(pc.less_equal(mappings.column("start"), at), pc.greater(mappings.column("end"), at))
    names = mappings.column("name").filter(here).to_pylist()
    name = str(names[-1]) if names else ""
    return name.rpartition("/")[2]
