//! Where a recording is written, and for how long.

use std::path::PathBuf;

use thermo_units::Nanos;

/// The recording.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Recording")]
pub struct Output {
    /// File to write; an existing file is renamed to FILE.old
    #[arg(long, short, value_name = "FILE", default_value = "thermo.arrow")]
    pub output: PathBuf,

    /// Stop after this time; a started command keeps running
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
}
