//! Regions over time: initial regions, splits at change points, merging and aging at the end of each
//! aggregation, random splits for the next aggregation.

mod change_point;
mod merge;
mod rescale;
mod split;
mod target;

pub(crate) use change_point::CheckLog;
pub(crate) use merge::{MergeLimits, merge_and_age};
pub(crate) use rescale::rescale;
pub(crate) use split::Splitter;
pub(crate) use target::{Target, initial_regions};
