//! Writing a file: one row group, compressed with zstd.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use thermo_engine::access_tables::NR_AGES;

use crate::columns::{COLUMNS, Field, message_type};
use crate::{FileFacts, FleetError, Row};

/// Writes the file with these rows to `out`. The same facts and rows give the same bytes.
///
/// # Errors
/// The window is impossible, a value exceeds its column, or `out` cannot be written.
pub fn write(facts: &FileFacts, rows: &[Row], out: impl Write + Send) -> Result<(), FleetError> {
    facts.check()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        // A column is a single page: statistics and an index by page would repeat those of the column.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(facts.to_metadata(rows.len())))
        .build();
    let schema = Arc::new(parse_message_type(&message_type())?);
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in COLUMNS {
        write_column(&mut group, column.name, &column.field, rows)?;
    }
    group.close()?;
    file.close()?;
    Ok(())
}

fn write_column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    name: &'static str,
    field: &Field,
    rows: &[Row],
) -> Result<(), FleetError> {
    let signed = |value: u64| i64::try_from(value).map_err(|_| FleetError::Range { column: name, value });
    match field {
        Field::Count(get, _) => {
            let values = rows.iter().map(|row| signed(get(row)));
            column::<Int64Type, W>(group, &values.collect::<Result<Vec<_>, _>>()?, None, None)
        }
        Field::OptionalCount(get, _) => {
            let values = rows.iter().filter_map(get).map(signed);
            let levels = levels(rows, |row| get(row).is_some());
            column::<Int64Type, W>(
                group,
                &values.collect::<Result<Vec<_>, _>>()?,
                Some(&levels),
                None,
            )
        }
        Field::Signed(get, _) => {
            column::<Int64Type, W>(group, &rows.iter().map(get).collect::<Vec<_>>(), None, None)
        }
        Field::Small(get, _) => {
            let small = |row| {
                let value = get(row);
                let column = name;
                i32::try_from(value).map_err(|_| FleetError::Range {
                    column,
                    value: value.into(),
                })
            };
            let values = rows.iter().map(small);
            column::<Int32Type, W>(group, &values.collect::<Result<Vec<_>, _>>()?, None, None)
        }
        Field::OptionalDouble(get, _) => {
            let values: Vec<f64> = rows.iter().filter_map(get).collect();
            let levels = levels(rows, |row| get(row).is_some());
            column::<DoubleType, W>(group, &values, Some(&levels), None)
        }
        Field::Text(get, _) => {
            let values: Vec<ByteArray> = rows.iter().map(|row| get(row).into()).collect();
            column::<ByteArrayType, W>(group, &values, None, None)
        }
        Field::Choice(get, _) => {
            let values: Vec<ByteArray> = rows.iter().map(|row| get(row).into()).collect();
            column::<ByteArrayType, W>(group, &values, None, None)
        }
        Field::OptionalText(get, _) => {
            let values: Vec<ByteArray> = rows.iter().filter_map(get).map(ByteArray::from).collect();
            let levels = levels(rows, |row| get(row).is_some());
            column::<ByteArrayType, W>(group, &values, Some(&levels), None)
        }
        Field::Ages(get, _) => {
            let values = rows.iter().flat_map(get).copied().map(signed);
            let values = values.collect::<Result<Vec<_>, _>>()?;
            // Every list has all its items. Repetition level 0 begins a list, 1 continues it.
            let repetitions: Vec<i16> = (0..values.len())
                .map(|nth| i16::from(nth % NR_AGES != 0))
                .collect();
            column::<Int64Type, W>(group, &values, Some(&vec![1; values.len()]), Some(&repetitions))
        }
    }
}

/// Definition levels of a column: 1 for a value, 0 for null.
fn levels(rows: &[Row], is_some: impl Fn(&Row) -> bool) -> Vec<i16> {
    rows.iter().map(|row| i16::from(is_some(row))).collect()
}

/// Writes the next column.
fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    definitions: Option<&[i16]>,
    repetitions: Option<&[i16]>,
) -> Result<(), FleetError> {
    let missing = || ParquetError::General("the schema has fewer columns than a row".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column
        .typed::<T>()
        .write_batch(values, definitions, repetitions)?;
    column.close()?;
    Ok(())
}
