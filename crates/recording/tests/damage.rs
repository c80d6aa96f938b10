//! Truncated, damaged and foreign files: readable records come first, then an error, never a panic.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod sample;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use thermo_recording::model::{Record, Snapshot, Target};
use thermo_recording::{ReadError, Truncated, Writer, is_being_written, open, read_all};

/// Reads as many records as possible. Returns them with the truncation or error that ended reading.
fn read(path: &Path) -> (Vec<Record>, Option<Truncated>, Option<ReadError>) {
    let mut recording = match open(path) {
        Ok(recording) => recording,
        Err(error) => return (Vec::new(), None, Some(error)),
    };
    let mut records = Vec::new();
    let mut failed = None;
    for record in &mut recording {
        match record {
            Ok(record) => records.push(record),
            Err(error) => failed = Some(error),
        }
    }
    (records, recording.truncated(), failed)
}

fn is_prefix(part: &[Record], whole: &[Record]) -> bool {
    whole.get(..part.len()) == Some(part)
}

#[test]
fn truncated_recording_yields_complete_batches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let records = sample::records();
    sample::write(&path, &records, 4);
    let file = fs::File::options().write(true).open(&path).unwrap();
    let mut previous = records.len();
    for len in (0..file.metadata().unwrap().len()).rev() {
        file.set_len(len).unwrap();
        let (part, truncated, failed) = read(&path);
        assert!(
            is_prefix(&part, &records) && part.len() <= previous,
            "truncated to {len} bytes: {} records",
            part.len()
        );
        match (truncated, failed) {
            (Some(truncated), None) => assert_eq!(
                truncated.whole_bytes + truncated.lost_bytes,
                len,
                "truncated to {len} bytes"
            ),
            (None, Some(ReadError::Empty { .. })) => assert_eq!(len, 0),
            (None, Some(ReadError::NoRecord { .. })) => {
                assert!(part.is_empty(), "truncated to {len} bytes")
            }
            other => panic!("truncated to {len} bytes: {other:?}"),
        }
        previous = part.len();
    }
    assert_eq!(previous, 0);
}

#[test]
fn zeros_after_last_batch_count_as_truncation() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let mut writer = Writer::create(&path, &sample::metadata()).unwrap();
    let records = sample::records();
    records.iter().for_each(|record| writer.append(record).unwrap());
    writer.flush().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend([0; 4096]);
    fs::write(&path, &bytes).unwrap();
    let (_, read, truncated) = read_all(&path).unwrap();
    assert_eq!((read, truncated.unwrap().lost_bytes), (records, 4096));
}

#[test]
fn regions_that_overlap_or_are_empty_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    for second in [(0x3000, 2), (0x4000, 0)] {
        let regions = vec![
            sample::region(0x1000, 3, 1, 1),
            sample::region(second.0, second.1, 1, 1),
        ];
        let target = Target {
            regions,
            ..Target::default()
        };
        let snapshot = Snapshot {
            targets: vec![target],
            ..Snapshot::default()
        };
        sample::write(&path, &[Record::Snapshot(snapshot)], 1);
        let (records, _, failed) = read(&path);
        let error = failed.unwrap().to_string();
        assert!(records.is_empty() && error.contains("a region from"), "{error}");
    }
}

#[test]
fn open_names_type_of_foreign_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let cases: [(&[u8], &str); 8] = [
        (b"", "x is empty (0 bytes)"),
        (b"hello\n", "it looks like text"),
        (b"ARROW1\0\0", "it looks like an Arrow file, not a stream"),
        (b"PAR1....", "it looks like a Parquet file"),
        (
            b"\x7fELF\x02\x01\xff\xfe",
            "it looks like data of another program",
        ),
        (
            b"{\"a\": 1}",
            "x:1:1: not the JSON of a damo record: invalid type: map, expected a sequence",
        ),
        (
            b"[{\"target_id\": 0,\n\"snapshots\": [",
            "x:2:14: not the JSON of a damo record: EOF while parsing a list",
        ),
        (b"\xff\xff\xff\xff\x10", "x is truncated before its first record"),
    ];
    for (bytes, expected) in cases {
        fs::write(&path, bytes).unwrap();
        let error = open(&path).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}\n(expected: {expected})");
    }
    let error = open(&dir.path().join("none")).err().unwrap().to_string();
    assert!(
        error.contains("cannot open the recording") && error.contains("No such file"),
        "{error}"
    );
    assert!(matches!(open(dir.path()).err().unwrap(), ReadError::Read { .. }));
}

/// An Arrow stream with the sample's schema, whose second message claims a batch of `body` bytes. The file is
/// sparse: it has these bytes, as zeros, but uses a few KiB of the disk.
fn write_sparse(path: &Path, body: u64) {
    sample::write(path, &sample::records(), 2);
    let mut bytes = fs::read(path).unwrap();
    let length_at = |start: usize| u32::from_le_bytes(bytes[start + 4..start + 8].try_into().unwrap());
    let second = 8 + length_at(0) as usize;
    let end = second + 8 + length_at(second) as usize;
    let header = arrow_ipc::root_as_message(&bytes[second + 8..end]).unwrap();
    let real = header.bodyLength().to_le_bytes();
    // The header has the length of the body as a 64-bit number.
    let at = bytes[second + 8..end]
        .windows(8)
        .position(|window| window == real)
        .unwrap();
    bytes.truncate(end);
    bytes[second + 8 + at..][..8].copy_from_slice(&body.to_le_bytes());
    fs::write(path, &bytes).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(end as u64 + body + 8).unwrap();
}

#[test]
fn sparse_batch_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    write_sparse(&path, 300 << 20);
    let (records, _, failed) = read(&path);
    let error = failed.unwrap().to_string();
    assert!(records.is_empty());
    assert!(
        error.contains("a batch of 314572800 bytes is larger than the maximum of 33554432"),
        "{error}"
    );
    // The header of the schema.
    let bytes = [[0xff; 4], 300_000_000_u32.to_le_bytes()].concat();
    fs::write(&path, bytes).unwrap();
    let error = open(&path).err().unwrap().to_string();
    assert!(error.contains("a header of 300000000 bytes is larger"), "{error}");
}

#[test]
fn columns_of_batch_are_limited_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    sample::write(&path, &sample::records(), 2);
    let mut bytes = fs::read(&path).unwrap();
    let length_at = |start: usize| u32::from_le_bytes(bytes[start + 4..start + 8].try_into().unwrap());
    let second = 8 + length_at(0) as usize;
    let body = second + 8 + length_at(second) as usize;
    let message = arrow_ipc::root_as_message(&bytes[second + 8..body]).unwrap();
    let batch = message.header_as_record_batch().unwrap();
    let buffers = batch
        .buffers()
        .unwrap()
        .iter()
        .filter(|buffer| buffer.length() > 8);
    let prefixes: Vec<usize> = buffers.map(|buffer| body + buffer.offset() as usize).collect();
    // Each compressed column begins with its uncompressed length.
    for at in &prefixes {
        bytes[*at..][..8].copy_from_slice(&(100_i64 << 20).to_le_bytes());
    }
    fs::write(&path, &bytes).unwrap();
    let error = read(&path).2.unwrap().to_string();
    let expected = format!("a batch of {} bytes is larger", prefixes.len() * (100 << 20));
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn zlib_bomb_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damon.data");
    let mut zlib =
        flate2::write::ZlibEncoder::new(fs::File::create(&path).unwrap(), flate2::Compression::best());
    zlib.write_all(
        b"[{\"target_id\": 0, \"snapshots\": [{\"start_time\": 0, \"end_time\": 1, \"regions\": [",
    )
    .unwrap();
    let region = "{\"start\": 0, \"end\": 1},".repeat(1000);
    for _ in 0..500 {
        zlib.write_all(region.as_bytes()).unwrap();
    }
    zlib.write_all(b"{\"start\": 0, \"end\": 1}]}]}]").unwrap();
    zlib.finish().unwrap();
    let error = open(&path).err().unwrap();
    let ReadError::Inflates { read, max, .. } = error else {
        panic!("{error}")
    };
    assert!(read < 100_000 && max < 16 << 20, "{read} bytes, maximum {max}");
}

#[test]
fn writer_reports_full_device() {
    let error = Writer::create(Path::new("/dev/full"), &sample::metadata())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("cannot write to the recording /dev/full: No space left on device"),
        "{error}"
    );
    assert!(
        error.contains("its first 0 bytes with 0 records are complete"),
        "{error}"
    );
}

#[test]
fn writer_does_not_follow_symbolic_link() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("target"), dir.path().join("r.arrow"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let create = || {
        Writer::create(&link, &sample::metadata())
            .err()
            .unwrap()
            .to_string()
    };
    assert!(create().contains("it is a symbolic link"), "{}", create());
    assert!(!target.exists());
    fs::write(&target, "precious").unwrap();
    assert!(create().contains("it is a symbolic link"), "{}", create());
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert!(link.is_symlink());
}

#[test]
fn writer_reports_missing_directory() {
    let error = Writer::create(Path::new("/nonexistent/r.arrow"), &sample::metadata())
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .contains("cannot create the recording /nonexistent/r.arrow"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(2026),
        ..ProptestConfig::default()
    })]

    #[test]
    fn reader_survives_any_bytes(start in 0..4_usize, bytes in vec(any::<u8>(), 0..400)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let starts: [&[u8]; 4] = [b"", b"\xff\xff\xff\xff", b"\x78\x9c", b"[{"];
        fs::write(&path, [starts[start], &bytes].concat()).unwrap();
        read(&path);
    }

    #[test]
    fn reader_survives_changed_bytes(flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.arrow");
        sample::write(&path, &sample::records(), 2);
        let mut bytes = fs::read(&path).unwrap();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fs::write(&path, &bytes).unwrap();
        read(&path);
    }
}

#[test]
fn recording_in_progress_differs_from_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let writer = Writer::create(&path, &sample::metadata()).unwrap();
    assert!(is_being_written(&path));
    drop(writer);
    assert!(!is_being_written(&path));
    let (_, _, truncated) = read_all(&path).unwrap();
    assert!(truncated.is_some());
}
