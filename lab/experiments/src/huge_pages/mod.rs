//! Support for huge page experiments: the system's THP mode during a run, samples of the machine's memory and
//! huge pages, and a summary of the results in sentences.

mod machine_sampler;
mod summary;
mod thp_mode;

pub(crate) use machine_sampler::MachineSampler;
pub use summary::summary;
pub(crate) use thp_mode::{ModeGuard, parse as parse_mode};
