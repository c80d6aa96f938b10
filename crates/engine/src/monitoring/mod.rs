//! Regions over time: laid out at the start, cut by what was seen, merged and aged at each aggregation, split for
//! the next.

mod evidence;
mod merge;
mod rescale;
mod split;
mod target;

pub(crate) use evidence::Evidence;
pub(crate) use merge::{MergeLimits, merge_and_age};
pub(crate) use rescale::rescale;
pub(crate) use split::Splitter;
pub(crate) use target::{Target, lay_out};
