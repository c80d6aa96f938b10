//! Files that were cut off, damaged, or are something else: a prefix and a sentence, never a panic.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod sample;

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use thermo_recording::model::Record;
use thermo_recording::{ReadError, Truncated, Writer, open, read_all};

/// Reads what can be read, and how it ended.
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
fn a_file_cut_anywhere_gives_its_whole_batches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    let records = sample::records();
    sample::write(&path, &records, 4);
    let file = fs::File::options().write(true).open(&path).unwrap();
    let mut most = records.len();
    for len in (0..file.metadata().unwrap().len()).rev() {
        file.set_len(len).unwrap();
        let (part, truncated, failed) = read(&path);
        assert!(
            is_prefix(&part, &records) && part.len() <= most,
            "cut at {len}: {} records",
            part.len()
        );
        match (truncated, failed) {
            (Some(cut), None) => assert_eq!(cut.whole_bytes + cut.lost_bytes, len, "cut at {len}"),
            (None, Some(ReadError::Empty { .. })) => assert_eq!(len, 0),
            (None, Some(ReadError::CutOff { .. })) => assert!(part.is_empty(), "cut at {len}"),
            other => panic!("cut at {len}: {other:?}"),
        }
        most = part.len();
    }
    assert_eq!(most, 0);
}

#[test]
fn zeros_behind_the_last_batch_are_a_cut() {
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
fn what_is_no_recording_is_named() {
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
        (
            b"\xff\xff\xff\xff\x10",
            "x was cut off before its first record: nothing can be read",
        ),
    ];
    for (bytes, says) in cases {
        fs::write(&path, bytes).unwrap();
        let error = open(&path).err().unwrap().to_string();
        assert!(error.contains(says), "{error}\n(wanted: {says})");
    }
    let error = open(&dir.path().join("none")).err().unwrap().to_string();
    assert!(
        error.contains("cannot open the recording") && error.contains("No such file"),
        "{error}"
    );
    assert!(matches!(open(dir.path()).err().unwrap(), ReadError::Read { .. }));
}

#[test]
fn a_full_device_is_named() {
    let error = Writer::create(Path::new("/dev/full"), &sample::metadata())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("cannot go on recording to /dev/full: No space left on device"),
        "{error}"
    );
    assert!(
        error.contains("its first 0 bytes with 0 records are whole"),
        "{error}"
    );
}

#[test]
fn a_directory_that_is_not_there_is_named() {
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
    fn any_bytes_are_survived(start in 0..4_usize, bytes in vec(any::<u8>(), 0..400)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let starts: [&[u8]; 4] = [b"", b"\xff\xff\xff\xff", b"\x78\x9c", b"[{"];
        fs::write(&path, [starts[start], &bytes].concat()).unwrap();
        read(&path);
    }

    #[test]
    fn flipped_bytes_are_survived(flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
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
