//! How much of its memory an application touches: a short look, as `thermo hint --idle-for` takes.

use std::path::Path;

use thermo_actions::hint::Pieces;
use thermo_agent::lifecycle::Accesses;
use thermo_targets::{LayoutRule, TargetSpec, TrackedProcesses};
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

use crate::cmd::hint::look_for_idle;
use crate::session::Host;

/// Looks by the best tracker of this host.
struct ByLooking;

/// Where accesses can be told: where some tracker works.
pub fn of_this_host() -> Option<Box<dyn Accesses>> {
    Host::probe()
        .default_tracker()
        .map(|_| -> Box<dyn Accesses> { Box::new(ByLooking) })
}

impl Accesses for ByLooking {
    fn touched(&mut self, pids: &[u32], time: Nanos) -> Option<Permille> {
        let spec = TargetSpec {
            layout: LayoutRule::Mappings,
            ..TargetSpec::of_pids(pids)
        };
        let members = TrackedProcesses::new(Path::new("/"), spec).ok()?;
        let (members, found) = look_for_idle(members, Host::probe(), time).ok()?;
        let (mut there, mut idle) = (Bytes::ZERO, Bytes::ZERO);
        for process in members.processes().values() {
            let ranges = found.get(&process.id).cloned().unwrap_or_default();
            idle += resident(process.pid, ranges)?;
            let mappings = thermo_kernel::maps::read(Path::new("/"), process.pid).ok()?;
            there += resident(process.pid, LayoutRule::Mappings.ranges(&mappings))?;
        }
        let touched = u128::from(there.saturating_sub(idle).0) * 1000 / u128::from(there.0.max(1));
        u32::try_from(touched).ok().map(Permille)
    }
}

/// How much of `ranges` is in memory.
fn resident(pid: u32, ranges: Vec<AddrRange>) -> Option<Bytes> {
    let mut pieces = Pieces::open(Path::new("/"), pid, ranges, None).ok()?;
    Some(
        std::iter::from_fn(|| pieces.next(Bytes::gib(1)))
            .map(|piece| piece.there)
            .sum(),
    )
}
