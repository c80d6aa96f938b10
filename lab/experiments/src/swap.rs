//! The zram swap of an experiment, removed at its end.

use std::path::Path;

use thermo_kernel::zram::{self, MmStat, ZramSwap};
use thermo_units::Bytes;

use crate::Error;

/// zram swap with a higher priority than all other swap. Dropping it switches it off and removes it.
#[derive(Debug)]
pub(crate) struct Swap(ZramSwap);

impl Swap {
    pub(crate) fn create(size: Bytes) -> Result<Self, Error> {
        ZramSwap::create(Path::new("/"), size)
            .map(Self)
            .map_err(|error| Error::Swap {
                size,
                reason: error.to_string(),
                advice: advice(Path::new("/")),
            })
    }

    /// The memory that zram uses; zero if the device is gone.
    pub(crate) fn memory(&self) -> Bytes {
        self.0.mm_stat().map_or(Bytes::ZERO, |stat| stat.mem_used)
    }

    /// The memory that zram uses for `swapped` bytes of one cgroup, in bytes.
    ///
    /// Other processes may use the same swap, so zram's total memory is divided in proportion to the swapped
    /// bytes. The total includes allocator overhead and pages stored as a fill pattern.
    pub(crate) fn zram_bytes_for(&self, swapped: u64) -> u64 {
        self.0.mm_stat().map_or(0, |stat| share(stat, swapped))
    }
}

/// What to do when zram swap cannot be created.
fn advice(root: &Path) -> String {
    let load = if zram::exists(root) {
        ""
    } else {
        "Load its module (modprobe zram), or remove the `zram` line: "
    };
    let others = thermo_kernel::swap::read(root).unwrap_or_default();
    let names: Vec<String> = others
        .iter()
        .map(|swap| format!("{} ({} free)", swap.path.display(), swap.free()))
        .collect();
    if names.is_empty() {
        let commands =
            "fallocate -l 4G /swapfile && chmod 600 /swapfile && mkswap /swapfile && swapon /swapfile";
        return format!(
            "{load}without zram the experiment needs other swap, and there is none. Create some: {commands}"
        );
    }
    format!(
        "{load}without zram the experiment uses the other swap: {}",
        names.join(", ")
    )
}

fn share(stat: MmStat, swapped: u64) -> u64 {
    // The numbers are read at different times, so the share is limited to the total.
    let (all, part) = (stat.orig_data.0.max(1), swapped.min(stat.orig_data.0));
    let used = u128::from(stat.mem_used.0) * u128::from(part) / u128::from(all);
    u64::try_from(used).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn advice_names_other_swap() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let message = advice(root.path());
        assert!(
            message.contains("modprobe zram") && message.contains("swapon /swapfile"),
            "{message}"
        );
        let swaps = "Filename Type Size Used Priority\n/dev/vdb partition 2048 1024 -2\n";
        std::fs::write(root.path().join("proc/swaps"), swaps).unwrap();
        assert!(
            advice(root.path()).ends_with("uses the other swap: /dev/vdb (1.00 MiB free)"),
            "{}",
            advice(root.path())
        );
    }

    #[test]
    fn zram_memory_is_shared_by_swapped_bytes() {
        let stat = MmStat {
            orig_data: Bytes(1000),
            mem_used: Bytes(400),
            ..MmStat::default()
        };
        assert_eq!(
            (share(stat, 500), share(stat, 0), share(stat, 5000)),
            (200, 0, 400)
        );
        assert_eq!(share(MmStat::default(), 7), 0);
    }
}
