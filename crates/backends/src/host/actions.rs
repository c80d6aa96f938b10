//! Which actions work here.

use thermo_engine::Action;
use thermo_kernel::capabilities::Capability;

use super::facts::HostFacts;
use super::report::lacking;

/// Whether an action can be done, how, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionReport {
    /// The action.
    pub action: Action,
    /// True when it can be done to other processes here and now.
    pub available: bool,
    /// What does it, when it is available; empty otherwise.
    pub via: &'static str,
    /// What to know of it, or what is missing and would change that.
    pub reason: String,
}

type Answer = Result<(&'static str, String), String>;

/// Every action, in the order they are listed to users.
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
            "process_madvise(MADV_WILLNEED)",
            "brings it in from swap or file",
        ),
        Action::Cold => advice(
            facts,
            (5, 12),
            "process_madvise(MADV_COLD)",
            "first to be reclaimed under pressure",
        ),
        Action::LruDeprio => advice(
            facts,
            (5, 12),
            "process_madvise(MADV_COLD)",
            "down to the inactive list",
        ),
        Action::Pageout => pageout(facts),
        Action::Collapse => collapse(facts, "collapsed at once, whatever the mode of huge pages"),
        Action::Hugepage => collapse(facts, hugepage_flag(facts)),
        Action::LruPrio => lru_prio(facts),
        Action::Nohugepage => nohugepage(facts),
        Action::MigrateHot | Action::MigrateCold => migrate(facts),
    }
}

fn advice(facts: &HostFacts, since: (u32, u32), via: &'static str, known: &str) -> Answer {
    if !facts.uname.at_least(since.0, since.1) {
        let release = &facts.uname.release;
        return Err(format!(
            "the kernel is {release}; {via} on other processes takes {}.{}",
            since.0, since.1
        ));
    }
    match lacking(facts.capabilities, &[Capability::SysNice, Capability::SysPtrace]) {
        Some(lack) => Err(format!("{lack} to advise other processes' memory: run as root")),
        None => Ok((via, in_reach(facts, &[], known))),
    }
}

/// What to know of an action, and whose memory it reaches where `needed`, or the right to read any process's pagemap, is
/// lacking.
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
        format!("file pages only: there is no swap for anonymous memory ({way_out})")
    } else {
        format!("{free} of {total} swap are free")
    };
    advice(facts, (5, 12), "process_madvise(MADV_PAGEOUT)", &room)
}

fn collapse(facts: &HostFacts, known: &str) -> Answer {
    if facts.thp.is_none() {
        return Err(
            "the kernel has no transparent huge pages: it takes one built with CONFIG_TRANSPARENT_HUGEPAGE"
                .to_owned(),
        );
    }
    advice(facts, (6, 1), "process_madvise(MADV_COLLAPSE)", known)
}

fn hugepage_flag(facts: &HostFacts) -> &'static str {
    if can_inject(facts) {
        "by collapsing; --huge-flags sets the mapping's own flag as well, by a call the target is made to make"
    } else {
        "by collapsing; the mapping's own flag cannot be set here"
    }
}

/// Whether other processes can be made to set their own flags.
fn can_inject(facts: &HostFacts) -> bool {
    cfg!(target_arch = "x86_64") && lacking(facts.capabilities, &[Capability::SysPtrace]).is_none()
}

fn nohugepage(facts: &HostFacts) -> Answer {
    let known = if can_inject(facts) {
        "splits huge pages; the flag is set by a call the target is made to make (ptrace)"
    } else {
        "splits huge pages; the flag cannot be set here (it takes x86-64 and CAP_SYS_PTRACE)"
    };
    match collapse(facts, known) {
        Ok(_) => advice(facts, (5, 12), "process_madvise(MADV_COLD) on a part", known),
        missing => missing,
    }
}

// Unlike advice, reading needs no right of its own for processes of the same user.
fn lru_prio(facts: &HostFacts) -> Answer {
    let known = if facts.mglru {
        "five reads of a page spare it once when it is its turn to go (MGLRU)"
    } else {
        "two reads of a page move it to the active list"
    };
    let reach = in_reach(facts, &[Capability::SysPtrace], known);
    Ok(("process_vm_readv", reach))
}

fn migrate(facts: &HostFacts) -> Answer {
    let nodes = facts.nodes.len();
    if nodes < 2 {
        return Err(format!(
            "there is nowhere to migrate to: this machine has {} memory node",
            nodes.max(1)
        ));
    }
    Err(format!(
        "not built yet; this machine has {nodes} memory nodes. `migratepages` moves whole processes"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_kernel::capabilities::Capabilities;
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
    fn every_action_is_answered_with_a_reason() {
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
    fn old_kernels_and_few_rights_are_named() {
        assert!(of(&host("5.10.1"), Action::Collapse).reason.contains("takes 6.1"));
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
    fn pageout_tells_the_room_there_is() {
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
}
