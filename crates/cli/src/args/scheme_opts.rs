//! Flags about schemes and their limits.

use std::path::PathBuf;

use anyhow::ensure;
use thermo_actions::{HugeOptions, PageoutLimits};
use thermo_engine::Scheme;
use thermo_runtime::host::Host;
use thermo_units::{Permille, SharePerMinute, UnitError, printable};

use crate::scheme_file;

/// Schemes and their limits.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Schemes")]
pub struct SchemeOpts {
    /// Apply the schemes of this file while monitoring
    #[arg(long, value_name = "FILE")]
    pub schemes: Option<PathBuf>,

    #[command(flatten)]
    pub limits: Limits,
}

/// Limits of schemes.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
#[command(next_help_heading = "Schemes")]
pub struct Limits {
    /// Decide and report, but change no memory
    #[arg(long)]
    pub dry_run: bool,

    /// Skip schemes whose action this machine does not support
    #[arg(long)]
    pub best_effort: bool,

    /// Page out anonymous memory only while more than this share of swap is free
    #[arg(long, value_name = "SHARE", default_value = "20%")]
    pub swap_floor: Permille,

    /// Stop paging out while more than this share of the pages paged out in the last minute is resident again
    #[arg(long, value_name = "SHARE", value_parser = refault_share, default_value = "25%")]
    pub max_refaults: Permille,

    /// Stop paging out of a target for some time when less than this share of what left its memory is saved,
    /// because its contents do not compress and lie in zram; 0 %: do not measure
    #[arg(long, value_name = "SHARE", default_value = "10%")]
    pub min_net: Permille,

    /// Let hugepage schemes also set the huge-page flag of mappings: the target is made to call madvise()
    #[arg(long)]
    pub huge_flags: bool,

    /// Keep the huge-page flags that were set, also after the end
    #[arg(long)]
    pub keep_flags: bool,

    /// Collapse only where at least this share of the huge page is resident
    #[arg(long, value_name = "SHARE", default_value = "80%")]
    pub collapse_present: Permille,
}

impl SchemeOpts {
    /// The schemes of the file; empty without a file.
    ///
    /// # Errors
    /// The file cannot be read or holds a mistake.
    pub fn read(&self) -> anyhow::Result<Vec<Scheme>> {
        self.schemes
            .as_deref()
            .map_or_else(|| Ok(Vec::new()), scheme_file::read)
    }
}

/// The defaults of the flags.
impl Default for Limits {
    fn default() -> Self {
        Self {
            dry_run: false,
            best_effort: false,
            swap_floor: Permille(200),
            max_refaults: Permille(250),
            min_net: Permille(100),
            huge_flags: false,
            keep_flags: false,
            collapse_present: Permille(800),
        }
    }
}

/// Parses a share of refaults. A share per minute is the bound of an automatic age, which is another limit.
fn refault_share(text: &str) -> Result<Permille, String> {
    if text.parse::<SharePerMinute>().is_ok() {
        return Err(format!(
            "give a share like 25%; as a bound of the automatic age, write --auto={text}"
        ));
    }
    text.parse().map_err(|error: UnitError| error.to_string())
}

impl Limits {
    /// Limits of paging out.
    pub fn pageout(&self) -> PageoutLimits {
        PageoutLimits {
            swap_floor: self.swap_floor,
            refaults: self.max_refaults,
            min_net: self.min_net,
            ..PageoutLimits::default()
        }
    }

    /// Options of the huge-page actions.
    pub const fn huge(&self) -> HugeOptions {
        HugeOptions {
            set_flag: self.huge_flags,
            keep_flags: self.keep_flags,
            min_present: self.collapse_present,
        }
    }

    /// The schemes that this host supports. The others are skipped with a warning (`--best-effort`).
    ///
    /// # Errors
    /// The host does not support a scheme and `--best-effort` is not given; or it supports none of them.
    pub fn supported(self, host: &Host, schemes: Vec<Scheme>) -> anyhow::Result<Vec<Scheme>> {
        if !self.best_effort {
            host.check_actions(schemes.iter().map(|scheme| scheme.action))?;
            return Ok(schemes);
        }
        let requested = schemes.len();
        let supported: Vec<Scheme> = schemes
            .into_iter()
            .filter(|scheme| {
                let unsupported = host.unsupported(scheme.action);
                if let Some(report) = unsupported {
                    thermo_kernel::message!(
                        "thermo: scheme skipped: {}: {}",
                        report.action,
                        printable(&report.reason)
                    );
                }
                unsupported.is_none()
            })
            .collect();
        ensure!(
            requested == 0 || !supported.is_empty(),
            "this machine supports none of the {requested} schemes: `thermo doctor` lists the actions it supports"
        );
        Ok(supported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    #[test]
    fn default_limits_are_those_of_the_flags() {
        assert_eq!(parsed::<Limits>(&[]), Limits::default());
    }
}
