//! What is to be done to the memory that is watched.

use std::path::PathBuf;

use anyhow::ensure;
use thermo_actions::{HugeOptions, PageoutLimits};
use thermo_engine::Scheme;
use thermo_units::Permille;

use crate::scheme_file;
use crate::session::Host;

/// Schemes, and how far they may go.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Schemes")]
pub struct Acting {
    /// Apply the schemes of this file
    #[arg(long, value_name = "FILE")]
    pub schemes: Option<PathBuf>,

    #[command(flatten)]
    pub limits: Limits,
}

/// How far schemes may go.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Schemes")]
pub struct Limits {
    /// Decide and report everything, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Go on without schemes whose action this machine cannot do
    #[arg(long)]
    pub best_effort: bool,

    /// Page out memory of programs only while more than this share of swap is free
    #[arg(long, value_name = "SHARE", default_value = "20%")]
    pub swap_floor: Permille,

    /// Stop paging out while more than this share of what left within a minute is back
    #[arg(long, value_name = "SHARE", default_value = "25%")]
    pub max_refaults: Permille,

    /// Let hugepage schemes also set the mappings' own flag, by a call that the target is made to make
    #[arg(long)]
    pub huge_flags: bool,

    /// Leave huge-page flags as they were set, also at the end
    #[arg(long)]
    pub keep_flags: bool,

    /// How much of a huge page must be in memory for the action collapse
    #[arg(long, value_name = "SHARE", default_value = "80%")]
    pub collapse_present: Permille,
}

impl Acting {
    /// The schemes of the file, if one was named.
    ///
    /// # Errors
    /// It cannot be read or holds a mistake.
    pub fn read(&self) -> anyhow::Result<Vec<Scheme>> {
        self.schemes
            .as_deref()
            .map_or_else(|| Ok(Vec::new()), scheme_file::read)
    }
}

impl Limits {
    /// When paging out stops.
    pub fn pageout(&self) -> PageoutLimits {
        PageoutLimits {
            swap_floor: self.swap_floor,
            refaults: self.max_refaults,
            ..PageoutLimits::default()
        }
    }

    /// How huge pages are made and forbidden.
    pub const fn huge(&self) -> HugeOptions {
        HugeOptions {
            set_flag: self.huge_flags,
            keep_flags: self.keep_flags,
            least_present: self.collapse_present,
        }
    }

    /// Those of `schemes` that this host can carry out.
    ///
    /// # Errors
    /// It cannot carry out one of them, and that was not consented to; or none is left.
    pub fn possible(self, host: &Host, schemes: Vec<Scheme>) -> anyhow::Result<Vec<Scheme>> {
        if !self.best_effort {
            host.check_actions(schemes.iter().map(|scheme| scheme.action))?;
            return Ok(schemes);
        }
        let asked = schemes.len();
        let possible: Vec<Scheme> = schemes
            .into_iter()
            .filter(|scheme| {
                let obstacle = host.obstacle(scheme.action);
                if let Some(report) = obstacle {
                    eprintln!("thermo: goes on without {}: {}", report.action, report.reason);
                }
                obstacle.is_none()
            })
            .collect();
        ensure!(
            asked == 0 || !possible.is_empty(),
            "this machine can do none of the {asked} schemes"
        );
        Ok(possible)
    }
}
