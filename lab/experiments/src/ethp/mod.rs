//! What experiments on huge pages need besides: the machine's mode for a run, and put back after it; memory as the
//! kernel counts it for the whole machine, huge pages over time; the two sentences the tables come down to.

mod mode;
mod sentences;
mod watch;

pub(crate) use mode::{Mode, parse as mode_of};
pub use sentences::sentences;
pub(crate) use watch::Watch;
