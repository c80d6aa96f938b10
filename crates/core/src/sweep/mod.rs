//! Page-exact looking: all accessed bits of a target read and cleared in rounds, instead of one page a region.
//!
//! A round walks every target once, in pieces so that its cost can be spread over time. What it finds is kept
//! as one byte a page ([`PageHeat`]); at its end the runs of pages that are alike become regions with exact
//! borders, joined where they differ least until there are few enough (`reduce`).

mod heat;
mod piece;
mod reduce;
mod round;

pub(crate) use heat::EVERYWHERE;
pub use heat::{PageHeat, PageSums};
pub use piece::{PageSeen, Piece, Preparation, Swept};
pub(crate) use reduce::{Holes, regions_of};
pub(crate) use round::{Of, Round};

/// How many rounds a page's access rate is counted over.
pub const WINDOW: u32 = 7;

/// What one accessed round of the window counts in `nr_accesses`, so that the mean of a region's pages keeps a
/// figure more than whole rounds would.
pub const PER_ROUND: u32 = 10;

/// The most `nr_accesses` can be of a region seen by sweeping. A round stands for this many sampling intervals.
pub const MAX_NR_ACCESSES: u32 = WINDOW * PER_ROUND;
