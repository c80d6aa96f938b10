//! Errors of writing and reading files of a fleet.

use parquet::errors::ParquetError;

/// A file of a fleet cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The window of the file is impossible.
    #[error("a window of {window_ms} ms from {window_start_ms} ms on is impossible: {why}")]
    Window {
        /// Start of the window, Unix time in ms.
        window_start_ms: u64,
        /// Length of the window in ms.
        window_ms: u64,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// A value exceeds the range of its column.
    #[error("{column} is {value}, beyond the range of a signed 64-bit column")]
    Range {
        /// Name of the column.
        column: &'static str,
        /// The value.
        value: u64,
    },
    /// The file has another schema version.
    #[error("the file has schema {found:?}; this version reads schema {SCHEMA}", SCHEMA = crate::SCHEMA)]
    Schema {
        /// Version in the file; empty if there is none.
        found: String,
    },
    /// The file's metadata lack a fact or give it in another form.
    #[error("metadata {key} is {value:?}, expected {expected}")]
    Fact {
        /// Key of the fact.
        key: &'static str,
        /// Value in the file; empty if there is none.
        value: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A column is missing, or holds what it must not.
    #[error("row {row}, column {column}: {what}")]
    Column {
        /// Number of the row, from 0.
        row: usize,
        /// Name of the column.
        column: &'static str,
        /// The problem.
        what: String,
    },
    /// The file has fewer or more rows than its metadata say.
    #[error("the file has {found} rows, but its metadata say {expected}")]
    Rows {
        /// Rows in the file.
        found: u64,
        /// Rows by the metadata.
        expected: u64,
    },
    /// The file would become far larger than one of a machine and a window.
    #[error("the file claims {claim}, at most {max} are read")]
    Size {
        /// What it claims.
        claim: String,
        /// The maximum.
        max: u64,
    },
    /// The bytes are not a whole Parquet file, or cannot be written.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
}
