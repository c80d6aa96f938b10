//! Which actions work here.

use thermo_engine::Action;
use thermo_kernel::capabilities::Capability;
use thermo_kernel::process_madvise::Advice;
use thermo_kernel::refusal::Call;

use super::facts::HostFacts;
use super::report::lacking;

/// Whether an action is available, how it is done, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionReport {
    /// The action.
    pub action: Action,
    /// True if it can be done to other processes here and now.
    pub available: bool,
    /// The system call or mechanism; empty if not available.
    pub via: &'static str,
    /// How it works, or what is missing and how to change that.
    pub reason: String,
}

type Answer = Result<(&'static str, String), String>;

/// All actions, in the order they are listed to users.
#[must_use]
pub fn actions(facts: &HostFacts) -> Vec<ActionReport> {
    Action::ALL
        .into_iter()
        .map(|action| report(facts, action))
        .collect()
}

fn report(facts: &HostFacts, action: Action) -> ActionReport {
    match answer(facts, action) {
        Ok((via, reason)) => ActionReport {
            action,
            available: true,
            via,
            reason,
        },
        Err(reason) => ActionReport {
            action,
            available: false,
            via: "",
            reason,
        },
    }
}

fn answer(facts: &HostFacts, action: Action) -> Answer {
    match action {
        Action::Stat => Ok(("counting", "nothing is changed".to_owned())),
        Action::Willneed => advice(
            facts,
            (5, 12),
            Advice::WillNeed,
            "process_madvise(MADV_WILLNEED)",
            "reads pages in from swap or file",
        ),
        Action::Cold => advice(
            facts,
            (5, 12),
            Advice::Cold,
            "process_madvise(MADV_COLD)",
            "pages are the first to be reclaimed",
        ),
        Action::LruDeprio => advice(
            facts,
            (5, 12),
            Advice::Cold,
            "process_madvise(MADV_COLD)",
            "moves pages to the inactive list",
        ),
        Action::Pageout => pageout(facts),
        Action::Collapse => collapse(facts, "collapses at once, in any THP mode"),
        Action::Hugepage => collapse(facts, hugepage_flag(facts)),
        Action::LruPrio => lru_prio(facts),
        Action::Nohugepage => nohugepage(facts),
        Action::MigrateHot | Action::MigrateCold => migrate(facts),
    }
}

fn advice(facts: &HostFacts, since: (u32, u32), advice: Advice, via: &'static str, known: &str) -> Answer {
    if !facts.uname.at_least(since.0, since.1) {
        let release = &facts.uname.release;
        return Err(format!(
            "the kernel is {release}; {via} on other processes needs {}.{}",
            since.0, since.1
        ));
    }
    let needed = [Capability::SysNice, Capability::SysPtrace];
    match facts.obstacle(Call::Madvise(advice), &needed) {
        Some(obstacle) => Err(obstacle),
        None => Ok((via, in_reach(facts, &[], known))),
    }
}

/// The text `known`, and which processes the action reaches if `needed` or the right to read any pagemap is
/// missing.
fn in_reach(facts: &HostFacts, needed: &[Capability], known: &str) -> String {
    let needed = [needed, &[Capability::DacReadSearch]].concat();
    match lacking(facts.capabilities, &needed) {
        Some(lack) => {
            let yama = match facts.capabilities.has(Capability::SysPtrace) {
                true => "",
                false => ", and those only as Yama's ptrace_scope allows",
            };
            format!("{known}; {lack}, so only processes of the same user{yama}")
        }
        None => known.to_owned(),
    }
}

fn pageout(facts: &HostFacts) -> Answer {
    let (total, free) = facts.swap();
    let room = if total.0 == 0 {
        let way_out = if facts.zram {
            "zram can be added"
        } else {
            "`modprobe zram`, or make a swap file"
        };
        format!("file pages only: no swap for anonymous memory ({way_out})")
    } else {
        format!("{free} of {total} swap are free")
    };
    let via = "process_madvise(MADV_PAGEOUT)";
    advice(facts, (5, 12), Advice::PageOut, via, &room)
}

fn collapse(facts: &HostFacts, known: &str) -> Answer {
    if facts.thp.is_none() {
        return Err(
            "this kernel has no transparent huge pages: use one built with CONFIG_TRANSPARENT_HUGEPAGE"
                .to_owned(),
        );
    }
    let via = "process_madvise(MADV_COLLAPSE)";
    advice(facts, (6, 1), Advice::Collapse, via, known)
}

fn hugepage_flag(facts: &HostFacts) -> &'static str {
    if can_inject(facts) {
        "collapses; --huge-flags also sets the flag of the mapping, by a call injected into the target"
    } else {
        "collapses; the flag of the mapping cannot be set here"
    }
}

/// Whether madvise calls can be injected into other processes.
fn can_inject(facts: &HostFacts) -> bool {
    cfg!(target_arch = "x86_64") && lacking(facts.capabilities, &[Capability::SysPtrace]).is_none()
}

fn nohugepage(facts: &HostFacts) -> Answer {
    let known = if can_inject(facts) {
        "splits huge pages; the flag of the mapping is set by a call injected into the target (ptrace)"
    } else {
        "splits huge pages; the flag of the mapping cannot be set here (needs x86-64 and CAP_SYS_PTRACE)"
    };
    match collapse(facts, known) {
        Ok(_) => {
            let via = "process_madvise(MADV_COLD) on a part";
            advice(facts, (5, 12), Advice::Cold, via, known)
        }
        missing => missing,
    }
}

// Unlike advice, reading needs no capability for processes of the same user.
fn lru_prio(facts: &HostFacts) -> Answer {
    let known = if facts.mglru {
        "five reads of a page protect it from reclaim once (MGLRU)"
    } else {
        "two reads of a page move it to the active list"
    };
    match facts.obstacle(Call::ReadMemory, &[]) {
        Some(obstacle) => Err(obstacle),
        None => Ok((
            "process_vm_readv",
            in_reach(facts, &[Capability::SysPtrace], known),
        )),
    }
}

fn migrate(facts: &HostFacts) -> Answer {
    let nodes: Vec<String> = facts.memory_nodes.iter().map(u32::to_string).collect();
    match nodes.as_slice() {
        [] | [_] => Err("no destination: this machine has 1 memory node".to_owned()),
        nodes => {
            if let Some(obstacle) = facts.obstacle(Call::MovePages, &[]) {
                return Err(obstacle);
            }
            let known = format!("moves pages between the memory nodes {}", nodes.join(", "));
            // Without the right to see frames, the kernel is asked for the node of each page.
            Ok(("move_pages", in_reach(facts, &[Capability::SysPtrace], &known)))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_kernel::capabilities::Capabilities;
    use thermo_kernel::refusal::Refusal;
    use thermo_kernel::swap::Swap;
    use thermo_kernel::thp::ThpMode;
    use thermo_kernel::uname::Uname;
    use thermo_units::Bytes;

    fn host(release: &str) -> HostFacts {
        let uname = Uname {
            release: release.to_owned(),
            machine: "x86_64".to_owned(),
        };
        HostFacts {
            uname,
            capabilities: Capabilities(u64::MAX),
            thp: Some(ThpMode::Madvise),
            ..HostFacts::default()
        }
    }

    fn of(facts: &HostFacts, action: Action) -> ActionReport {
        actions(facts)
            .into_iter()
            .find(|report| report.action == action)
            .unwrap()
    }

    #[test]
    fn every_action_has_a_reason() {
        for facts in [HostFacts::default(), host("6.18.1"), host("5.4.0")] {
            let reports = actions(&facts);
            assert_eq!(reports.len(), Action::ALL.len());
            for report in reports {
                assert!(!report.reason.is_empty());
                assert_eq!(report.available, !report.via.is_empty(), "{report:?}");
            }
        }
    }

    #[test]
    fn reason_names_kernel_version_and_capabilities() {
        assert!(of(&host("5.10.1"), Action::Collapse).reason.contains("needs 6.1"));
        assert!(of(&host("5.10.1"), Action::Cold).reason.contains("5.10.1"));
        let poor = HostFacts {
            capabilities: Capabilities(0),
            ..host("6.18.1")
        };
        assert!(
            of(&poor, Action::Pageout)
                .reason
                .contains("CAP_SYS_NICE, CAP_SYS_PTRACE")
        );
        assert!(of(&poor, Action::Stat).available);
        let four = [
            Capability::Bpf,
            Capability::Perfmon,
            Capability::SysNice,
            Capability::SysPtrace,
        ];
        let four = HostFacts {
            capabilities: Capabilities(four.iter().fold(0, |set, one| set | 1 << *one as u8)),
            ..host("6.18.1")
        };
        let cold = of(&four, Action::Cold);
        assert!(
            cold.available && cold.reason.contains("CAP_DAC_READ_SEARCH"),
            "{cold:?}"
        );
    }

    #[test]
    fn calls_that_the_kernel_refuses_are_not_available() {
        let refuse = |errno| HostFacts {
            refused: vec![Refusal {
                call: Call::Madvise(Advice::Cold),
                errno,
            }],
            ..host("6.18.1")
        };
        let (eperm, eio, enosys) = (1, 5, 38);
        for (errno, reason) in [
            (eperm, "user namespace"),
            (enosys, "system call filter"),
            (eio, "process_madvise(MADV_COLD): Input/output error"),
        ] {
            let facts = refuse(errno);
            let cold = of(&facts, Action::Cold);
            assert!(!cold.available && cold.reason.contains(reason), "{cold:?}");
            assert!(!of(&facts, Action::LruDeprio).available);
            assert!(of(&facts, Action::Pageout).available);
            assert!(of(&facts, Action::Stat).available);
        }
    }

    #[test]
    fn pageout_reason_shows_free_swap() {
        let facts = host("6.18.1");
        let without = of(&facts, Action::Pageout);
        assert!(
            without.available && without.reason.contains("no swap"),
            "{without:?}"
        );
        let swap = Swap {
            path: "/dev/x".into(),
            size: Bytes::mib(8),
            used: Bytes::mib(2),
        };
        let with = of(
            &HostFacts {
                swaps: vec![swap],
                ..facts
            },
            Action::Pageout,
        );
        assert!(with.reason.contains("are free"), "{with:?}");
    }
    #[test]
    fn migration_needs_two_nodes_with_memory() {
        let refused = of(&host("6.12.1"), Action::MigrateHot);
        assert!(
            !refused.available && refused.reason.contains("1 memory node"),
            "{refused:?}"
        );
        let two = HostFacts {
            memory_nodes: vec![0, 2],
            ..host("6.1.1")
        };
        let report = of(&two, Action::MigrateCold);
        assert!(
            report.available && report.reason.contains("nodes 0, 2"),
            "{report:?}"
        );
    }
}
