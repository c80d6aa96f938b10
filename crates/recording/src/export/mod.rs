//! Exports recordings for other tools: damo's JSON, CSV, Parquet.
//!
//! A CSV or Parquet file holds one table ([`Table`]): the regions or the access tables. Other records are not
//! exported.

mod ages;
mod csv;
mod damo_json;
#[cfg(feature = "parquet")]
mod parquet;

pub use csv::csv;
pub use damo_json::damo_json;
#[cfg(feature = "parquet")]
pub use parquet::parquet;

use std::io;

use crate::error::ReadError;
use crate::model::{Record, Snapshot};
use crate::reader::Recording;

/// The table to export to CSV or Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Table {
    /// One row per region of each snapshot.
    #[default]
    Regions,
    /// The access tables: one row per non-zero number, with target, snapshot, kind or reason, and idle age.
    Ages,
}

/// An export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The recording cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output cannot be written.
    #[error("cannot write the export: {0}; free space there, or choose another path")]
    Write(#[from] io::Error),
    /// The Parquet library failed.
    #[cfg(feature = "parquet")]
    #[error("cannot write Parquet: {0}")]
    Parquet(#[from] ::parquet::errors::ParquetError),
}

/// The snapshots of `recording`, in order.
fn snapshots(recording: &mut Recording) -> impl Iterator<Item = Result<Snapshot, ReadError>> {
    recording.filter_map(|record| match record {
        Ok(Record::Snapshot(snapshot)) => Some(Ok(snapshot)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}
