//! Recordings for other tools: damo's JSON, CSV, Parquet.
//!
//! CSV and Parquet hold one table each ([`Table`]): the regions, or the access tables; notes, costs and the like stay
//! behind.

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

/// What CSV and Parquet can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Table {
    /// A row for each region of each snapshot.
    #[default]
    Regions,
    /// The access tables: a row for each number that is not zero, by target, snapshot, kind or reason, and idle age.
    Ages,
}

/// An export that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The recording cannot be read on.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What was made of it cannot be written.
    #[error("cannot write what was exported: {0}; make room, or give another place")]
    Write(#[from] io::Error),
    /// The Parquet library refused something.
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
