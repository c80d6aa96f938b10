//! The facts about the host.

use std::path::Path;

use thermo_kernel::capabilities::{Capabilities, Capability};
use thermo_kernel::damon::{self, DamonFacts};
use thermo_kernel::node::{self, NodeSet};
use thermo_kernel::refusal::{Call, Refusal};
use thermo_kernel::swap::{self, Swap};
use thermo_kernel::thp::{self, ThpMode};
use thermo_kernel::uname::{self, Uname};
use thermo_kernel::{btf, lockdown, lru_gen, page_idle, trial, zram};
use thermo_units::Bytes;

use super::report::lacking;
use crate::offload::DamonUser;

/// Properties of the kernel, and our capabilities.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// Kernel release and machine.
    pub uname: Uname,
    /// Our effective capabilities.
    pub capabilities: Capabilities,
    /// Calls that act on other processes and that the kernel refuses to us, tried on a child of our own.
    pub refused: Vec<Refusal>,
    /// True if not even root may read kernel memory (`lockdown=confidentiality`).
    pub confidential: bool,
    /// True if the kernel has BTF.
    pub btf: bool,
    /// True if the idle-page bitmap exists.
    pub idle_bitmap: bool,
    /// True if `clear_refs` and `smaps` exist (`CONFIG_PROC_PAGE_MONITOR`).
    pub clear_refs: bool,
    /// The state of in-kernel DAMON; `None` if it does not exist or cannot be read.
    pub damon: Option<DamonFacts>,
    /// Whether in-kernel DAMON can monitor address spaces; `None` if unknown.
    pub damon_vaddr: Option<bool>,
    /// The current user of in-kernel DAMON.
    pub damon_user: DamonUser,
    /// True if MGLRU is enabled: its ageing clears accessed bits under memory pressure.
    pub mglru: bool,
    /// Active swap areas.
    pub swaps: Vec<Swap>,
    /// True if zram devices can be added.
    pub zram: bool,
    /// The THP mode; `None` without THP.
    pub thp: Option<ThpMode>,
    /// NUMA nodes.
    pub nodes: Vec<u32>,
    /// NUMA nodes with memory.
    pub memory_nodes: Vec<u32>,
}

impl HostFacts {
    /// Reads the kernel's files below `root` (`/` for this machine). A file that cannot be read counts as
    /// missing.
    #[must_use]
    pub fn gather(root: &Path) -> Self {
        let own_pid = std::process::id();
        let damon = damon::read(root).ok().flatten();
        Self {
            uname: uname::read(root),
            capabilities: Capabilities::effective(root, own_pid).unwrap_or_default(),
            // Another machine's files say nothing about the calls of this one.
            refused: match root == Path::new("/") {
                true => trial::refused_calls().to_vec(),
                false => Vec::new(),
            },
            confidential: lockdown::is_confidential(root),
            btf: btf::exists(root),
            idle_bitmap: page_idle::exists(root),
            clear_refs: root.join(format!("proc/{own_pid}/clear_refs")).exists(),
            damon_vaddr: damon.as_ref().and_then(|_| damon::has_vaddr(root)),
            damon_user: damon
                .as_ref()
                .map_or_else(DamonUser::default, |damon| DamonUser::find(root, damon)),
            damon,
            mglru: lru_gen::is_enabled(root),
            swaps: swap::read(root).unwrap_or_default(),
            zram: zram::exists(root),
            thp: thp::read(root).ok().flatten(),
            nodes: node::ids(root),
            memory_nodes: node::members(root, NodeSet::HasMemory).unwrap_or_else(|_| node::ids(root)),
        }
    }

    /// Why `call` fails here, if it does: the capabilities that we lack, or the error of the kernel.
    pub(super) fn obstacle(&self, call: Call, needed: &[Capability]) -> Option<String> {
        if let Some(lack) = lacking(self.capabilities, needed) {
            return Some(format!("{lack} to act on other processes' memory: run as root"));
        }
        let refusal = self.refused.iter().find(|refusal| refusal.call == call)?;
        Some(
            refusal
                .sentence()
                .unwrap_or_else(|| format!("the kernel refused {refusal}")),
        )
    }

    /// Total and free swap.
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
    fn empty_root_has_no_facts() {
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
    fn gather_reads_files_below_root() {
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
