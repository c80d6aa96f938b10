//! The schemes of `thermo tier` on a simulated machine whose working set is larger than the fast node.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_actions::preset::Tier;
use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::rng::Rng;
use thermo_engine::{Attrs, Context, Event, TargetId};
use thermo_sim::{Machine, run};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

/// Pages of the fast node. 3800 of them shall be used.
const FAST: u64 = 4_000;
/// With [`Simulation::new`], a scan pass takes about this long.
const PASS: Nanos = Nanos::millis(1800);

const fn pages(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE)
}

struct Simulation {
    machine: Machine,
    id: TargetId,
    context: Context,
    /// Pages that moved.
    moved: u64,
}

impl Simulation {
    /// A process with this memory, of which the first 3800 pages are on the fast node, and the first
    /// `nr_schemes` of the preset: the last two exchange warm for hot memory.
    fn new(memory: &[AddrRange], nr_schemes: usize) -> Self {
        let mut machine = Machine::new();
        machine.scans = true;
        // 6000 pages take 18 ms, so that 1 % of a CPU is a pass in 1.8 s.
        machine.cost_of_scanning = Nanos(3_000);
        machine.nodes = [(0, Bytes(FAST * PAGE_SIZE)), (1, Bytes(3 * FAST * PAGE_SIZE))].into();
        let id = machine.spawn(memory);
        let mut nth = 0;
        for range in memory {
            machine.touch(id, *range);
            machine.change(id, *range, |page| {
                page.node = u32::from(nth >= FAST * 95 / 100);
                nth += 1;
            });
        }
        let mut schemes = Tier::default().schemes()[..nr_schemes].to_vec();
        for scheme in &mut schemes {
            // As large a part of the node as the bandwidth is of a node of 2 GiB.
            scheme.quota.sz = Bytes(scheme.quota.sz.0 / 128);
        }
        let mut context = Context::new(Attrs::default(), 7)
            .unwrap()
            .with_budget(CpuShare(10_000), MethodPolicy::Scan);
        context.set_schemes(schemes).unwrap();
        Self {
            machine,
            id,
            context,
            moved: 0,
        }
    }

    /// Runs the seconds from `from` to `until`. Calls `touch` with the number of the pass, once a pass.
    fn run(&mut self, from: u64, until: u64, mut touch: impl FnMut(&mut Machine, TargetId, u64)) {
        let (id, moved) = (self.id, &mut self.moved);
        let mut sink = |event: &Event<'_>| {
            if let Event::SchemeApplied { by_target, .. } = event {
                let changed = by_target.iter().filter_map(|(_, applied)| applied.changed);
                *moved += changed.map(|bytes| bytes.0 / PAGE_SIZE).sum::<u64>();
            }
        };
        let mut last = None;
        let each = |machine: &mut Machine, now: Nanos| {
            let pass = now.0 / PASS.0;
            if last.replace(pass) != Some(pass) {
                touch(machine, id, pass);
            }
        };
        let (from, until) = (Nanos::secs(from), Nanos::secs(until));
        run(&mut self.context, &mut self.machine, &mut sink, from, until, each).unwrap();
    }

    fn near(&self, range: AddrRange) -> u64 {
        self.machine.count(self.id, range, |page| page.node == 0)
    }
}

#[test]
fn hot_memory_takes_the_place_of_warm_memory_once() {
    let (warm, hot) = (pages(100_000, 104_000), pages(200_000, 202_000));
    // Each page of the warm part is accessed in every fourth pass, those of the hot part in all of them.
    let touch = |machine: &mut Machine, id, pass: u64| {
        machine.touch(id, hot);
        let part = 100_000 + 1_000 * (pass % 4);
        machine.touch(id, pages(part, part + 1_000));
    };
    let mut without = Simulation::new(&[warm, hot], 2);
    without.run(0, 90, touch);
    assert_eq!((without.near(warm), without.near(hot)), (3_800, 0));
    let mut sim = Simulation::new(&[warm, hot], 4);
    sim.run(0, 90, touch);
    let (near, moved) = (sim.near(hot), sim.moved);
    assert!(near >= 1_950, "{near} of 2000 hot pages are near");
    assert!(moved <= 4_100, "{moved} pages moved for the 2000 hot ones");
    sim.run(90, 150, touch);
    assert!(sim.moved - moved < 20, "{} pages moved later", sim.moved - moved);
}

#[test]
fn exchange_of_alike_memory_by_chance_is_bounded() {
    let all = pages(100_000, 106_000);
    // Each page is accessed at random in this share of the passes. The simulation has no cool-down.
    for (percent, max) in [(60, 4_500), (80, 600), (100, 100)] {
        let mut sim = Simulation::new(&[all], 4);
        let mut rng = Rng::new(3);
        sim.run(0, 60, |machine, id, _| {
            machine.change(id, all, |page| page.accessed |= rng.below(100) < percent);
        });
        assert!(sim.moved <= max, "{percent} %: {} of 6000 pages moved", sim.moved);
    }
}
