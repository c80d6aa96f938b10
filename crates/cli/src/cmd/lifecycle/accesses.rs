//! How much of an application's memory is accessed: a short scan, as for `thermo hint --idle-for`.

use std::path::Path;

use thermo_actions::hint::ResidentChunks;
use thermo_agent::lifecycle::AccessProbe;
use thermo_runtime::host::Host;
use thermo_targets::{LayoutRule, TargetSpec, TrackedProcesses};
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

use crate::cmd::hint::find_idle;

/// Monitors with the best tracker of this host.
struct TrackerAccesses;

/// A source of accesses; `None` if no tracker can be used here.
pub fn of_this_host() -> Option<Box<dyn AccessProbe>> {
    Host::probe()
        .default_tracker()
        .map(|_| -> Box<dyn AccessProbe> { Box::new(TrackerAccesses) })
}

impl AccessProbe for TrackerAccesses {
    fn accessed_share(&mut self, pids: &[u32], time: Nanos) -> Option<Permille> {
        let spec = TargetSpec {
            layout: LayoutRule::Mappings,
            ..TargetSpec::for_pids(pids)
        };
        let processes = TrackedProcesses::new(Path::new("/"), spec).ok()?;
        let found = find_idle(processes, Host::probe(), time).ok()?;
        let (mut all, mut idle) = (Bytes::ZERO, Bytes::ZERO);
        for process in found.processes.processes().values() {
            let ranges = found.ranges.get(&process.id).cloned().unwrap_or_default();
            idle += resident(process.pid, ranges)?;
            let mappings = thermo_kernel::maps::read(Path::new("/"), process.pid).ok()?;
            all += resident(process.pid, LayoutRule::Mappings.ranges(&mappings))?;
        }
        // Pages of libraries are shared with other processes. If they counted as accessed, no small
        // application would ever be idle.
        share_of_known(all, idle, found.unknown)
    }
}

/// The accessed share of the memory whose accesses are known; `None` if there is none.
fn share_of_known(all: Bytes, idle: Bytes, unknown: Bytes) -> Option<Permille> {
    let known = all.saturating_sub(unknown);
    let accessed = u128::from(known.saturating_sub(idle).0) * 1000;
    u32::try_from(accessed.checked_div(u128::from(known.0))?)
        .ok()
        .map(Permille)
}

/// Resident bytes of `ranges`.
fn resident(pid: u32, ranges: Vec<AddrRange>) -> Option<Bytes> {
    let mut pieces = ResidentChunks::open(Path::new("/"), pid, ranges, None).ok()?;
    Some(
        std::iter::from_fn(|| pieces.next(Bytes::gib(1)))
            .map(|piece| piece.resident)
            .sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_whose_accesses_are_unknown_does_not_count() {
        let share =
            |all, idle, unknown| share_of_known(Bytes::mib(all), Bytes::mib(idle), Bytes::mib(unknown));
        assert_eq!(share(60, 48, 12), Some(Permille(0)));
        assert_eq!(share(60, 24, 12), Some(Permille(500)));
        assert_eq!(share(12, 0, 12), None);
        // The numbers are read at different times.
        assert_eq!(share(10, 9, 12), None);
    }
}
