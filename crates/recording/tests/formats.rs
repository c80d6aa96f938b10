//! Import and export of other tools' formats.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod sample;

use std::fs::{self, File};
use std::io::Write;

use thermo_recording::export::{self, Table};
use thermo_recording::model::*;
use thermo_recording::{Writer, open, read_all};

const DAMO: &str = r#"[
  {"kdamond_idx": 0, "target_id": 1, "intervals": {"sample_us": "5000", "aggr_us": "100 ms", "ops_update_us": 1000000},
   "snapshots": [
     {"start_time": "1,000,000,000", "end_time": "1100000010", "sample_interval_us": null, "regions": [
       {"start": "139,637,976,727,552", "end": "139,637,976,731,648",
        "nr_accesses": {"samples": null, "percent": 50}, "age": {"usec": "700 ms", "aggr_intervals": null}}]}]},
  {"target_id": "0", "intervals": {"sample_us": 5000, "aggr_us": 100000, "ops_update_us": 1000000},
   "snapshots": [
     {"start_time": 1000000000, "end_time": 1100000000, "regions": [
       {"start": 4096, "end": 8192, "nr_accesses": {"samples": 3, "percent": 15}, "age": {"usec": 1, "aggr_intervals": "7"}},
       {"start": 0, "end": 0, "nr_accesses": {"samples": -1}, "age": {"aggr_intervals": -1, "usec": -1}}]},
     {"start_time": 1100000000, "end_time": 1200000000, "regions": []}]}
]"#;

fn damo_snapshots() -> Vec<Record> {
    let target = |id, regions| Target {
        id,
        pid: None,
        scanned: Some(false),
        averaged: 0,
        tables: None,
        regions,
    };
    let first = vec![
        target(0, vec![sample::region(4096, 1, 3, 7)]),
        target(1, vec![sample::region(139_637_976_727_552, 1, 10, 7)]),
    ];
    let snapshot = |start_ns, targets| Snapshot {
        start_ns,
        time_ns: start_ns + 100_000_000,
        aggr_ns: 100_000_000,
        max_nr_accesses: 20,
        targets,
    };
    vec![
        Record::Snapshot(snapshot(1_000_000_000, first)),
        Record::Snapshot(snapshot(1_100_000_000, vec![target(0, Vec::new())])),
    ]
}

#[test]
fn damo_json_reads_plain_and_compressed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damon.data");
    fs::write(&path, DAMO).unwrap();
    let (metadata, records, truncated) = read_all(&path).unwrap();
    assert_eq!((records, truncated), (damo_snapshots(), None));
    assert_eq!(
        (metadata.writer.as_str(), metadata.start_ns),
        ("damo", 1_000_000_000)
    );
    assert_eq!(metadata.settings.aggr_ns, Some(100_000_000));
    assert_eq!(
        (metadata.settings.min_nr_regions, metadata.seed),
        (None, None),
        "not in the file"
    );

    let mut zlib =
        flate2::write::ZlibEncoder::new(File::create(&path).unwrap(), flate2::Compression::default());
    zlib.write_all(DAMO.as_bytes()).unwrap();
    zlib.finish().unwrap();
    assert_eq!(read_all(&path).unwrap().1, damo_snapshots());
}

/// A file without intervals. Of the regions, one has everything, one no age, one no access count.
const DAMO_WITH_GAPS: &str = r#"[{"target_id": 18446623438842320000, "snapshots": [
  {"start_time": 0, "end_time": 100000000, "sample_interval_us": null, "regions": [
    {"start": 4096, "end": 8192, "nr_accesses": {"samples": 30, "percent": null}, "age": {"usec": 200000, "aggr_intervals": null}},
    {"start": 8192, "end": 12288, "nr_accesses": {"samples": 0}, "age": {"usec": null, "aggr_intervals": null}},
    {"start": 12288, "end": 16384, "nr_accesses": {"samples": null, "percent": null}, "age": null},
    {"start": 16384, "end": 20480, "nr_accesses": null, "age": {"aggr_intervals": -1}},
    {"start": 20480, "end": 24576}]}]},
  {"target_id": 18446623438842320800, "snapshots": []}]"#;

#[test]
fn damo_json_without_numbers_has_unknown_instead_of_zero() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damon.data");
    fs::write(&path, DAMO_WITH_GAPS).unwrap();
    let (metadata, records, _) = read_all(&path).unwrap();
    assert_eq!(metadata.settings, Settings::default(), "no interval is made up");
    assert_eq!((metadata.seed, metadata.wall_clock_offset_ns), (None, None));
    assert!(metadata.imported && metadata.targets.contains("18446623438842320800"));
    let [notes @ .., Record::Snapshot(snapshot)] = &records[..] else {
        panic!("no snapshot in {records:?}")
    };
    let [target] = &snapshot.targets[..] else {
        panic!("not one target")
    };
    assert_eq!((target.id, target.pid), (0, None), "addresses are numbered");
    assert_eq!(target_name(true, target.id, target.pid), "target 0");
    let found: Vec<_> = target
        .regions
        .iter()
        .map(|r| (r.nr_accesses, r.age, r.unknown))
        .collect();
    let unknown = (0, None, true);
    assert_eq!(
        found,
        [(30, Some(2), false), (0, None, false), unknown, unknown, unknown]
    );
    assert_eq!(snapshot.max_nr_accesses, 30, "no fewer checks than accesses");
    let texts: Vec<&str> = notes
        .iter()
        .map(|note| match note {
            Record::Note(note) if note.kind == "warning" => note.text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    let [accesses, ages, intervals] = texts[..] else {
        panic!("{texts:?}")
    };
    assert!(
        accesses.starts_with("3 of 5 regions of damo have no nr_accesses"),
        "{accesses}"
    );
    assert!(ages.starts_with("4 of 5 regions of damo have no age"), "{ages}");
    assert!(
        intervals.contains("no sampling interval") && intervals.contains("5 ms"),
        "{intervals}"
    );
}

#[test]
fn missing_age_stays_missing_in_exports() {
    let dir = tempfile::tempdir().unwrap();
    let (path, arrow) = (dir.path().join("damon.data"), dir.path().join("r.arrow"));
    fs::write(&path, DAMO_WITH_GAPS).unwrap();
    let mut csv = Vec::new();
    export::csv(&mut open(&path).unwrap(), Table::Regions, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert!(csv.contains("\n100000000,0,,8192,12288,0,30,,,false\n"), "{csv}");
    #[cfg(feature = "parquet")]
    {
        let rows = parquet_rows(&path, Table::Regions);
        assert!(rows[1].contains("age: null, age_ns: null"), "{}", rows[1]);
    }
    let mut damo = Vec::new();
    export::damo_json(&path, &mut damo, false).unwrap();
    let damo: serde_json::Value = serde_json::from_slice(&damo).unwrap();
    assert_eq!(damo[0]["intervals"], serde_json::Value::Null);
    let age = &damo[0]["snapshots"][0]["regions"][1]["age"];
    assert_eq!(
        (&age["usec"], &age["aggr_intervals"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );

    let (metadata, records, _) = read_all(&path).unwrap();
    let mut writer = Writer::create(&arrow, &metadata).unwrap();
    records.iter().for_each(|record| writer.append(record).unwrap());
    writer.finish().unwrap();
    let (again, read, _) = read_all(&arrow).unwrap();
    assert_eq!(read, records, "a recording holds them, too");
    assert_eq!(again.settings, metadata.settings);
}

#[test]
fn damo_share_of_accesses_never_rounds_to_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damon.data");
    fs::write(&path, DAMO.replace("\"percent\": 50", "\"percent\": 1")).unwrap();
    let records = read_all(&path).unwrap().1;
    let Some(Record::Snapshot(snapshot)) = records.first() else {
        panic!("no snapshot")
    };
    assert_eq!(snapshot.targets[1].regions[0].nr_accesses, 1, "1 % of 20 checks");
}

#[test]
fn damo_json_error_has_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damon.data");
    fs::write(&path, DAMO.replace("\"700 ms\"", "\"700 parsecs\"")).unwrap();
    let error = open(&path).err().unwrap().to_string();
    assert!(error.contains("damon.data:6:"), "{error}");
    assert!(error.contains("\"700 parsecs\", expected a time"), "{error}");
}

/// The part of snapshots that damo's JSON can hold: no PIDs, no tables, no regions of unknown access.
fn for_damo(records: Vec<Record>) -> Vec<Record> {
    let mut snapshots: Vec<Record> = records
        .into_iter()
        .filter(|r| matches!(r, Record::Snapshot(_)))
        .collect();
    for record in &mut snapshots {
        let Record::Snapshot(snapshot) = record else {
            continue;
        };
        for target in &mut snapshot.targets {
            target.pid = None;
            (target.tables, target.averaged) = (None, 0);
            target.regions.retain(|region| !region.unknown);
        }
    }
    snapshots
}

#[test]
fn damo_export_reads_back_as_same_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let (path, exported) = (dir.path().join("r.arrow"), dir.path().join("damon.data"));
    let mut records = sample::records();
    let Some(Record::Snapshot(snapshot)) = records.last_mut() else {
        panic!("the sample ends with a snapshot")
    };
    snapshot.targets[0].regions[1].unknown = true;
    sample::write(&path, &records, 3);
    for compressed in [false, true] {
        export::damo_json(&path, File::create(&exported).unwrap(), compressed).unwrap();
        let (metadata, read, _) = read_all(&exported).unwrap();
        assert_eq!(read, for_damo(records.clone()));
        assert_eq!(
            metadata.settings,
            Settings {
                min_nr_regions: None,
                max_nr_regions: None,
                cpu_budget_percent: None,
                ..sample::metadata().settings
            }
        );
    }
}

#[test]
fn csv_has_one_line_per_region() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    sample::write(&path, &sample::records(), 3);
    let mut out = Vec::new();
    export::csv(&mut open(&path).unwrap(), Table::Regions, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(
        lines[0],
        "time_ns,target,pid,start,end,nr_accesses,max_nr_accesses,age,age_ns,unknown"
    );
    assert_eq!(lines[1], "100000000,0,7,4096,20480,20,20,3,300000000,false");
}

#[test]
fn csv_of_ages_has_one_line_per_nonzero_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    sample::write(&path, &sample::records(), 3);
    let mut out = Vec::new();
    export::csv(&mut open(&path).unwrap(), Table::Ages, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let head = "100000000,0,7,scan,130000000,7,60000000";
    assert_eq!(
        lines[..6],
        [
            "time_ns,target,pid,method,pass_ns,nr_passes,as_of_ns,table,name,min_age_s,max_age_s,bytes"
                .to_owned(),
            format!("{head},idle,anon,0,1,8192"),
            format!("{head},idle,anon,86400,,4096"),
            format!("{head},idle,file_huge,2,5,2097152"),
            format!("{head},unknown,first_scan,,,12288"),
            format!("{head},reaccessed,,10,30,16384"),
        ]
    );
    assert_eq!(lines.len(), 11, "two snapshots");
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_of_ages_has_same_rows_as_csv() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    sample::write(&path, &sample::records(), 3);
    let rows = parquet_rows(&path, Table::Ages);
    assert_eq!(rows.len(), 10);
    assert_eq!(
        rows[3],
        "{time_ns: 100000000, target: 0, pid: 7, method: \"scan\", pass_ns: 130000000, nr_passes: 7, as_of_ns: 60000000, \
         table: \"unknown\", name: \"first_scan\", min_age_s: null, max_age_s: null, bytes: 12288}"
    );
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_has_one_row_per_region() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.arrow");
    sample::write(&path, &sample::records(), 3);
    let rows = parquet_rows(&path, Table::Regions);
    assert_eq!(rows.len(), 4);
    assert_eq!(
        rows[3],
        "{time_ns: 200000000, target: 0, pid: 7, start: 140733193388032, end: 140733193424896, nr_accesses: 0, \
         max_nr_accesses: 20, age: 250, age_ns: 25000000000, unknown: false}"
    );
}

/// The rows of `table` in the recording at `path`, exported as Parquet.
#[cfg(feature = "parquet")]
fn parquet_rows(path: &std::path::Path, table: Table) -> Vec<String> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let mut exported = tempfile::tempfile().unwrap();
    export::parquet(&mut open(path).unwrap(), table, &mut exported).unwrap();
    let file = SerializedFileReader::new(exported).unwrap();
    let rows = file.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().to_string()).collect()
}
