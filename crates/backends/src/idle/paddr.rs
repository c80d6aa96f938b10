//! Physical memory as one target, by the idle-page bitmap (the kernel's `DAMON_OPS_PADDR`).
//!
//! A probe's address is a frame's. Whoever maps the frame, whatever touches it counts: shared memory and page cache
//! that is mapped are told like the rest. Frames on no LRU list (the kernel's own, free ones) are unknown.
//!
//! It only looks: which process an address is of is not known here, and those are what actions go to.

use std::path::{Path, PathBuf};

use thermo_engine::ops::{Applied, Outcome, Probe, Request, Seen};
use thermo_engine::scheme::SystemMetric;
use thermo_engine::{Action, Operations, OpsError, TargetId, TargetLayout};
use thermo_kernel::{FileError, iomem};
use thermo_targets::metric;
use thermo_units::{AddrRange, PAGE_SIZE};

use super::folios::Folios;

/// The operations on physical memory.
#[derive(Debug)]
pub struct Paddr {
    root: PathBuf,
    folios: Folios,
    ram: Vec<AddrRange>,
    /// The folio behind each probe last prepared, by its first frame; none where it cannot be told.
    heads: Vec<Option<u64>>,
}

impl Paddr {
    /// Watches the memory of the machine at `root` (`/`).
    ///
    /// # Errors
    /// The kernel has no idle-page bitmap, or does not say where memory is.
    pub fn new(root: &Path) -> Result<Self, FileError> {
        Ok(Self {
            root: root.to_owned(),
            folios: Folios::open(root)?,
            ram: iomem::system_ram(root)?,
            heads: Vec::new(),
        })
    }
}

impl Operations for Paddr {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        Ok(vec![TargetLayout::new(TargetId(0), None, self.ram.clone())])
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        let heads = probes
            .iter()
            .map(|probe| self.folios.head_of(probe.addr.0 / PAGE_SIZE));
        let mut heads: Vec<Option<u64>> = heads.collect();
        let refused = self.folios.mark(heads.iter().copied().flatten());
        for head in &mut heads {
            *head = head.filter(|head| !refused.contains(head));
        }
        self.heads = heads;
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        let mut look = self.folios.look();
        let heads = self.heads.iter().copied().chain(std::iter::repeat(None));
        for (probe, head) in probes.iter_mut().zip(heads) {
            // A frame that is of another folio by now, or of none, was not looked at.
            let still = head.filter(|head| self.folios.head_of(probe.addr.0 / PAGE_SIZE) == Some(*head));
            probe.seen = match still {
                Some(head) if look.is_idle(head) => Seen::Idle,
                Some(_) => Seen::Accessed,
                None => Seen::Unknown,
            };
        }
    }

    fn any_target_left(&mut self) -> bool {
        true
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        if request.action != Action::Stat {
            return Err(OpsError::Unsupported {
                what: request.action.to_string(),
                why:
                    "physical memory is only looked at: name processes, or use --system with another tracker"
                        .to_owned(),
            });
        }
        let counted = request.runs.iter().map(|run| Applied {
            passed_filters: run.range.len(),
            applied: run.range.len(),
            ..Applied::default()
        });
        Ok(Outcome {
            runs: counted.collect(),
            ..Outcome::default()
        })
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        metric::read(&self.root, metric)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::super::tests::{LRU, touched, words};
    use super::*;
    use std::fs;
    use thermo_engine::ops::TargetRange;
    use thermo_units::Addr;

    /// A machine with eight frames of these flags.
    fn machine(flags: &[u64]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        words(&proc.join("kpageflags"), flags);
        words(&proc.join("kpagecount"), flags);
        words(&root.path().join("sys/kernel/mm/page_idle/bitmap"), &[0]);
        let text = "00000000-00000fff : Reserved\n00001000-00007fff : System RAM\n  00002000-00002fff : Kernel code\n";
        fs::write(proc.join("iomem"), text).unwrap();
        root
    }

    #[test]
    fn frames_are_told_by_whoever_touches_them_and_those_on_no_list_are_unknown() {
        let root = machine(&[0, LRU, LRU, 0, LRU, 0, 0, 0]);
        let mut paddr = Paddr::new(root.path()).unwrap();
        let layouts = paddr.update().unwrap();
        assert_eq!(
            (layouts[0].pid, layouts[0].ranges.as_slice()),
            (None, &[AddrRange::new(0x1000, 0x8000)][..])
        );
        let mut probes: Vec<Probe> = [1, 2, 3, 4]
            .map(|pfn| Probe {
                target: TargetId(0),
                addr: Addr(pfn * PAGE_SIZE),
                seen: Seen::Unknown,
            })
            .into();
        paddr.prepare_access_checks(&probes);
        touched(root.path(), 2);
        // Freed meanwhile.
        words(
            &root.path().join("proc/kpageflags"),
            &[0, LRU, LRU, 0, 0, 0, 0, 0],
        );
        paddr.check_accesses(&mut probes);
        let seen: Vec<Seen> = probes.iter().map(|probe| probe.seen).collect();
        assert_eq!(seen, [Seen::Idle, Seen::Accessed, Seen::Unknown, Seen::Unknown]);
    }

    #[test]
    fn it_only_looks() {
        let root = machine(&[LRU; 8]);
        let mut paddr = Paddr::new(root.path()).unwrap();
        let runs = [TargetRange {
            target: TargetId(0),
            range: AddrRange::new(0x1000, 0x3000),
        }];
        let request = |action| Request {
            action,
            runs: &runs,
            filters: &[],
        };
        let counted = paddr.apply(&request(Action::Stat)).unwrap();
        assert_eq!(counted.runs[0].applied.0, 0x2000);
        let refused = paddr.apply(&request(Action::Pageout)).unwrap_err().to_string();
        assert!(refused.contains("only looked at"), "{refused}");
    }
}
