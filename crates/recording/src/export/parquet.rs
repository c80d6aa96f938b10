//! Parquet export, compressed with zstd.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::ages::{self, AgeRow};
use super::{ExportError, Table, snapshots};
use crate::model::Snapshot;
use crate::reader::Recording;

const REGIONS: &str = "message regions {
    required int64 time_ns (INTEGER(64,false));
    required int32 target (INTEGER(32,false));
    optional int32 pid (INTEGER(32,false));
    required int64 start (INTEGER(64,false));
    required int64 end (INTEGER(64,false));
    required int32 nr_accesses (INTEGER(32,false));
    required int32 max_nr_accesses (INTEGER(32,false));
    optional int32 age (INTEGER(32,false));
    optional int64 age_ns (INTEGER(64,false));
    required boolean unknown;
}";
const AGES: &str = "message ages {
    required int64 time_ns (INTEGER(64,false));
    required int32 target (INTEGER(32,false));
    optional int32 pid (INTEGER(32,false));
    required binary method (STRING);
    required int64 pass_ns (INTEGER(64,false));
    required int64 nr_passes (INTEGER(64,false));
    required int64 as_of_ns (INTEGER(64,false));
    required binary table (STRING);
    required binary name (STRING);
    optional int64 min_age_s (INTEGER(64,false));
    optional int64 max_age_s (INTEGER(64,false));
    required int64 bytes (INTEGER(64,false));
}";
/// Rows per row group. Larger groups are faster to read but need more memory to write.
const GROUP_ROWS: usize = 1 << 16;

/// Writes `table` of all snapshots to `out`, with the columns of [`csv`](super::csv()).
///
/// # Errors
/// The recording cannot be read, or `out` cannot be written.
pub fn parquet(recording: &mut Recording, table: Table, out: impl Write + Send) -> Result<(), ExportError> {
    match table {
        Table::Regions => write_all::<RegionColumns>(recording, REGIONS, out),
        Table::Ages => write_all::<AgeColumns>(recording, AGES, out),
    }
}

/// The columns of one row group.
trait Columns: Default {
    fn push(&mut self, snapshot: &Snapshot);

    /// Number of rows.
    fn len(&self) -> usize;

    /// Writes all columns in the order of the schema.
    fn write<W: Write + Send>(&self, group: SerializedRowGroupWriter<'_, W>) -> ParquetResult<()>;
}

fn write_all<C: Columns>(
    recording: &mut Recording,
    schema: &str,
    out: impl Write + Send,
) -> Result<(), ExportError> {
    let schema = Arc::new(parse_message_type(schema)?);
    let zstd = Compression::ZSTD(parquet::basic::ZstdLevel::default());
    let properties = Arc::new(WriterProperties::builder().set_compression(zstd).build());
    let mut file = SerializedFileWriter::new(out, schema, properties)?;
    let mut columns = C::default();
    for snapshot in snapshots(recording) {
        columns.push(&snapshot?);
        if columns.len() >= GROUP_ROWS {
            columns.write(file.next_row_group()?)?;
            columns = C::default();
        }
    }
    if columns.len() > 0 {
        columns.write(file.next_row_group()?)?;
    }
    file.close()?;
    Ok(())
}

/// Columns of the table of regions. Parquet stores unsigned integers as signed integers with the same bits.
#[derive(Default)]
struct RegionColumns {
    time_ns: Vec<i64>,
    target: Vec<i32>,
    /// The values that are not null. `pid_levels` has a definition level per row: 1 for a value, 0 for null.
    pid: Vec<i32>,
    pid_levels: Vec<i16>,
    start: Vec<i64>,
    end: Vec<i64>,
    nr_accesses: Vec<i32>,
    max_nr_accesses: Vec<i32>,
    /// The values that are not null, as for `pid`.
    age: Vec<i32>,
    age_ns: Vec<i64>,
    age_levels: Vec<i16>,
    unknown: Vec<bool>,
}

impl Columns for RegionColumns {
    fn push(&mut self, snapshot: &Snapshot) {
        for target in &snapshot.targets {
            for region in &target.regions {
                self.time_ns.push(snapshot.time_ns.cast_signed());
                self.target.push(target.id.cast_signed());
                self.pid.extend(target.pid.map(u32::cast_signed));
                self.pid_levels.push(i16::from(target.pid.is_some()));
                self.start.push(region.start.cast_signed());
                self.end.push(region.end.cast_signed());
                self.nr_accesses.push(region.nr_accesses.cast_signed());
                self.max_nr_accesses.push(snapshot.max_nr_accesses.cast_signed());
                self.age.extend(region.age.map(u32::cast_signed));
                let age_ns = region.age_ns(snapshot.aggr_ns);
                self.age_ns.extend(age_ns.map(u64::cast_signed));
                self.age_levels.push(i16::from(region.age.is_some()));
                self.unknown.push(region.unknown);
            }
        }
    }

    fn len(&self) -> usize {
        self.unknown.len()
    }

    fn write<W: Write + Send>(&self, mut group: SerializedRowGroupWriter<'_, W>) -> ParquetResult<()> {
        column::<Int64Type, W>(&mut group, &self.time_ns, None)?;
        column::<Int32Type, W>(&mut group, &self.target, None)?;
        column::<Int32Type, W>(&mut group, &self.pid, Some(&self.pid_levels))?;
        column::<Int64Type, W>(&mut group, &self.start, None)?;
        column::<Int64Type, W>(&mut group, &self.end, None)?;
        column::<Int32Type, W>(&mut group, &self.nr_accesses, None)?;
        column::<Int32Type, W>(&mut group, &self.max_nr_accesses, None)?;
        column::<Int32Type, W>(&mut group, &self.age, Some(&self.age_levels))?;
        column::<Int64Type, W>(&mut group, &self.age_ns, Some(&self.age_levels))?;
        column::<BoolType, W>(&mut group, &self.unknown, None)?;
        group.close()?;
        Ok(())
    }
}

/// Rows of the table of ages.
#[derive(Default)]
struct AgeColumns(Vec<AgeRow>);

impl Columns for AgeColumns {
    fn push(&mut self, snapshot: &Snapshot) {
        self.0.extend(ages::rows(snapshot));
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn write<W: Write + Send>(&self, mut writer: SerializedRowGroupWriter<'_, W>) -> ParquetResult<()> {
        let group = &mut writer;
        self.numbers(group, |row| row.time_ns)?;
        let targets: Vec<i32> = self.0.iter().map(|row| row.target.cast_signed()).collect();
        column::<Int32Type, W>(group, &targets, None)?;
        let pids = self.0.iter().filter_map(|row| row.pid.map(u32::cast_signed));
        let levels: Vec<i16> = self.0.iter().map(|row| i16::from(row.pid.is_some())).collect();
        column::<Int32Type, W>(group, &pids.collect::<Vec<_>>(), Some(&levels))?;
        self.names(group, |row| row.method)?;
        self.numbers(group, |row| row.pass_ns)?;
        self.numbers(group, |row| row.nr_passes)?;
        self.numbers(group, |row| row.as_of_ns)?;
        self.names(group, |row| row.table)?;
        self.names(group, |row| row.name)?;
        self.optional_numbers(group, |row| row.min_age_s)?;
        self.optional_numbers(group, |row| row.max_age_s)?;
        self.numbers(group, |row| row.bytes)?;
        writer.close()?;
        Ok(())
    }
}

impl AgeColumns {
    fn numbers<W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        get: fn(&AgeRow) -> u64,
    ) -> ParquetResult<()> {
        let values: Vec<i64> = self.0.iter().map(|row| get(row).cast_signed()).collect();
        column::<Int64Type, W>(group, &values, None)
    }

    fn optional_numbers<W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        get: fn(&AgeRow) -> Option<u64>,
    ) -> ParquetResult<()> {
        let values: Vec<i64> = self.0.iter().filter_map(get).map(u64::cast_signed).collect();
        let levels: Vec<i16> = self.0.iter().map(|row| i16::from(get(row).is_some())).collect();
        column::<Int64Type, W>(group, &values, Some(&levels))
    }

    fn names<W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        get: fn(&AgeRow) -> &'static str,
    ) -> ParquetResult<()> {
        let values: Vec<ByteArray> = self.0.iter().map(|row| ByteArray::from(get(row))).collect();
        column::<ByteArrayType, W>(group, &values, None)
    }
}

/// Writes the next column. `levels` are the definition levels of a column that may be null.
fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> ParquetResult<()> {
    let missing = || ParquetError::General("the schema has fewer columns than a row".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}
