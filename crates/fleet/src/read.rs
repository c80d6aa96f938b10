//! Reading a file back. Columns are found by name; columns of later versions of the program are ignored.

use std::panic::catch_unwind;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field as Value, List};
use thermo_engine::access_tables::NR_AGES;

use crate::columns::{COLUMNS, Field};
use crate::{FileFacts, FleetError, Row};

/// Rows of a file: 20,000 targets every five minutes for an hour.
const MAX_ROWS: u64 = 250_000;
/// Bytes of its columns.
const MAX_BYTES: u64 = 256 << 20;

/// The facts and rows of the file with the content `file`.
///
/// # Errors
/// `file` is not a whole Parquet file of this schema version, lacks a column, is far larger than that of a
/// machine and a window, has an impossible window, or has another number of rows than its metadata say.
pub fn read(file: Vec<u8>) -> Result<(FileFacts, Vec<Row>), FleetError> {
    // The library panics on some damaged files: on 6 of 1000 in which a byte was changed.
    catch_unwind(|| read_whole(file)).unwrap_or_else(|_| {
        let damaged = ParquetError::General("the file is damaged".to_owned());
        Err(damaged.into())
    })
}

fn read_whole(file: Vec<u8>) -> Result<(FileFacts, Vec<Row>), FleetError> {
    let reader = SerializedFileReader::new(Bytes::from(file))?;
    let metadata = reader.metadata().file_metadata();
    let key_values = metadata
        .key_value_metadata()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let (facts, expected) = FileFacts::from_metadata(key_values)?;
    facts.check()?;
    check_claims(reader.metadata(), expected)?;
    let mut rows = Vec::new();
    for values in reader.get_row_iter(None)? {
        rows.push(row(rows.len(), values?)?);
    }
    let found = rows.len() as u64;
    if found != expected {
        return Err(FleetError::Rows { found, expected });
    }
    Ok((facts, rows))
}

/// Refuses a file that would become too large, by what its footer says: a run of one number is short,
/// whatever its length.
fn check_claims(metadata: &ParquetMetaData, expected: u64) -> Result<(), FleetError> {
    // A negative number is none.
    let claimed = |number: i64| u64::try_from(number).unwrap_or(u64::MAX);
    let check = |claimed: u64, max: u64, what: &str| match claimed <= max {
        true => Ok(()),
        false => Err(FleetError::Size {
            claim: format!("{claimed} {what}"),
            max,
        }),
    };
    let (mut rows, mut bytes) = (0_u64, 0_u64);
    for group in metadata.row_groups() {
        let of_group = claimed(group.num_rows());
        rows = rows.saturating_add(of_group);
        check(rows, MAX_ROWS, "rows")?;
        for column in group.columns() {
            bytes = bytes.saturating_add(claimed(column.uncompressed_size()));
            let max = of_group * NR_AGES as u64;
            check(claimed(column.num_values()), max, "values in a column")?;
        }
    }
    check(bytes, MAX_BYTES, "bytes")?;
    if rows != expected {
        return Err(FleetError::Rows {
            found: rows,
            expected,
        });
    }
    Ok(())
}

/// The row number `nth` with these values.
fn row(nth: usize, values: parquet::record::Row) -> Result<Row, FleetError> {
    let mut row = Row::default();
    let values = values.into_columns();
    for column in COLUMNS {
        let wrong = |what: String| FleetError::Column {
            row: nth,
            column: column.name,
            what,
        };
        let value = values.iter().find(|(name, _)| name == column.name);
        let (_, value) = value.ok_or_else(|| wrong("the column is missing".into()))?;
        if !set(&mut row, &column.field, value) {
            return Err(wrong(format!("{value} is not a value of this column")));
        }
    }
    Ok(row)
}

/// Sets the field to `value`. False if the value has another type or is outside the field's range.
fn set(row: &mut Row, field: &Field, value: &Value) -> bool {
    let mut set = || {
        match field {
            Field::Count(_, set) => set(row, count(value)?),
            Field::OptionalCount(_, set) => set(row, optional(value, count)?),
            Field::Signed(_, set) => set(row, signed(value)?),
            Field::Small(_, set) => set(row, small(value)?),
            Field::OptionalDouble(_, set) => set(row, optional(value, double)?),
            Field::Text(_, set) => set(row, text(value)?.to_owned()),
            Field::OptionalText(_, set) => set(row, optional(value, text)?.map(str::to_owned)),
            Field::Choice(_, set) => return set(row, text(value)?).then_some(()),
            Field::Ages(_, set) => set(row, ages(value)?),
        }
        Some(())
    };
    set().is_some()
}

/// `Some(None)` for null.
fn optional<'a, T>(value: &'a Value, get: impl Fn(&'a Value) -> Option<T>) -> Option<Option<T>> {
    match value {
        Value::Null => Some(None),
        value => get(value).map(Some),
    }
}

fn signed(value: &Value) -> Option<i64> {
    match value {
        Value::Long(value) => Some(*value),
        _ => None,
    }
}

fn count(value: &Value) -> Option<u64> {
    u64::try_from(signed(value)?).ok()
}

fn small(value: &Value) -> Option<u32> {
    match value {
        Value::Int(value) => u32::try_from(*value).ok(),
        _ => None,
    }
}

fn double(value: &Value) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Str(value) => Some(value),
        _ => None,
    }
}

fn ages(value: &Value) -> Option<[u64; NR_AGES]> {
    let Value::ListInternal(list) = value else {
        return None;
    };
    let values: Option<Vec<u64>> = List::elements(list).iter().map(count).collect();
    values?.try_into().ok()
}

#[cfg(test)]
mod tests;
