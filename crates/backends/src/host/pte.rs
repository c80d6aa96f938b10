//! Whether tracker `pte` works here, and which other programs clear accessed bits.

use thermo_kernel::capabilities::Capability;
use thermo_kernel::process_madvise::Advice;
use thermo_kernel::refusal::Call;

use super::facts::HostFacts;
use super::report::{TrackerReport, lacking, report};
use crate::interference::effect_of_damon;

/// Capabilities that `pte` needs.
const PTE_NEEDS: [Capability; 4] = [
    Capability::Bpf,
    Capability::Perfmon,
    Capability::SysNice,
    Capability::SysPtrace,
];

/// How `pte` clears accessed bits.
const CLEARS: Call = Call::Madvise(Advice::Cold);

/// Result of opening the page tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PteOpened {
    /// Whether the young flags of folios can be read, in which in-kernel DAMON and the idle-page bitmap
    /// record cleared bits; or why not.
    pub young_support: Result<(), String>,
}

pub(super) fn pte(facts: &HostFacts, opened: &Result<PteOpened, String>) -> TrackerReport {
    let works = "reads page tables with BPF and clears accessed bits with MADV_COLD";
    let young = |opened: &PteOpened| match &opened.young_support {
        Ok(()) => {
            ", and sees bits that in-kernel DAMON or the idle-page bitmap cleared in the folio's young flag"
                .to_owned()
        }
        Err(why) => {
            format!("; does not see bits that in-kernel DAMON or the idle-page bitmap cleared: {why}")
        }
    };
    report(
        "pte",
        match opened {
            Ok(_) if facts.obstacle(CLEARS, &PTE_NEEDS).is_some() => {
                Err(facts.obstacle(CLEARS, &PTE_NEEDS).unwrap_or_default())
            }
            Ok(opened) => Ok(format!(
                "{works}{}{}",
                young(opened),
                other_users(facts, opened.young_support.is_ok())
            )),
            Err(failure) => Err(pte_obstacle(facts).unwrap_or_else(|| failure.clone())),
        },
    )
}

/// Other users of accessed bits that are known in advance. Another thermo, and programs that write to
/// clear_refs, matter only if they use the same targets: this is checked while monitoring
/// ([`crate::interference`]).
fn other_users(facts: &HostFacts, reads_young_flags: bool) -> String {
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
            let effect = effect_of_damon(reads_young_flags);
            format!("kdamond.{nth}{pid} of in-kernel DAMON also clears accessed bits: {effect}")
        });
    let ageing = facts.mglru.then(|| {
        "MGLRU ageing under memory pressure also clears accessed bits: some accessed pages look idle"
            .to_owned()
    });
    kdamonds.chain(ageing).map(|user| format!("; {user}")).collect()
}

// The first known obstacle, in the order in which a user would have to remove them.
fn pte_obstacle(facts: &HostFacts) -> Option<String> {
    if !facts.btf {
        return Some(
            "this kernel has no BTF (/sys/kernel/btf/vmlinux): use one built with \
                     CONFIG_DEBUG_INFO_BTF, as those of distributions are"
                .to_owned(),
        );
    }
    if facts.confidential {
        return Some(
            "the kernel is locked down (confidentiality), so BPF may not read its memory: boot without \
                     lockdown=confidentiality"
                .to_owned(),
        );
    }
    if !facts.uname.at_least(5, 12) {
        let release = &facts.uname.release;
        return Some(format!(
            "the kernel is {release}; process_madvise on other processes needs 5.12"
        ));
    }
    lacking(facts.capabilities, &PTE_NEEDS).map(|lack| format!("{lack} to read page tables: run as root"))
}
