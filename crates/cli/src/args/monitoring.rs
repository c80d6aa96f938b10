//! How to look.

use thermo_core::{Attrs, AttrsError, Nanos, Permille};

/// How often to look, with how many regions, and by which tracker.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Monitoring")]
pub struct Monitoring {
    /// Time between two looks at a region
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    sample: Nanos,

    /// Time over which looks are counted
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    aggr: Nanos,

    /// Time between two updates of the targets and their mappings
    #[arg(long, value_name = "TIME", default_value = "1s")]
    update: Nanos,

    /// Fewest regions over all targets
    #[arg(long, value_name = "N", default_value_t = 10)]
    min_regions: usize,

    /// Most regions over all targets
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_regions: usize,

    /// How accesses are seen: auto, or a tracker that `thermo doctor` lists
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub tracker: String,

    /// CPU time to spend on looking, of one CPU; kept with the recording, not enforced yet
    #[arg(long, value_name = "PERCENT")]
    pub cpu: Option<Permille>,

    /// Seed of all random choices; the same seed looks at the same places
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Monitoring {
    /// The attributes these flags say.
    ///
    /// # Errors
    /// They contradict each other.
    pub fn attrs(&self) -> Result<Attrs, AttrsError> {
        let attrs = Attrs {
            sample: self.sample,
            aggr: self.aggr,
            update: self.update,
            min_nr_regions: self.min_regions,
            max_nr_regions: self.max_regions,
        };
        attrs.check().map(|()| attrs)
    }
}
