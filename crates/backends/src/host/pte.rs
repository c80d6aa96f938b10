//! Whether page tables can be read here, and who else takes accessed marks off.

use thermo_kernel::capabilities::Capability;

use super::facts::HostFacts;
use super::report::{TrackerReport, lacking, report};
use crate::interference::what_damon_takes;

/// What `pte` needs.
const PTE_NEEDS: [Capability; 4] = [
    Capability::Bpf,
    Capability::Perfmon,
    Capability::SysNice,
    Capability::SysPtrace,
];

/// What trying to open the page tables gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PteOpened {
    /// Whether marks that in-kernel DAMON and the idle-page bitmap took off are read from folios, or why not.
    pub sees_taken: Result<(), String>,
}

pub(super) fn pte(facts: &HostFacts, opened: &Result<PteOpened, String>) -> TrackerReport {
    let works = "page tables are read by BPF, accessed marks are cleared by MADV_COLD on the pages looked at";
    let marks = |opened: &PteOpened| match &opened.sees_taken {
        Ok(()) => ", and those that in-kernel DAMON or the idle-page bitmap take off are read from folios"
            .to_owned(),
        Err(why) => {
            format!("; those that in-kernel DAMON or the idle-page bitmap take off are not seen: {why}")
        }
    };
    report(
        "pte",
        match opened {
            Ok(opened) => Ok(format!(
                "{works}{}{}",
                marks(opened),
                besides(facts, opened.sees_taken.is_ok())
            )),
            Err(failure) => Err(pte_obstacle(facts).unwrap_or_else(|| failure.clone())),
        },
    )
}

/// Who else takes accessed marks off here, as far as can be seen beforehand. Another thermo, and who writes to clear_refs,
/// matter where they look at the same targets: that shows while monitoring ([`crate::interference`]).
fn besides(facts: &HostFacts, sees_taken: bool) -> String {
    let running = facts
        .damon
        .iter()
        .flat_map(|damon| damon.kdamonds.iter().enumerate());
    let kdamonds = running
        .filter(|(_, kdamond)| kdamond.running)
        .map(|(nth, kdamond)| {
            let pid = kdamond
                .pid
                .map_or_else(String::new, |pid| format!(" (pid {pid})"));
            let what_it_takes = what_damon_takes(sees_taken);
            format!("kdamond.{nth}{pid} of in-kernel DAMON looks, too: {what_it_takes}")
        });
    let ageing = facts.mglru.then(|| {
        "MGLRU ages pages when memory is short: of those it ages meanwhile some look idle".to_owned()
    });
    kdamonds.chain(ageing).map(|who| format!("; {who}")).collect()
}

// The first of the known obstacles, in the order in which a user would have to take them away.
fn pte_obstacle(facts: &HostFacts) -> Option<String> {
    if !facts.btf {
        return Some(
            "the kernel does not describe its types (no /sys/kernel/btf/vmlinux): it takes one built with \
                     CONFIG_DEBUG_INFO_BTF, as distributions' are"
                .to_owned(),
        );
    }
    if facts.confidential {
        return Some(
            "the kernel is locked down (confidentiality), so that BPF may not read its memory: boot without \
                     lockdown=confidentiality"
                .to_owned(),
        );
    }
    if !facts.uname.at_least(5, 12) {
        let release = &facts.uname.release;
        return Some(format!(
            "the kernel is {release}; other processes' pages can be advised since 5.12"
        ));
    }
    lacking(facts.capabilities, &PTE_NEEDS).map(|lack| format!("{lack} to read page tables: run as root"))
}
