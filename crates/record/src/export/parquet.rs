//! Regions as Parquet, zstd-compressed, a row group for about every 64 Ki rows.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{BoolType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::{ExportError, snapshots};
use crate::model::Snapshot;
use crate::reader::Recording;

const SCHEMA: &str = "message regions {
    required int64 time_ns (INTEGER(64,false));
    required int32 target (INTEGER(32,false));
    optional int32 pid (INTEGER(32,false));
    required int64 start (INTEGER(64,false));
    required int64 end (INTEGER(64,false));
    required int32 nr_accesses (INTEGER(32,false));
    required int32 max_nr_accesses (INTEGER(32,false));
    required int32 age (INTEGER(32,false));
    required int64 age_ns (INTEGER(64,false));
    required boolean unknown;
}";
/// Parquet reads fastest in large groups, but a whole group waits in memory.
const GROUP_ROWS: usize = 1 << 16;

/// Writes the regions of all snapshots to `out` with the columns of [`csv`](super::csv()).
///
/// # Errors
/// The recording cannot be read on, or `out` not be written.
pub fn parquet(recording: &mut Recording, out: impl Write + Send) -> Result<(), ExportError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let zstd = Compression::ZSTD(parquet::basic::ZstdLevel::default());
    let properties = Arc::new(WriterProperties::builder().set_compression(zstd).build());
    let mut file = SerializedFileWriter::new(out, schema, properties)?;
    let mut columns = Columns::default();
    for snapshot in snapshots(recording) {
        columns.push(&snapshot?);
        if columns.unknown.len() >= GROUP_ROWS {
            columns.write(file.next_row_group()?)?;
            columns = Columns::default();
        }
    }
    if !columns.unknown.is_empty() {
        columns.write(file.next_row_group()?)?;
    }
    file.close()?;
    Ok(())
}

/// The rows of one group. Parquet stores unsigned numbers in signed ones of the same bits.
#[derive(Default)]
struct Columns {
    time_ns: Vec<i64>,
    target: Vec<i32>,
    /// Only those that are there; `pid_there` says for each row whether one is.
    pid: Vec<i32>,
    pid_there: Vec<i16>,
    start: Vec<i64>,
    end: Vec<i64>,
    nr_accesses: Vec<i32>,
    max_nr_accesses: Vec<i32>,
    age: Vec<i32>,
    age_ns: Vec<i64>,
    unknown: Vec<bool>,
}

impl Columns {
    fn push(&mut self, snapshot: &Snapshot) {
        for target in &snapshot.targets {
            for region in &target.regions {
                self.time_ns.push(snapshot.time_ns.cast_signed());
                self.target.push(target.id.cast_signed());
                self.pid.extend(target.pid.map(u32::cast_signed));
                self.pid_there.push(i16::from(target.pid.is_some()));
                self.start.push(region.start.cast_signed());
                self.end.push(region.end.cast_signed());
                self.nr_accesses.push(region.nr_accesses.cast_signed());
                self.max_nr_accesses.push(snapshot.max_nr_accesses.cast_signed());
                self.age.push(region.age.cast_signed());
                let age_ns = u64::from(region.age).saturating_mul(snapshot.aggr_ns);
                self.age_ns.push(age_ns.cast_signed());
                self.unknown.push(region.unknown);
            }
        }
    }

    /// Writes all columns, in the order of [`SCHEMA`].
    fn write<W: Write + Send>(&self, mut group: SerializedRowGroupWriter<'_, W>) -> ParquetResult<()> {
        column::<Int64Type, W>(&mut group, &self.time_ns, None)?;
        column::<Int32Type, W>(&mut group, &self.target, None)?;
        column::<Int32Type, W>(&mut group, &self.pid, Some(&self.pid_there))?;
        column::<Int64Type, W>(&mut group, &self.start, None)?;
        column::<Int64Type, W>(&mut group, &self.end, None)?;
        column::<Int32Type, W>(&mut group, &self.nr_accesses, None)?;
        column::<Int32Type, W>(&mut group, &self.max_nr_accesses, None)?;
        column::<Int32Type, W>(&mut group, &self.age, None)?;
        column::<Int64Type, W>(&mut group, &self.age_ns, None)?;
        column::<BoolType, W>(&mut group, &self.unknown, None)?;
        group.close()?;
        Ok(())
    }
}

fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    there: Option<&[i16]>,
) -> ParquetResult<()> {
    let no_more = || ParquetError::General("the schema has fewer columns than a row".to_owned());
    let mut column = group.next_column()?.ok_or_else(no_more)?;
    column.typed::<T>().write_batch(values, there, None)?;
    column.close()
}
