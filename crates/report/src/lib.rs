//! Reports: statistics and pictures from what was recorded.
//!
//! Every report has the same shape. An [`Accumulator`] takes the records of a recording one by one, once, and keeps
//! no more than a few MiB whatever the recording's length; [`Accumulator::finish`] gives a plain result
//! whose serde form is the JSON scripts rely on, with methods for the other faces: `text`, `csv`, and where it is a
//! picture `svg`, `png`, `html`. Only [`regions`], which prints everything there is, writes as it reads.
//!
//! Totals come from the access tables in [`tables`]. What "hot" and "cold" mean is decided in [`heat`]; what is memory and
//! what a gap between mappings in [`layout`].
//! Nothing here opens files: the caller brings the records and takes texts.

pub mod ages;
pub mod confidence;
mod flat;
pub mod footprint;
pub mod heat;
pub mod heatmap;
pub mod idle;
pub mod info;
pub mod layout;
pub mod passes;
pub mod picture;
pub mod reaccess;
pub mod regions;
pub mod schemes;
mod series;
pub mod style;
pub mod summary;
pub mod tables;
pub mod wss;

use thermo_recording::model::Record;

pub use confidence::Doubt;
pub use heat::HeatSizes;
pub use layout::Layout;
pub use picture::PictureError;
pub use style::Style;

/// The version of the JSON of those reports that do not name their own.
pub const SCHEMA: u32 = 1;

/// What every report says when there was nothing to sum up.
pub const NO_SNAPSHOTS: &str =
    "The recording holds no snapshot of a living target: it ended before the first aggregation did.";

/// A report in the making.
pub trait Accumulator {
    /// What comes of it.
    type Report;

    /// Takes the next record, in the order of the recording.
    fn add(&mut self, record: &Record);

    /// Sums up.
    fn finish(self) -> Self::Report;
}

/// Feeds all `records` to `accumulator`.
///
/// # Errors
/// The first error of the records' source.
pub fn sum_up<A, E>(
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
