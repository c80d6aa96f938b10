//! Everything the rules go by.

use std::path::Path;

use thermo_kernel::capabilities::Capabilities;
use thermo_kernel::damon::{self, DamonFacts};
use thermo_kernel::swap::{self, Swap};
use thermo_kernel::thp::{self, ThpMode};
use thermo_kernel::uname::{self, Uname};
use thermo_kernel::{btf, lockdown, lru_gen, node, page_idle, zram};
use thermo_units::Bytes;

use crate::offload::Holder;

/// What the kernel says of itself and of our rights.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// The kernel and the machine.
    pub uname: Uname,
    /// What we may do.
    pub capabilities: Capabilities,
    /// Not even root may read the kernel's memory (`lockdown=confidentiality`).
    pub confidential: bool,
    /// The kernel describes its types.
    pub btf: bool,
    /// The idle-page bitmap is there.
    pub idle_bitmap: bool,
    /// `clear_refs` and `smaps` are there (`CONFIG_PROC_PAGE_MONITOR`).
    pub clear_refs: bool,
    /// In-kernel DAMON's tree, where there is one we can read.
    pub damon: Option<DamonFacts>,
    /// Whether that can watch address spaces; `None` when it cannot be told, or there is none.
    pub damon_vaddr: Option<bool>,
    /// Who has it.
    pub damon_holder: Holder,
    /// The multi-generational LRU is on: its ageing takes accessed marks off when memory is short.
    pub mglru: bool,
    /// Swap spaces in use.
    pub swaps: Vec<Swap>,
    /// Devices of compressed memory can be added.
    pub zram: bool,
    /// When huge pages are used; `None` without them.
    pub thp: Option<ThpMode>,
    /// Memory nodes.
    pub nodes: Vec<u32>,
}

impl HostFacts {
    /// Asks the kernel whose `proc` and `sys` lie below `root` (`/` for this machine). What cannot be read counts as not
    /// there.
    #[must_use]
    pub fn gather(root: &Path) -> Self {
        let ourselves = std::process::id();
        let damon = damon::read(root).ok().flatten();
        Self {
            uname: uname::read(root),
            capabilities: Capabilities::effective(root, ourselves).unwrap_or_default(),
            confidential: lockdown::is_confidential(root),
            btf: btf::exists(root),
            idle_bitmap: page_idle::exists(root),
            clear_refs: root.join(format!("proc/{ourselves}/clear_refs")).exists(),
            damon_vaddr: damon.as_ref().and_then(|_| damon::has_vaddr(root)),
            damon_holder: damon
                .as_ref()
                .map_or_else(Holder::default, |damon| Holder::find(root, damon)),
            damon,
            mglru: lru_gen::is_on(root),
            swaps: swap::read(root).unwrap_or_default(),
            zram: zram::exists(root),
            thp: thp::read(root).ok().flatten(),
            nodes: node::all(root),
        }
    }

    /// All swap there is, and how much of it is free.
    #[must_use]
    pub fn swap(&self) -> (Bytes, Bytes) {
        let total: Bytes = self.swaps.iter().map(|swap| swap.size).sum();
        let used: Bytes = self.swaps.iter().map(|swap| swap.used).sum();
        (total, total.saturating_sub(used))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    #[test]
    fn an_empty_machine_has_nothing() {
        let root = tempfile::tempdir().unwrap();
        let facts = HostFacts::gather(root.path());
        assert_eq!(
            facts,
            HostFacts {
                uname: facts.uname.clone(),
                ..HostFacts::default()
            }
        );
    }

    #[test]
    fn what_is_there_is_found() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            (
                "proc/swaps",
                "Filename Type Size Used Priority\n/dev/x partition 100 40 -1\n",
            ),
            ("sys/kernel/btf/vmlinux", ""),
            ("sys/kernel/mm/page_idle/bitmap", ""),
            ("sys/kernel/mm/lru_gen/enabled", "0x0007\n"),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "[always] madvise never\n",
            ),
            ("sys/devices/system/node/node0/meminfo", ""),
        ];
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let facts = HostFacts::gather(root.path());
        assert_eq!(facts.uname.version(), (6, 1));
        assert_eq!(facts.swap(), (Bytes::kib(100), Bytes::kib(60)));
        assert!(facts.btf && facts.idle_bitmap && facts.mglru);
        assert_eq!((facts.thp, facts.nodes), (Some(ThpMode::Always), vec![0]));
    }
}
