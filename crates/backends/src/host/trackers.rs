//! Which trackers work here.

use thermo_kernel::capabilities::Capability;
use thermo_kernel::damon::DamonFacts;

use super::facts::HostFacts;
use super::pte::{PteOpened, pte};
use super::report::{TrackerReport, lacking, report};
use crate::offload::Holder;

/// Every tracker, the best first. The facts explain why page tables could not be opened, only the attempt proves that they
/// can.
#[must_use]
pub fn trackers(facts: &HostFacts, pte_opened: &Result<PteOpened, String>) -> Vec<TrackerReport> {
    vec![
        pte(facts, pte_opened),
        kdamond(facts),
        idle(facts),
        smaps(facts),
        paddr(facts),
    ]
}

/// The tracker to use when the user names none: the best that is available.
#[must_use]
pub fn default_tracker(reports: &[TrackerReport]) -> Option<&'static str> {
    reports
        .iter()
        .find(|report| report.available)
        .map(|report| report.name)
}

fn kdamond(facts: &HostFacts) -> TrackerReport {
    report(
        "kdamond",
        match &facts.damon {
            None if facts.capabilities.has(Capability::SysAdmin) => {
                Err("this kernel has no DAMON (CONFIG_DAMON_SYSFS): use pte or smaps".to_owned())
            }
            None => Err(
                "this kernel has no DAMON (CONFIG_DAMON_SYSFS), or only root may use it: run as root"
                    .to_owned(),
            ),
            Some(_) => in_kernel(facts),
        },
    )
}

fn in_kernel(facts: &HostFacts) -> Result<String, String> {
    if facts.damon_vaddr == Some(false) {
        let busy = facts.damon_holder.obstacle();
        let busy = busy.map_or_else(String::new, |why| format!("; besides, {why}"));
        return Err(format!(
            "this kernel's DAMON watches physical memory only (no CONFIG_DAMON_VADDR): use pte{busy}"
        ));
    }
    if let Some(obstacle) = facts.damon_holder.obstacle() {
        return Err(format!("DAMON is busy: {obstacle}"));
    }
    let mut works =
        "the kernel's own DAMON looks and acts, at fixed intervals: it keeps no CPU budget, and tells of \
                     regions but not of pages"
            .to_owned();
    if facts.damon_vaddr.is_none() {
        works.push_str(". Whether it watches address spaces shows when it begins");
    }
    if let Holder::Left { by, kdamond } = facts.damon_holder {
        let runs = kdamond.map_or_else(
            || "is set up still".to_owned(),
            |pid| format!("runs still as pid {pid}"),
        );
        works.push_str(&format!(
            ". Left behind: kdamond.0 of thermo {by}, which was killed, {runs}; the next --tracker kdamond ends it, \
             as does writing off to its state and 0 to nr_kdamonds"
        ));
    }
    Ok(works)
}

fn idle(facts: &HostFacts) -> TrackerReport {
    let works = "the kernel's idle-page bitmap, per physical page: tells of shared memory, too; dearer a page than pte";
    report(
        "idle",
        if !facts.idle_bitmap {
            Err(
                "this kernel has no idle-page bitmap (CONFIG_IDLE_PAGE_TRACKING): use pte or smaps"
                    .to_owned(),
            )
        } else if let Some(lack) = lacking(facts.capabilities, &[Capability::SysAdmin]) {
            Err(format!(
                "{lack} to see which frames are behind addresses: run as root"
            ))
        } else {
            Ok(works.to_owned())
        },
    )
}

fn smaps(facts: &HostFacts) -> TrackerReport {
    let of_everybody = [Capability::SysPtrace, Capability::DacOverride];
    let works = if facts.capabilities.missing(&of_everybody).is_empty() {
        "clear_refs and Referenced per mapping, of every process; coarse, and walks the whole address space"
    } else {
        "clear_refs and Referenced per mapping, of processes of the same user; coarse, and walks the whole address \
         space. Root would add the others, and pte"
    };
    let missing = "the kernel has no /proc/PID/clear_refs: it takes one built with CONFIG_PROC_PAGE_MONITOR";
    report(
        "smaps",
        if facts.clear_refs {
            Ok(works.to_owned())
        } else {
            Err(missing.to_owned())
        },
    )
}

fn paddr(facts: &HostFacts) -> TrackerReport {
    let has_paddr = |damon: &DamonFacts| {
        damon
            .kdamonds
            .iter()
            .any(|kdamond| kdamond.avail_operations.iter().any(|one| one == "paddr"))
    };
    let instead = "with --system all processes are watched, each in its own address space";
    report(
        "paddr",
        if !facts.idle_bitmap {
            let damon = if facts.damon.as_ref().is_some_and(has_paddr) {
                "; its DAMON could tell (paddr), but that is not handed physical memory"
            } else {
                ""
            };
            Err(format!(
                "this kernel has no idle-page bitmap (CONFIG_IDLE_PAGE_TRACKING){damon}: {instead}"
            ))
        } else if let Some(lack) = lacking(facts.capabilities, &[Capability::SysAdmin]) {
            Err(format!("{lack} to see where memory is: run as root"))
        } else {
            Ok("physical memory by the kernel's idle-page bitmap, with --system; it only looks".to_owned())
        },
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_kernel::capabilities::Capabilities;
    use thermo_kernel::damon::Kdamond;
    use thermo_kernel::uname::Uname;

    fn host() -> HostFacts {
        let uname = Uname {
            release: "6.18.1".to_owned(),
            machine: "x86_64".to_owned(),
        };
        HostFacts {
            uname,
            capabilities: Capabilities(u64::MAX),
            btf: true,
            clear_refs: true,
            ..HostFacts::default()
        }
    }

    /// Page tables could be opened.
    const OPENED: Result<PteOpened, String> = Ok(PteOpened { sees_taken: Ok(()) });

    fn why(facts: &HostFacts, name: &str) -> String {
        let failed = Err("libbpf said no".to_owned());
        trackers(facts, &failed)
            .into_iter()
            .find(|report| report.name == name)
            .unwrap()
            .reason
    }

    #[test]
    fn the_best_that_works_is_the_default() {
        let reports = trackers(&host(), &OPENED);
        assert_eq!(default_tracker(&reports), Some("pte"));
        let reports = trackers(&host(), &Err("no".to_owned()));
        assert_eq!(default_tracker(&reports), Some("smaps"));
        let reports = trackers(&HostFacts::default(), &Err("no".to_owned()));
        assert_eq!(default_tracker(&reports), None);
    }

    #[test]
    fn each_obstacle_of_pte_is_named_with_what_would_change_it() {
        assert!(why(&HostFacts { btf: false, ..host() }, "pte").contains("CONFIG_DEBUG_INFO_BTF"));
        let locked = HostFacts {
            confidential: true,
            ..host()
        };
        assert!(why(&locked, "pte").contains("lockdown=confidentiality"));
        let poor = HostFacts {
            capabilities: Capabilities(1 << 23),
            ..host()
        };
        assert_eq!(
            why(&poor, "pte"),
            "we lack CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE to read page tables: run as root"
        );
        assert_eq!(
            why(&host(), "pte"),
            "libbpf said no",
            "what we cannot explain is passed on"
        );
    }

    /// A machine whose kernel has DAMON, held by `holder`.
    fn with_damon(holder: Holder, vaddr: Option<bool>) -> HostFacts {
        let kdamond = Kdamond {
            running: true,
            pid: Some(77),
            avail_operations: vec!["paddr".to_owned()],
        };
        HostFacts {
            damon: Some(DamonFacts {
                kdamonds: vec![kdamond],
            }),
            damon_vaddr: vaddr,
            damon_holder: holder,
            ..host()
        }
    }

    #[test]
    fn a_foreign_kdamond_is_told_of() {
        let others = Holder::Others {
            nr_kdamonds: 1,
            running: Some((0, Some(77))),
        };
        for vaddr in [Some(true), Some(false), None] {
            let facts = with_damon(others.clone(), vaddr);
            let reason = why(&facts, "kdamond");
            assert!(
                reason.contains("kdamond.0 (pid 77) runs and is not ours"),
                "{reason}"
            );
            assert!(!is_available(&facts, "kdamond"));
            assert!(why(&facts, "paddr").contains("DAMON could tell (paddr)"));
        }
    }

    fn is_available(facts: &HostFacts, name: &str) -> bool {
        let reports = trackers(facts, &Err("no".to_owned()));
        reports
            .iter()
            .any(|report| report.name == name && report.available)
    }

    #[test]
    fn a_free_damon_can_be_used_where_it_watches_address_spaces() {
        assert!(is_available(&with_damon(Holder::Nobody, Some(true)), "kdamond"));
        assert!(!is_available(&with_damon(Holder::Nobody, Some(false)), "kdamond"));
        assert!(!is_available(&host(), "kdamond"));
        let left = Holder::Left {
            by: 5,
            kdamond: Some(77),
        };
        let reason = why(&with_damon(left, Some(true)), "kdamond");
        assert!(
            reason.contains("of thermo 5, which was killed, runs still as pid 77"),
            "{reason}"
        );
    }

    #[test]
    fn who_looks_beside_us_is_told() {
        let facts = HostFacts {
            mglru: true,
            ..with_damon(Holder::Nobody, Some(false))
        };
        let blind: Result<PteOpened, String> = Ok(PteOpened {
            sees_taken: Err("no such mark".to_owned()),
        });
        for (opened, words) in [
            (&OPENED, "where it notes them"),
            (&blind, "unknown to us, not idle"),
        ] {
            let reason = &trackers(&facts, opened)[0].reason;
            assert!(
                reason.contains("kdamond.0 (pid 77) of in-kernel DAMON looks")
                    && reason.contains(words)
                    && reason.contains("MGLRU"),
                "{reason}"
            );
        }
        assert!(
            trackers(&facts, &blind)[0]
                .reason
                .contains("not seen: no such mark")
        );
        assert!(
            !trackers(&host(), &OPENED)[0].reason.contains(';'),
            "nobody is made up"
        );
    }

    #[test]
    fn the_idle_bitmap_takes_a_kernel_that_has_it_and_root() {
        let has = HostFacts {
            idle_bitmap: true,
            ..host()
        };
        for name in ["idle", "paddr"] {
            assert!(is_available(&has, name) && !is_available(&host(), name), "{name}");
        }
        let poor = HostFacts {
            capabilities: Capabilities(0),
            ..has
        };
        assert!(why(&poor, "idle").contains("CAP_SYS_ADMIN"));
    }

    #[test]
    fn where_page_tables_cannot_be_read_the_kernel_is_asked_before_mappings_are() {
        let reports = trackers(&with_damon(Holder::Nobody, Some(true)), &Err("no".to_owned()));
        assert_eq!(default_tracker(&reports), Some("kdamond"));
    }
}
