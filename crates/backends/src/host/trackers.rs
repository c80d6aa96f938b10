//! Which trackers work here.

use thermo_kernel::capabilities::Capability;
use thermo_kernel::damon::DamonFacts;

use super::facts::HostFacts;
use super::pte::{PteOpened, pte};
use super::report::{TrackerReport, lacking, report};
use crate::offload::DamonUser;

/// All trackers, best first. Only an attempt proves that page tables can be opened; the facts explain a
/// failure.
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

/// The tracker to use if the user names none: the best available.
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
        let busy = facts.damon_user.obstacle();
        let busy = busy.map_or_else(String::new, |why| format!("; also, {why}"));
        return Err(format!(
            "this kernel's DAMON monitors physical memory only (no CONFIG_DAMON_VADDR): use pte{busy}"
        ));
    }
    if let Some(obstacle) = facts.damon_user.obstacle() {
        return Err(format!("DAMON is busy: {obstacle}"));
    }
    let mut works =
        "in-kernel DAMON monitors and applies schemes at fixed intervals: no CPU budget, and regions instead of \
                     pages"
            .to_owned();
    if facts.damon_vaddr.is_none() {
        works.push_str(". Whether it can monitor address spaces is known only when it starts");
    }
    if let DamonUser::KilledThermo { by, kdamond } = facts.damon_user {
        let runs = kdamond.map_or_else(
            || "is still set up".to_owned(),
            |pid| format!("still runs as pid {pid}"),
        );
        works.push_str(&format!(
            ". Left behind: kdamond.0 of thermo {by}, which was killed, {runs}. The next --tracker kdamond removes it, \
             as does writing off to its state and then 0 to nr_kdamonds"
        ));
    }
    Ok(works)
}

fn idle(facts: &HostFacts) -> TrackerReport {
    let works = "the kernel's idle-page bitmap, one bit per physical page: covers shared memory; costs more per page than pte";
    report(
        "idle",
        if !facts.idle_bitmap {
            Err(
                "this kernel has no idle-page bitmap (CONFIG_IDLE_PAGE_TRACKING): use pte or smaps"
                    .to_owned(),
            )
        } else if let Some(lack) = lacking(facts.capabilities, &[Capability::SysAdmin]) {
            Err(format!("{lack} to read the frame numbers of pages: run as root"))
        } else {
            Ok(works.to_owned())
        },
    )
}

fn smaps(facts: &HostFacts) -> TrackerReport {
    let for_all_processes = [Capability::SysPtrace, Capability::DacOverride];
    let works = if facts.capabilities.missing(&for_all_processes).is_empty() {
        "clear_refs and Referenced per mapping, for all processes; coarse, and walks the whole address space"
    } else {
        "clear_refs and Referenced per mapping, for processes of the same user; coarse, and walks the whole address \
         space. Root can use it for all processes, and can use pte"
    };
    let missing = "this kernel has no /proc/PID/clear_refs: use one built with CONFIG_PROC_PAGE_MONITOR";
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
    let instead = "--system monitors all processes, each in its own address space";
    report(
        "paddr",
        if !facts.idle_bitmap {
            let damon = if facts.damon.as_ref().is_some_and(has_paddr) {
                "; its DAMON supports paddr, but thermo does not use it for physical memory"
            } else {
                ""
            };
            Err(format!(
                "this kernel has no idle-page bitmap (CONFIG_IDLE_PAGE_TRACKING){damon}: {instead}"
            ))
        } else if let Some(lack) = lacking(facts.capabilities, &[Capability::SysAdmin]) {
            Err(format!("{lack} to read /proc/iomem and frame flags: run as root"))
        } else {
            Ok("physical memory by the kernel's idle-page bitmap, with --system; monitoring only".to_owned())
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
    const OPENED: Result<PteOpened, String> = Ok(PteOpened {
        young_support: Ok(()),
    });

    fn why(facts: &HostFacts, name: &str) -> String {
        let failed = Err("libbpf failed".to_owned());
        trackers(facts, &failed)
            .into_iter()
            .find(|report| report.name == name)
            .unwrap()
            .reason
    }

    #[test]
    fn default_is_best_available_tracker() {
        let reports = trackers(&host(), &OPENED);
        assert_eq!(default_tracker(&reports), Some("pte"));
        let reports = trackers(&host(), &Err("no".to_owned()));
        assert_eq!(default_tracker(&reports), Some("smaps"));
        let reports = trackers(&HostFacts::default(), &Err("no".to_owned()));
        assert_eq!(default_tracker(&reports), None);
    }

    #[test]
    fn pte_reason_names_obstacle_and_remedy() {
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
            "libbpf failed",
            "an unknown error is passed on"
        );
    }

    /// A host whose kernel has DAMON, used by `user`.
    fn with_damon(user: DamonUser, vaddr: Option<bool>) -> HostFacts {
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
            damon_user: user,
            ..host()
        }
    }

    #[test]
    fn kdamond_of_another_program_is_reported() {
        let other = DamonUser::Other {
            nr_kdamonds: 1,
            running: Some((0, Some(77))),
        };
        for vaddr in [Some(true), Some(false), None] {
            let facts = with_damon(other.clone(), vaddr);
            let reason = why(&facts, "kdamond");
            assert!(
                reason.contains("kdamond.0 (pid 77) of another program is running"),
                "{reason}"
            );
            assert!(!is_available(&facts, "kdamond"));
            assert!(why(&facts, "paddr").contains("DAMON supports paddr"));
        }
    }

    fn is_available(facts: &HostFacts, name: &str) -> bool {
        let reports = trackers(facts, &Err("no".to_owned()));
        reports
            .iter()
            .any(|report| report.name == name && report.available)
    }

    #[test]
    fn kdamond_is_available_if_free_with_vaddr() {
        assert!(is_available(&with_damon(DamonUser::None, Some(true)), "kdamond"));
        assert!(!is_available(
            &with_damon(DamonUser::None, Some(false)),
            "kdamond"
        ));
        assert!(!is_available(&host(), "kdamond"));
        let left = DamonUser::KilledThermo {
            by: 5,
            kdamond: Some(77),
        };
        let reason = why(&with_damon(left, Some(true)), "kdamond");
        assert!(
            reason.contains("of thermo 5, which was killed, still runs as pid 77"),
            "{reason}"
        );
    }

    #[test]
    fn pte_reason_names_other_users_of_bits() {
        let facts = HostFacts {
            mglru: true,
            ..with_damon(DamonUser::None, Some(false))
        };
        let blind: Result<PteOpened, String> = Ok(PteOpened {
            young_support: Err("no such flag".to_owned()),
        });
        for (opened, words) in [
            (&OPENED, "the bits it cleared are read from the folio"),
            (&blind, "are unknown, not idle"),
        ] {
            let reason = &trackers(&facts, opened)[0].reason;
            assert!(
                reason.contains("kdamond.0 (pid 77) of in-kernel DAMON also clears")
                    && reason.contains(words)
                    && reason.contains("MGLRU"),
                "{reason}"
            );
        }
        assert!(
            trackers(&facts, &blind)[0]
                .reason
                .contains("cleared: no such flag")
        );
        assert!(
            !trackers(&host(), &OPENED)[0].reason.contains(';'),
            "no other users are reported"
        );
    }

    #[test]
    fn idle_and_paddr_need_bitmap_and_root() {
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
    fn kdamond_is_preferred_to_smaps() {
        let reports = trackers(&with_damon(DamonUser::None, Some(true)), &Err("no".to_owned()));
        assert_eq!(default_tracker(&reports), Some("kdamond"));
    }
}
