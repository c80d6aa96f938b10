"""Truncated, damaged, newer and foreign files: rows come first, then one clear sentence."""

from __future__ import annotations

import fcntl
import json
import random
import struct
import warnings
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import rows
import thermocline
from thermocline._flatbuffer import Damaged
from thermocline._layout import check_batch
from thermocline._messages import MARKER, Message, Truncated, messages


def batch_ends(data: bytes) -> list[int]:
    return [message.end for message in messages(memoryview(data)) if hasattr(message, "end")]


def test_truncated_recording_gives_complete_batches(sample: Path, tmp_path: Path) -> None:
    data = sample.read_bytes()
    schema, *ends = batch_ends(data)
    whole = thermocline.open(sample).notes
    path = tmp_path / "cut.arrow"
    borders = [border + by for border in (0, schema, *ends) for by in (-1, 0, 1, 7, 8, 9)]
    for length in sorted({*range(0, len(data), 41), *(at for at in borders if 0 <= at < len(data))}):
        path.write_bytes(data[:length])
        if length < schema:
            reason = "is empty" if length == 0 else "is truncated before its first record"
            with pytest.raises(thermocline.Error, match=reason):
                thermocline.open(path)
            continue
        with pytest.warns(thermocline.TruncatedWarning, match="the recording is truncated: its first"):
            recording = thermocline.open(path)
        complete = [end for end in ends if end <= length]
        truncated = recording.truncated
        assert truncated is not None
        assert truncated.whole_bytes == max(complete, default=schema)
        assert truncated.whole_bytes + truncated.lost_bytes == length
        # The batches are a snapshot, the events, and a snapshot.
        assert len(recording.snapshots) == (len(complete) > 0) + (len(complete) > 2)
        assert recording.notes.equals(whole.slice(0, 2 * (len(complete) > 1)))


def test_zeros_after_last_batch_count_as_truncation(sample: Path) -> None:
    data = sample.read_bytes()
    sample.write_bytes(data[: batch_ends(data)[-1]] + bytes(4096))
    with pytest.warns(thermocline.TruncatedWarning, match="4096 bytes of an incomplete batch"):
        recording = thermocline.open(sample)
    assert len(recording.snapshots) == 2


def test_recording_in_progress_gives_no_warning(sample: Path) -> None:
    data = sample.read_bytes()
    sample.write_bytes(data[: batch_ends(data)[1]])
    with sample.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        recording = thermocline.open(sample)
    assert recording.in_progress
    assert recording.truncated is not None
    assert len(recording.snapshots) == 1


def test_damage_is_refused_unless_rows_before_it_are_wanted(sample: Path) -> None:
    data = bytearray(sample.read_bytes())
    second = batch_ends(bytes(data))[1]
    data[second : second + 4] = b"oops"
    sample.write_bytes(data)
    expected = f"is damaged at byte {second}: no message begins there; the records before that byte are valid"
    with pytest.raises(thermocline.Error, match=f"{expected}: open.path, strict=False. reads them"):
        thermocline.open(sample)
    with pytest.warns(thermocline.TruncatedWarning, match=expected):
        recording = thermocline.open(sample, strict=False)
    assert recording.truncated == Truncated(second, len(data) - second)
    assert (len(recording.snapshots), len(recording.notes)) == (1, 0)


def test_any_changed_bytes_give_rows_or_an_error(sample: Path) -> None:
    data = sample.read_bytes()
    random_numbers = random.Random(2026)
    outcomes = set()
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(random_numbers.randint(1, 5)):
            changed[random_numbers.randrange(len(data))] = random_numbers.randrange(256)
        sample.write_bytes(changed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", thermocline.TruncatedWarning)
                recording = thermocline.open(sample)
            assert len(recording.snapshots) <= 2
            for name in ("regions", "ages", "reaccess", "actions", "skipped", "targets", "totals"):
                recording.table(name)
            outcomes.add("rows")
        except thermocline.Error:
            outcomes.add("error")
    assert outcomes == {"rows", "error"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "x is empty .0 bytes.; record again, or check whether .*x.old"),
        (b"hello\n", "x is not a recording: it looks like data of another program; give a file of"),
        (b"ARROW1\0\0", "it looks like an Arrow file, not a stream"),
        (b"PAR1....", "it looks like a Parquet file"),
        (b'[{"target_id": 0}]', "looks like the JSON of damo: run  thermo export .*x --format parquet"),
        (b"\x78\x9c\x00\x00", "looks like the JSON of damo"),
        (b"\xff\xff\xff\xff\x10", "x is truncated before its first record"),
        (b"\xff\xff\xff\xff\0\0\0\0", "an Arrow stream without a schema"),
        (struct.pack("<4sI", MARKER, 300_000_000), "a header of 300000000 bytes is larger than"),
        (struct.pack("<4sI", MARKER, 8) + bytes(16), "damaged at byte 0: .*record again"),
    ],
)
def test_foreign_file_is_named(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(thermocline.Error, match=expected):
        thermocline.open(path)


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(thermocline.Error, match="cannot open the recording .*none: No such file.*check the"):
        thermocline.open(tmp_path / "none")
    with pytest.raises(thermocline.Error, match="cannot open the recording .*: Is a directory"):
        thermocline.open(tmp_path)


def test_stream_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    table = pa.table({"a": [1]})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    with pytest.raises(thermocline.Error, match="is not a recording: .*an Arrow stream of another program"):
        thermocline.open(path)


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    path = rows.write(tmp_path / "x.arrow", [], {**rows.METADATA, "schema": 3})
    with pytest.raises(thermocline.Error, match="has schema 3, .*up to 2: run  pip install --upgrade"):
        thermocline.open(path)


def test_incomplete_metadata_is_refused(tmp_path: Path) -> None:
    metadata = {key: value for key, value in rows.METADATA.items() if key != "kernel"}
    path = rows.write(tmp_path / "x.arrow", [], metadata)
    with pytest.raises(thermocline.Error, match="its metadata does not parse .*kernel"):
        thermocline.open(path)


def test_field_of_later_version_is_ignored(tmp_path: Path) -> None:
    path = rows.write(tmp_path / "x.arrow", [rows.snapshot(0)], {**rows.METADATA, "novelty": 1})
    assert len(thermocline.open(path).snapshots) == 1


def test_other_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    schema = rows.COLUMNS.remove(9).with_metadata({"thermo": json.dumps(rows.METADATA)})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema):
        pass
    with pytest.raises(thermocline.Error, match="its columns are not those of schema 2"):
        thermocline.open(path)


def test_batch_that_claims_too_much_memory_is_refused(sample: Path) -> None:
    data = bytearray(sample.read_bytes())
    start, end = batch_ends(bytes(data))[:2]
    # Each compressed column begins with its uncompressed length; zstd's magic number follows.
    at = data.index(b"\x28\xb5\x2f\xfd", start, end) - 8
    for claimed in (1 << 40, -2):
        data[at : at + 8] = struct.pack("<q", claimed)
        sample.write_bytes(data)
        with pytest.raises(
            thermocline.Error, match=f"a column has an uncompressed length of {claimed} bytes"
        ):
            thermocline.open(sample)
    everywhere = bytearray(sample.read_bytes())
    position = start
    while (position := everywhere.find(b"\x28\xb5\x2f\xfd", position, end)) >= 0:
        everywhere[position - 8 : position] = struct.pack("<q", 100 << 20)
        position += 4
    sample.write_bytes(everywhere)
    with pytest.raises(
        thermocline.Error, match=r"a batch of \d+ bytes is larger than the maximum of 134217728"
    ):
        thermocline.open(sample)


def test_small_recording_that_becomes_large_is_refused(sample: Path) -> None:
    with pa.ipc.open_stream(sample.read_bytes()) as stream:
        schema = stream.schema
    # Columns of zeros and nulls are short, whatever their length.
    zeros = {
        field.name: pa.scalar([] if pa.types.is_list(field.type) else 0, field.type)
        for field in schema
        if not field.nullable
    }
    empty = pa.RecordBatch.from_arrays(
        [
            pa.nulls(1_000_000, field.type) if field.nullable else pa.repeat(zeros[field.name], 1_000_000)
            for field in schema
        ],
        schema=schema,
    )
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(sample), "wb") as file, pa.ipc.new_stream(file, schema, options=options) as out:
        for _ in range(12):
            out.write_batch(empty)
    assert sample.stat().st_size < 1 << 19
    with pytest.raises(thermocline.Error, match=r"its first \d+ bytes would become more than \d+ bytes"):
        thermocline.open(sample)


@pytest.mark.parametrize(
    ("row", "table", "expected"),
    [
        (rows.row(7, 1, 0, name="cold"), "actions", "a row has too few values: value 1 is missing"),
        (rows.row(8, 1, 5, name="young"), "skipped", "before the first row of kind 7"),
        (rows.row(9, 1, name="plan"), "plans", "a row has no text"),
        (rows.row(11, 1, 5, name="anon"), "ages", "a row does not have 15 values"),
        (rows.region(1, 0x1000, 1, 0, 0), "regions", "before the first row of kind 0"),
    ],
)
def test_inconsistent_row_is_refused(tmp_path: Path, row: rows.Row, table: str, expected: str) -> None:
    head = [] if "before the first" in expected else rows.snapshot(0)
    recording = thermocline.open(rows.write(tmp_path / "x.arrow", [[*head, row]]))
    with pytest.raises(thermocline.Error, match=f"is damaged: .*{expected}.*record again"):
        getattr(recording, table)


def test_unknown_kind_of_row_is_refused(tmp_path: Path) -> None:
    path = rows.write(tmp_path / "x.arrow", [rows.snapshot(0), [rows.row(15, 1)]])
    with pytest.raises(thermocline.Error, match="a row of the batch has the unknown kind 15"):
        thermocline.open(path)
    with pytest.warns(thermocline.TruncatedWarning):
        assert len(thermocline.open(path, strict=False).snapshots) == 1


Compression = Literal["zstd"] | None


def batch(fields: list[pa.Field[Any]], compression: Compression) -> tuple[memoryview, Message]:
    """A batch of three rows with these columns, whose values are 0, empty or null."""
    zeros: dict[Any, Any] = {pa.string(): "", pa.bool_(): False, rows.COLUMNS.field("values").type: []}
    columns = [
        pa.array([None if field.nullable else zeros.get(field.type, 0)] * 3, field.type) for field in fields
    ]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, pa.schema(fields), options=options) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))
    data = memoryview(sink.getvalue().to_pybytes())
    _, message = messages(data)
    assert isinstance(message, Message)
    return data, message


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_layout_of_batch_is_checked(compression: Compression) -> None:
    fields = list(rows.COLUMNS)
    check_batch(*batch(fields, compression))
    filled = [pa.field(field.name, field.type, nullable=False) for field in fields]
    check_batch(*batch(filled, compression))
    narrow = pa.field("time_ns", pa.uint32(), nullable=False)
    wrong: list[tuple[list[pa.Field[Any]], str]] = [
        (fields[:-1], "a batch has too few columns"),
        ([*fields, narrow], "a batch has too many columns"),
        ([fields[0], narrow, *fields[2:]], "column time_ns is too short for its rows"),
        ([pa.field("kind", pa.uint8()), *fields[1:]], "column kind has 3 of 3 rows, 3 of them null"),
        ([*fields[:-1], pa.field("values", pa.string(), nullable=False)], "a batch has too few columns"),
    ]
    for columns, expected in wrong:
        with pytest.raises(Damaged, match=expected):
            check_batch(*batch(columns, compression))
