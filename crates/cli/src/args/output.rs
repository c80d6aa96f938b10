//! Where a recording goes, and for how long it is made.

use std::path::PathBuf;

use thermo_units::Nanos;

/// The recording.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Recording")]
pub struct Output {
    /// The file; one that is there is kept as FILE.old
    #[arg(long, short, value_name = "FILE", default_value = "thermo.arrow")]
    pub output: PathBuf,

    /// Stop after this time; a command that was started goes on
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
}
