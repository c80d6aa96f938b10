//! Reports: statistics and pictures of a recording.
//!
//! Every report has the same shape. An [`Accumulator`] reads the records of a recording once, one by one. It
//! keeps at most a few MiB, whatever the length of the recording. [`Accumulator::finish`] returns a plain
//! struct. Its serde form is the JSON that scripts rely on; its methods give the other formats: `text`,
//! `csv`, and for pictures `svg`, `png` and `html`. Only [`regions`] prints every region, so it writes while
//! it reads.
//!
//! Totals come from the access tables in [`tables`]. [`heat`] defines hot and cold. [`layout`] separates
//! memory from gaps between mappings.
//!
//! This crate opens no files: the caller passes records in and gets text or bytes back.

pub mod advice;
pub mod ages;
pub mod confidence;
mod flat;
pub mod footprint;
pub mod heat;
pub mod heatmap;
pub mod idle;
pub mod info;
pub mod layout;
pub mod own_cost;
pub mod passes;
pub mod picture;
pub mod reaccess;
pub mod regions;
pub mod schemes;
mod series;
pub mod style;
pub mod summary;
pub mod tables;
pub mod tiers;
pub mod wss;

use thermo_recording::model::Record;

pub use confidence::Basis;
pub use heat::HeatSizes;
pub use layout::Layout;
pub use picture::PictureError;
pub use style::Style;

/// Schema version of the JSON of reports that have no `SCHEMA` of their own.
pub const SCHEMA: u32 = 1;

/// Why a report has no data, as a sentence. `empty_snapshots`: snapshots of the recording, all without data.
#[must_use]
pub fn no_data(empty_snapshots: u64) -> String {
    match empty_snapshots {
        0 => "The recording has no snapshot: it ended within the first aggregation interval.".to_owned(),
        1 => "The recording has one snapshot, without memory of a live target.".to_owned(),
        nr => format!("The recording has {nr} snapshots, none with memory of a live target."),
    }
}

/// Builds one report from the records of a recording.
pub trait Accumulator {
    /// The finished report.
    type Report;

    /// Adds the next record, in the order of the recording.
    fn add(&mut self, record: &Record);

    /// Returns the report.
    fn finish(self) -> Self::Report;
}

/// Adds all `records` to `accumulator` and returns its report.
///
/// # Errors
/// The first error that `records` yields.
pub fn accumulate<A, E>(
    mut accumulator: A,
    records: impl IntoIterator<Item = Result<Record, E>>,
) -> Result<A::Report, E>
where
    A: Accumulator,
{
    for record in records {
        accumulator.add(&record?);
    }
    Ok(accumulator.finish())
}
