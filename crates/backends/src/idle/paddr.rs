//! Physical memory as one target, monitored with the idle-page bitmap (the kernel's `DAMON_OPS_PADDR`).
//!
//! The address of a probe is a physical address. An access by any process counts, so shared memory and mapped
//! page cache are covered. Frames on no LRU list (the kernel's own, free ones) are unknown.
//!
//! Only monitoring is supported: actions need a process and its virtual addresses, which are not known here.

use std::path::{Path, PathBuf};

use thermo_engine::ops::{Applied, CheckResult, Outcome, Probe, Request};
use thermo_engine::scheme::SystemMetric;
use thermo_engine::{Action, Operations, OpsError, TargetId, TargetLayout};
use thermo_kernel::{FileError, iomem};
use thermo_targets::metric;
use thermo_units::{AddrRange, PAGE_SIZE};

use super::folios::IdleFolios;

/// The operations on physical memory.
#[derive(Debug)]
pub struct Paddr {
    root: PathBuf,
    folios: IdleFolios,
    ram: Vec<AddrRange>,
    /// First frame of the folio of each prepared probe; `None` if unknown.
    heads: Vec<Option<u64>>,
}

impl Paddr {
    /// Monitors the memory of the machine at `root` (`/`).
    ///
    /// # Errors
    /// The kernel has no idle-page bitmap, or does not report where memory is.
    pub fn new(root: &Path) -> Result<Self, FileError> {
        Ok(Self {
            root: root.to_owned(),
            folios: IdleFolios::open(root)?,
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
        let refused = self.folios.set_idle(heads.iter().copied().flatten());
        for head in &mut heads {
            *head = head.filter(|head| !refused.contains(head));
        }
        self.heads = heads;
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        let mut idle_bits = self.folios.reader();
        let heads = self.heads.iter().copied().chain(std::iter::repeat(None));
        for (probe, head) in probes.iter_mut().zip(heads) {
            // The frame may belong to another folio by now, or to none: then it is unknown.
            let current = head.filter(|head| self.folios.head_of(probe.addr.0 / PAGE_SIZE) == Some(*head));
            probe.result = match current {
                Some(head) if idle_bits.is_idle(head) => CheckResult::Idle,
                Some(_) => CheckResult::Accessed,
                None => CheckResult::Unknown,
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
                why: "the tracker paddr only monitors: name processes, or use --system with another tracker"
                    .to_owned(),
            });
        }
        let applied = request.ranges.iter().map(|run| Applied {
            passed_filters: run.range.len(),
            applied: run.range.len(),
            ..Applied::default()
        });
        Ok(Outcome {
            results: applied.collect(),
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
    use super::super::tests::{LRU, clear_idle_bit, words};
    use super::*;
    use std::fs;
    use thermo_engine::ops::TargetRange;
    use thermo_units::Addr;

    /// A fake root with eight frames that have these flags.
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
    fn frames_off_lru_are_unknown() {
        let root = machine(&[0, LRU, LRU, 0, LRU, 0, 0, 0]);
        let mut paddr = Paddr::new(root.path()).unwrap();
        let layouts = paddr.update().unwrap();
        assert_eq!(
            (layouts[0].pid, &*layouts[0].ranges),
            (None, &[AddrRange::new(0x1000, 0x8000)][..])
        );
        let mut probes: Vec<Probe> = [1, 2, 3, 4]
            .map(|pfn| Probe {
                target: TargetId(0),
                addr: Addr(pfn * PAGE_SIZE),
                result: CheckResult::Unknown,
            })
            .into();
        paddr.prepare_access_checks(&probes);
        clear_idle_bit(root.path(), 2);
        // The frame was freed meanwhile.
        words(
            &root.path().join("proc/kpageflags"),
            &[0, LRU, LRU, 0, 0, 0, 0, 0],
        );
        paddr.check_accesses(&mut probes);
        let seen: Vec<CheckResult> = probes.iter().map(|probe| probe.result).collect();
        assert_eq!(
            seen,
            [
                CheckResult::Idle,
                CheckResult::Accessed,
                CheckResult::Unknown,
                CheckResult::Unknown
            ]
        );
    }

    #[test]
    fn paddr_refuses_actions() {
        let root = machine(&[LRU; 8]);
        let mut paddr = Paddr::new(root.path()).unwrap();
        let runs = [TargetRange {
            target: TargetId(0),
            range: AddrRange::new(0x1000, 0x3000),
        }];
        let request = |action| Request {
            action,
            ranges: &runs,
            filters: &[],
            destinations: &[],
        };
        let applied = paddr.apply(&request(Action::Stat)).unwrap();
        assert_eq!(applied.results[0].applied.0, 0x2000);
        let refused = paddr.apply(&request(Action::Pageout)).unwrap_err().to_string();
        assert!(refused.contains("only monitors"), "{refused}");
    }
}
