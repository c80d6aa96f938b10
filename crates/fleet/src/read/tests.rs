use super::*;
use crate::{Mode, RowKind, message_type, write};
use parquet::basic::Compression;
use parquet::schema::printer::print_schema;
use proptest::prelude::*;

fn facts() -> FileFacts {
    FileFacts {
        cluster: "west".into(),
        node: "node-1".into(),
        window_start_ms: 7_200_000,
        window_ms: 3_600_000,
        interval_ms: 300_000,
        written_ms: 10_800_123,
        link: "https://node-1:8080/".into(),
        program: "thermo 0.1.0".into(),
    }
}

fn written(rows: &[Row]) -> Vec<u8> {
    let mut file = Vec::new();
    write(&facts(), rows, &mut file).expect("the file is written");
    file
}

/// A row without null, or with null wherever a column allows it.
fn full_row(number: u64, is_full: bool) -> Row {
    let ages = |base: u64| std::array::from_fn(|age| base + age as u64);
    let text = |name: &str| is_full.then(|| format!("{name}-{number}"));
    Row {
        time_ms: 7_500_000 + number,
        interval_ms: 300_000,
        row: if is_full { RowKind::Target } else { RowKind::Agent },
        node: "node-1".into(),
        namespace: text("namespace"),
        pod: text("pod"),
        container: text("container"),
        workload: "redis".into(),
        target: format!("target-{number}"),
        policy: "cold".into(),
        mode: if is_full { Mode::DryRun } else { Mode::Act },
        min_age_ms: is_full.then_some(120_000),
        processes: 3,
        resident_bytes: number << 32,
        swap_bytes: 2,
        unknown_bytes: 3,
        working_set_bytes: 4,
        idle_bytes: ages(1000 * number),
        idle_file_bytes: ages(2000 * number),
        reaccess_bytes: ages(3000 * number),
        pass_ms: is_full.then_some(10_000),
        paged_out_bytes: 5,
        would_page_out_bytes: is_full.then_some(6),
        back_bytes: 7,
        out_bytes: 8,
        out_swap_bytes: 9,
        net_saved_bytes: -10,
        swap_cost: is_full.then_some(0.25),
        watching_cpu_us: 11,
        acting_cpu_us: 12,
    }
}

#[test]
fn rows_and_facts_survive_a_round_trip() {
    let rows: Vec<Row> = (0..40).map(|number| full_row(number, number % 3 != 0)).collect();
    let file = written(&rows);
    assert_eq!(file, written(&rows), "same rows, same bytes");
    assert_eq!(read(file).expect("the file is read"), (facts(), rows));
    assert_eq!(read(written(&[])).expect("the file is read"), (facts(), vec![]));
}

proptest! {
    #[test]
    fn any_counts_survive_a_round_trip(
        counts in prop::collection::vec(0..=i64::MAX as u64, 15),
        saved in any::<i64>(),
        nodes in prop::collection::vec(".*", 0..5),
    ) {
        let row = |node: &String| Row {
            node: node.clone(),
            resident_bytes: counts[0],
            idle_bytes: counts.clone().try_into().expect("15 counts"),
            net_saved_bytes: saved,
            ..full_row(1, true)
        };
        let rows: Vec<Row> = nodes.iter().map(row).collect();
        prop_assert_eq!(read(written(&rows)).expect("the file is read").1, rows);
    }
}

#[test]
fn parquet_has_the_columns_of_schema_1() {
    let file = SerializedFileReader::new(Bytes::from(written(&[full_row(1, true)]))).expect("a file");
    let metadata = file.metadata();
    let mut printed = Vec::new();
    print_schema(&mut printed, metadata.file_metadata().schema());
    let expected = "message fleet {
  REQUIRED INT64 time_ms;
  REQUIRED INT64 interval_ms;
  REQUIRED BYTE_ARRAY row (STRING);
  REQUIRED BYTE_ARRAY node (STRING);
  OPTIONAL BYTE_ARRAY namespace (STRING);
  OPTIONAL BYTE_ARRAY pod (STRING);
  OPTIONAL BYTE_ARRAY container (STRING);
  REQUIRED BYTE_ARRAY workload (STRING);
  REQUIRED BYTE_ARRAY target (STRING);
  REQUIRED BYTE_ARRAY policy (STRING);
  REQUIRED BYTE_ARRAY mode (STRING);
  OPTIONAL INT64 min_age_ms;
  REQUIRED INT32 processes;
  REQUIRED INT64 resident_bytes;
  REQUIRED INT64 swap_bytes;
  REQUIRED INT64 unknown_bytes;
  REQUIRED INT64 working_set_bytes;
  REQUIRED group idle_bytes (LIST) {
    REPEATED group list {
      REQUIRED INT64 item;
    }
  }
  REQUIRED group idle_file_bytes (LIST) {
    REPEATED group list {
      REQUIRED INT64 item;
    }
  }
  REQUIRED group reaccess_bytes (LIST) {
    REPEATED group list {
      REQUIRED INT64 item;
    }
  }
  OPTIONAL INT64 pass_ms;
  REQUIRED INT64 paged_out_bytes;
  OPTIONAL INT64 would_page_out_bytes;
  REQUIRED INT64 back_bytes;
  REQUIRED INT64 out_bytes;
  REQUIRED INT64 out_swap_bytes;
  REQUIRED INT64 net_saved_bytes;
  OPTIONAL DOUBLE swap_cost;
  REQUIRED INT64 watching_cpu_us;
  REQUIRED INT64 acting_cpu_us;
}
";
    assert_eq!(String::from_utf8_lossy(&printed), expected);
    assert_eq!(metadata.num_row_groups(), 1);
    let columns = metadata.row_group(0).columns();
    assert!(
        columns
            .iter()
            .all(|column| matches!(column.compression(), Compression::ZSTD(_)))
    );
    assert!(
        columns
            .iter()
            .all(|column| column.dictionary_page_offset().is_some())
    );
    let pairs = metadata.file_metadata().key_value_metadata().expect("metadata");
    let pairs: Vec<(&str, &str)> = pairs
        .iter()
        .map(|pair| (pair.key.as_str(), pair.value.as_deref().unwrap_or("")))
        .collect();
    let expected = [
        ("thermo.fleet.schema", "1"),
        ("thermo.fleet.cluster", "west"),
        ("thermo.fleet.node", "node-1"),
        ("thermo.fleet.window_start_ms", "7200000"),
        ("thermo.fleet.window_ms", "3600000"),
        ("thermo.fleet.interval_ms", "300000"),
        ("thermo.fleet.written_ms", "10800123"),
        ("thermo.fleet.rows", "1"),
        (
            "thermo.fleet.age_edges_s",
            "0,1,2,5,10,30,60,120,300,600,1800,3600,7200,21600,86400",
        ),
        ("thermo.fleet.link", "https://node-1:8080/"),
        ("thermo.fleet.program", "thermo 0.1.0"),
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn truncated_files_are_refused() {
    let file = written(&[full_row(1, true), full_row(2, false)]);
    for len in (0..file.len()).step_by(97) {
        assert!(
            read(file[..len].to_vec()).is_err(),
            "{len} of {} bytes",
            file.len()
        );
    }
}

/// A file of one row whose message type and metadata are not those of this version.
fn foreign(message: &str, metadata: Vec<parquet::file::metadata::KeyValue>) -> Vec<u8> {
    foreign_rows(message, metadata, 1)
}

fn foreign_rows(message: &str, metadata: Vec<parquet::file::metadata::KeyValue>, rows: u64) -> Vec<u8> {
    use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
    let schema = parquet::schema::parser::parse_message_type(message).expect("a schema");
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(metadata))
        .build();
    let mut file = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut file, schema.into(), properties.into()).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    while let Some(mut column) = group.next_column().expect("a column") {
        column
            .typed::<parquet::data_type::Int64Type>()
            .write_batch(&vec![1; rows as usize], None, None)
            .expect("a value");
        column.close().expect("a column");
    }
    group.close().expect("a group");
    writer.close().expect("a file");
    file
}

#[test]
fn foreign_files_are_refused_with_the_reason() {
    let error = |file| read(file).expect_err("refused").to_string();
    let message = "message fleet { required int64 time_ms; }";
    let no_facts = error(foreign(message, vec![]));
    assert_eq!(no_facts, "the file has schema \"\"; this version reads schema 1");
    let mut metadata = facts().to_metadata(1);
    let lacks_column = error(foreign(message, metadata.clone()));
    assert_eq!(lacks_column, "row 0, column interval_ms: the column is missing");
    metadata[0].value = Some("2".into());
    let future = error(foreign(message, metadata.clone()));
    assert_eq!(future, "the file has schema \"2\"; this version reads schema 1");
    metadata[0].value = Some("1".into());
    metadata[4].value = Some("long".into());
    let no_window = error(foreign(message, metadata));
    assert_eq!(
        no_window,
        "metadata thermo.fleet.window_ms is \"long\", expected a number up to the year 9999 in ms"
    );
}

#[test]
fn absurd_times_and_sizes_are_refused() {
    let error = |file| read(file).expect_err("refused").to_string();
    let message = "message fleet { required int64 time_ms; }";
    for (nth, value) in [(3, "4611686018427387904"), (6, "1000000000000000")] {
        let mut metadata = facts().to_metadata(1);
        metadata[nth].value = Some(value.into());
        let error = error(foreign(message, metadata));
        assert!(
            error.ends_with("expected a number up to the year 9999 in ms"),
            "{error}"
        );
    }
    let two = error(foreign(message, facts().to_metadata(2)));
    assert_eq!(two, "the file has 1 rows, but its metadata say 2");
    // One run of a number is short, whatever its length.
    let long = foreign_rows(message, facts().to_metadata(1), MAX_ROWS + 1);
    assert!(long.len() < 10_000, "{} bytes", long.len());
    let error = error(long);
    assert!(error.starts_with("the file claims 250001 rows"), "{error}");
}

#[test]
fn values_beyond_a_column_are_refused() {
    let row = Row {
        resident_bytes: 1 << 63,
        ..full_row(1, true)
    };
    let error = write(&facts(), &[row], Vec::new())
        .expect_err("refused")
        .to_string();
    assert!(
        error.starts_with("resident_bytes is 9223372036854775808, beyond"),
        "{error}"
    );
    assert!(message_type().contains("required int64 resident_bytes"));
}

#[test]
fn any_changed_bytes_give_rows_or_an_error() {
    let file = written(&[full_row(1, true), full_row(2, false)]);
    let mut failed = 0;
    for at in (0..file.len()).step_by(7) {
        for byte in [0x00, 0x7f, 0xff] {
            let mut changed = file.clone();
            changed[at] = byte;
            failed += usize::from(read(changed).is_err());
        }
    }
    assert!(failed > 0);
}
