"""From files to the sums that all jobs use. Nothing of the size of files or rows reaches the driver."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from ._errors import BadInput, Error
from ._files import Reading, Reason
from ._layout import plain_name
from ._store import Folder, find_folders, list_files, shown
from ._sums import AGENT, CLASS, FILE, OUTPUT, POLICY, TARGET, sum_files

FILES_PER_TASK = 1000
"""Few enough that a lost task costs seconds, and many enough that the start of a task costs little."""
FILES_PER_TASK_KEY = "spark.thermocline.filesPerTask"
"""The option of Spark that changes it."""

_LISTED_TYPES: dict[str, pa.DataType] = {"path": pa.string(), "size": pa.int64()}
_LISTED = pa.schema(_LISTED_TYPES)


@dataclass(frozen=True)
class FileCounts:
    """How many files were read, and how many were set aside for each reason."""

    read: int
    reasons: dict[str, int]
    rows: int
    bytes: int
    end_ms: int

    @property
    def set_aside(self) -> int:
        return sum(self.reasons.values())


class Fleet:
    """The files of a location, summed by file, hour and class. Close it to free what it keeps on disk."""

    def __init__(self, spark: SparkSession, reading: Reading, folders: list[Folder] | None = None) -> None:
        """Reads all files of the folders; by default, of all. Raises `BadInput` if there are none."""
        self.spark, self.reading = spark, reading
        folders = choose_folders(reading) if folders is None else folders
        self._kept: list[DataFrame] = []
        listed = self.keep(self._list(folders))
        count = listed.count()
        if count == 0:
            raise BadInput(f"there are no files in {shown(reading.uri)} for this range: {_extent(folders)}")
        options, parallel = spark.sparkContext.getConf(), spark.sparkContext.defaultParallelism
        per_task = max(1, int(options.get(FILES_PER_TASK_KEY) or FILES_PER_TASK))
        tasks = min(max(2 * parallel, math.ceil(count / per_task)), count)
        if not options.contains("spark.sql.shuffle.partitions"):
            partitions = max(2 * parallel, math.ceil(count / FILES_PER_TASK))
            spark.conf.set("spark.sql.shuffle.partitions", str(min(partitions, 2000)))
        # All files of a node go to one task, where their sums are combined before they are exchanged.
        node = F.regexp_replace(F.element_at(F.split("path", "/"), -1), r"\.\d+\.v\d+\.parquet$", "")
        spread = listed.repartition(tasks, node)
        self._output = self.keep(spread.mapInArrow(sum_files(reading), from_arrow_schema(OUTPUT)))
        self.files = self.keep(self._judge())
        self.counts = self._count()

    def keep(self, frame: DataFrame) -> DataFrame:
        """Keeps the rows on the disks of executors once they are computed."""
        self._kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return self._kept[-1]

    def close(self) -> None:
        """Frees what is kept."""
        for frame in reversed(self._kept):
            frame.unpersist()
        self._kept.clear()

    def class_sums(self) -> DataFrame:
        """Sums by file, hour, class, and whether a policy acts."""
        return self._sums(CLASS)

    def target_sums(self) -> DataFrame:
        """Sums and peaks by file, hour, class and target."""
        return self._sums(TARGET)

    def policy_sums(self) -> DataFrame:
        """What policies did, by file, class, policy and its minimum age."""
        return self._sums(POLICY)

    def agent_sums(self) -> DataFrame:
        """What agents cost, by file."""
        return self._sums(AGENT)

    def _list(self, folders: list[Folder]) -> DataFrame:
        paths = self.spark.createDataFrame([(folder.path,) for folder in folders], "folder string")
        tasks = min(len(folders), 4 * self.spark.sparkContext.defaultParallelism)
        function = _list_folders(self.reading.uri)
        return paths.repartition(max(tasks, 1)).mapInArrow(function, "path string, size long")

    def _judge(self) -> DataFrame:
        """The files, with the reason of those that are set aside."""
        files = self._output.where(F.col("kind") == FILE).select(
            "path", "cluster", "node", "reason", "detail", "link", "window_start_ms", "window_end_ms",
            "written_ms", "size_bytes", "rows", "instants", "covered_ms",
        )  # fmt: skip
        usable = files.where(F.col("reason").isNull())
        same = Window.partitionBy("cluster", "node", "window_start_ms")
        newest = same.orderBy(F.col("written_ms").desc(), F.col("path"))
        ranked = usable.withColumn("rank", F.row_number().over(newest)).withColumn(
            "first", F.first("path").over(newest)
        )
        is_older = F.col("rank") > 1
        judged = (
            ranked.withColumn("reason", F.when(is_older, Reason.DUPLICATE.value))
            .withColumn("detail", F.when(is_older, F.concat(F.lit("newer: "), "first")).otherwise(""))
            .drop("rank", "first")
        )
        return judged.unionByName(files.where(F.col("reason").isNotNull()))

    def _count(self) -> FileCounts:
        found = self.files.groupBy("reason").agg(
            F.count("*").alias("files"),
            F.sum("rows").alias("rows"),
            F.sum("size_bytes").alias("bytes"),
            F.max("window_end_ms").alias("end_ms"),
        )
        by_reason = {row.reason: row for row in found.collect()}
        read = by_reason.pop(None, None)
        reasons = {reason: row.files for reason, row in sorted(by_reason.items())}
        if read is None or not read.rows:
            if not reasons and read is None:
                raise BadInput(f"no file of {shown(self.reading.uri)} has time in this range: choose another")
            counted = ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "all are empty"
            raise Error(
                f"no file of {shown(self.reading.uri)} can be used ({counted}): run  check  to see why"
            )
        end_ms = read.end_ms if self.reading.to_ms is None else min(read.end_ms, self.reading.to_ms)
        return FileCounts(read.files, reasons, read.rows, read.bytes, end_ms)

    def _sums(self, kind: int) -> DataFrame:
        sums = self._output.where(F.col("kind") == kind)
        if Reason.DUPLICATE.value not in self.counts.reasons:
            return sums
        duplicates = self.files.where(F.col("reason") == Reason.DUPLICATE.value).select("path")
        return sums.join(duplicates, "path", "left_anti")

    def node_times(self) -> DataFrame:
        """For each node: number of intervals, the milliseconds that they cover, and the newest link."""
        read = self.files.where(F.col("reason").isNull())
        return read.groupBy("cluster", "node").agg(
            F.sum("instants").alias("node_instants"),
            F.sum("covered_ms").alias("node_ms"),
            F.max_by("link", "window_start_ms").alias("link"),
        )

    def check_rows(self, summed: int) -> None:
        """Raises `Error` unless sums hold exactly the rows of the files that count as read."""
        if summed != self.counts.rows:
            raise Error(
                f"the files changed while the report was made: {self.counts.rows} rows were read, and "
                f"{summed} summed; run again"
            )


def _list_folders(uri: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for folder in map(str, batch.column("folder").to_pylist()):
                found = pa.Table.from_pylist(
                    [{"path": path, "size": size} for path, size in list_files(uri, folder)], _LISTED
                )
                yield from found.to_batches(max_chunksize=10_000)

    return run


def choose_folders(reading: Reading, cluster: str | None = None) -> list[Folder]:
    """The folders of the days in the range, of a cluster or all of them.

    Raises `BadInput` if there are none, and `Error` if the store refuses.
    """
    folders, where = find_folders(reading.uri), shown(reading.uri)
    if not folders:
        raise BadInput(
            f"there are no folders date=…/cluster=… in {where}: give the folder that agents export to"
        )
    known = sorted({folder.cluster for folder in folders})
    if cluster is not None:
        folders = [folder for folder in folders if folder.cluster == plain_name(cluster)]
        if not folders:
            raise BadInput(f"there is no cluster {cluster} in {where}: choose one of {_listed(known)}")
    # A window that began on the day before may reach into the range.
    first = (
        None
        if reading.from_ms is None
        else datetime.fromtimestamp(reading.from_ms / 1000, UTC) - timedelta(1)
    )
    last = None if reading.to_ms is None else datetime.fromtimestamp((reading.to_ms - 1) / 1000, UTC)
    chosen = [
        folder
        for folder in folders
        if (first is None or folder.date >= f"{first:%Y-%m-%d}")
        and (last is None or folder.date <= f"{last:%Y-%m-%d}")
    ]
    if not chosen:
        raise BadInput(f"there are no files in {where} for this range: {_extent(folders)}")
    return chosen


def _extent(folders: list[Folder]) -> str:
    days = sorted({folder.date for folder in folders})
    return f"there are days from {days[0]} to {days[-1]}; choose --from and --to among them"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
