//! The swap of an experiment: zram made for it and removed after it.

use std::path::Path;

use thermo_kernel::zram::{self, MmStat, ZramSwap};
use thermo_units::Bytes;

use crate::Error;

/// Swap on compressed memory, of higher priority than any other. It is switched off and removed when dropped.
#[derive(Debug)]
pub(crate) struct Swap(ZramSwap);

impl Swap {
    pub(crate) fn make(size: Bytes) -> Result<Self, Error> {
        ZramSwap::create(Path::new("/"), size)
            .map(Self)
            .map_err(|error| Error::Swap {
                size,
                reason: error.to_string(),
                instead: instead(Path::new("/")),
            })
    }

    /// The bytes of memory zram takes for `swapped` bytes of somebody.
    ///
    /// Others may swap to it too, so what it takes in all is divided by what each has in it. Allocator overhead
    /// and pages kept as a mere fill pattern are in the sum.
    pub(crate) fn held_for(&self, swapped: u64) -> u64 {
        self.0.mm_stat().map_or(0, |stat| share(stat, swapped))
    }
}

/// What to do where there is no zram.
fn instead(root: &Path) -> String {
    let load = if zram::exists(root) {
        ""
    } else {
        "Load its module (modprobe zram), or take the `zram` line out: "
    };
    let others = thermo_kernel::swap::read(root).unwrap_or_default();
    let named: Vec<String> = others
        .iter()
        .map(|swap| {
            format!(
                "{} ({} free)",
                swap.path.display(),
                swap.size.saturating_sub(swap.used)
            )
        })
        .collect();
    if named.is_empty() {
        let make = "fallocate -l 4G /swapfile && chmod 600 /swapfile && mkswap /swapfile && swapon /swapfile";
        return format!(
            "{load}without it the experiment runs on other swap, of which there is none; make some: {make}"
        );
    }
    format!(
        "{load}without it the experiment runs on the other swap there is: {}",
        named.join(", ")
    )
}

fn share(stat: MmStat, swapped: u64) -> u64 {
    // The kernel's numbers are not of one moment: a share is at most all.
    let (all, part) = (stat.orig_data.0.max(1), swapped.min(stat.orig_data.0));
    let held = u128::from(stat.mem_used.0) * u128::from(part) / u128::from(all);
    u64::try_from(held).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn without_zram_other_swap_is_named() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let told = instead(root.path());
        assert!(
            told.contains("modprobe zram") && told.contains("swapon /swapfile"),
            "{told}"
        );
        let swaps = "Filename Type Size Used Priority\n/dev/vdb partition 2048 1024 -2\n";
        std::fs::write(root.path().join("proc/swaps"), swaps).unwrap();
        assert!(
            instead(root.path()).ends_with("the other swap there is: /dev/vdb (1.00 MiB free)"),
            "{}",
            instead(root.path())
        );
    }

    #[test]
    fn what_zram_takes_is_shared_by_what_each_has_in_it() {
        let stat = MmStat {
            orig_data: Bytes(1000),
            mem_used: Bytes(400),
        };
        assert_eq!(
            (share(stat, 500), share(stat, 0), share(stat, 5000)),
            (200, 0, 400)
        );
        assert_eq!(share(MmStat::default(), 7), 0);
    }
}
