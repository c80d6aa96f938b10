//! The columns of schema 1, each declared once: name, type, and how to get and set it in a [`Row`].
//!
//! Columns are only added at the end, and old readers ignore the new ones. A column whose meaning changes
//! makes a new schema version.

use thermo_engine::access_tables::NR_AGES;

use crate::row::{Mode, Row, RowKind};

/// A column.
pub struct Column {
    pub name: &'static str,
    pub field: Field,
}

/// Type of a column, with access to the field of a row. Values are not null, except those of `Optional…`. In
/// the file, `Count` is a signed 64-bit integer that is not negative.
pub enum Field {
    Count(fn(&Row) -> u64, fn(&mut Row, u64)),
    OptionalCount(fn(&Row) -> Option<u64>, fn(&mut Row, Option<u64>)),
    Signed(fn(&Row) -> i64, fn(&mut Row, i64)),
    Small(fn(&Row) -> u32, fn(&mut Row, u32)),
    OptionalDouble(fn(&Row) -> Option<f64>, fn(&mut Row, Option<f64>)),
    Text(fn(&Row) -> &str, fn(&mut Row, String)),
    OptionalText(fn(&Row) -> Option<&str>, fn(&mut Row, Option<String>)),
    /// A text of a fixed set. The setter is false for a text outside the set.
    Choice(fn(&Row) -> &'static str, fn(&mut Row, &str) -> bool),
    Ages(fn(&Row) -> &[u64; NR_AGES], fn(&mut Row, [u64; NR_AGES])),
}

/// A column whose name and field are the same word.
macro_rules! column {
    (Text $name:ident) => {
        column!(@ Text $name, |row| &row.$name)
    };
    (OptionalText $name:ident) => {
        column!(@ OptionalText $name, |row| row.$name.as_deref())
    };
    (Ages $name:ident) => {
        column!(@ Ages $name, |row| &row.$name)
    };
    (Choice $name:ident $kind:ident) => {
        Column {
            name: stringify!($name),
            field: Field::Choice(
                |row| row.$name.name(),
                |row, text| $kind::parse(text).map(|value| row.$name = value).is_some(),
            ),
        }
    };
    (@ $field:ident $name:ident, $get:expr) => {
        Column {
            name: stringify!($name),
            field: Field::$field($get, |row, value| row.$name = value),
        }
    };
    ($field:ident $name:ident) => {
        column!(@ $field $name, |row| row.$name)
    };
}

/// All columns, in the order of the file.
pub const COLUMNS: &[Column] = &[
    column!(Count time_ms),
    column!(Count interval_ms),
    column!(Choice row RowKind),
    column!(Text node),
    column!(OptionalText namespace),
    column!(OptionalText pod),
    column!(OptionalText container),
    column!(Text workload),
    column!(Text target),
    column!(Text policy),
    column!(Choice mode Mode),
    column!(OptionalCount min_age_ms),
    column!(Small processes),
    column!(Count resident_bytes),
    column!(Count swap_bytes),
    column!(Count unknown_bytes),
    column!(Count working_set_bytes),
    column!(Ages idle_bytes),
    column!(Ages idle_file_bytes),
    column!(Ages reaccess_bytes),
    column!(OptionalCount pass_ms),
    column!(Count paged_out_bytes),
    column!(OptionalCount would_page_out_bytes),
    column!(Count back_bytes),
    column!(Count out_bytes),
    column!(Count out_swap_bytes),
    column!(Signed net_saved_bytes),
    column!(OptionalDouble swap_cost),
    column!(Count watching_cpu_us),
    column!(Count acting_cpu_us),
];

/// The schema as a Parquet message type.
#[must_use]
pub fn message_type() -> String {
    let columns = COLUMNS.iter().map(|column| {
        let name = column.name;
        match column.field {
            Field::Count(..) | Field::Signed(..) => format!("  required int64 {name};\n"),
            Field::OptionalCount(..) => format!("  optional int64 {name};\n"),
            Field::Small(..) => format!("  required int32 {name};\n"),
            Field::OptionalDouble(..) => format!("  optional double {name};\n"),
            Field::Text(..) | Field::Choice(..) => format!("  required binary {name} (STRING);\n"),
            Field::OptionalText(..) => format!("  optional binary {name} (STRING);\n"),
            Field::Ages(..) => {
                format!(
                    "  required group {name} (LIST) {{ repeated group list {{ required int64 item; }} }}\n"
                )
            }
        }
    });
    format!("message fleet {{\n{}}}\n", columns.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_page_lists_all_columns_in_order() {
        let page = include_str!("../../../docs/reference/fleet-files.md");
        let table = page.split("## Columns").nth(1).expect("a section of columns");
        let table = table.split("\n## ").next().expect("the section");
        let rows = table.lines().filter(|line| line.starts_with("| `"));
        let written: Vec<(String, String)> = rows
            .map(|line| {
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
            })
            .collect();
        let declared: Vec<(String, String)> = COLUMNS
            .iter()
            .map(|column| {
                let kind = match column.field {
                    Field::Count(..) | Field::Signed(..) => "int64",
                    Field::OptionalCount(..) => "int64, null",
                    Field::Small(..) => "int32",
                    Field::OptionalDouble(..) => "double, null",
                    Field::Text(..) | Field::Choice(..) => "string",
                    Field::OptionalText(..) => "string, null",
                    Field::Ages(..) => "list of 15 int64",
                };
                (column.name.to_owned(), kind.to_owned())
            })
            .collect();
        assert_eq!(written, declared);
    }
}
