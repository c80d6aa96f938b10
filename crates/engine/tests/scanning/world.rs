//! Whatever happens to two processes, snapshots by scans hold to what really was.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use thermo_engine::budget::MethodPolicy;
use thermo_engine::{Attrs, Context, Event, Next, Region, TargetId};
use thermo_sim::{Machine, Page, Place};
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};

use super::{ONE_PERCENT, pages};

/// Passes come every eighth of a second: what changed is known after two, and an access is in the window for six.
const SETTLES: Nanos = Nanos::millis(300);
const SEEN_FOR: Nanos = Nanos::millis(700);

/// What happens to one of two processes, each with up to eight mappings of 600 pages, 700 pages apart.
#[derive(Debug, Clone)]
enum Happening {
    Touch(usize, u64, u64),
    PageOut(usize, u64, u64),
    Share(usize, u64, u64, bool),
    Map(usize, u64),
    Unmap(usize, u64),
    Wait(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let place = || (0..2_usize, 0..5600_u64, 1..300_u64);
    prop_oneof![
        6 => place().prop_map(|(process, start, len)| Happening::Touch(process, start, len)),
        1 => place().prop_map(|(process, start, len)| Happening::PageOut(process, start, len)),
        1 => (place(), any::<bool>()).prop_map(|((process, start, len), on)| Happening::Share(process, start, len, on)),
        1 => (0..2_usize, 0..8_u64).prop_map(|(process, slot)| Happening::Map(process, slot)),
        1 => (0..2_usize, 0..8_u64).prop_map(|(process, slot)| Happening::Unmap(process, slot)),
        6 => (1..3000_u64).prop_map(Happening::Wait),
    ]
}

const fn slot(nth: u64) -> AddrRange {
    AddrRange::new(nth * 700 * PAGE_SIZE, (nth * 700 + 600) * PAGE_SIZE)
}

/// The machine with what really happened to it.
struct World {
    machine: Machine,
    ids: [TargetId; 2],
    mapped: [Vec<u64>; 2],
    /// When each page was touched last.
    touched: BTreeMap<(TargetId, Addr), Nanos>,
    now: Nanos,
}

impl World {
    fn new() -> Self {
        let mut machine = Machine::new();
        machine.scans = true;
        let ids = [machine.spawn(&[slot(0), slot(3)]), machine.spawn(&[slot(1)])];
        Self {
            machine,
            ids,
            mapped: [vec![0, 3], vec![1]],
            touched: BTreeMap::new(),
            now: Nanos(0),
        }
    }

    fn let_happen(&mut self, happening: &Happening) {
        match *happening {
            Happening::Touch(process, start, len) => {
                let (id, range) = (self.ids[process], pages(start, start + len));
                self.machine.touch(id, range);
                for page in start..start + len {
                    self.touched.insert((id, Addr(page * PAGE_SIZE)), self.now);
                }
            }
            Happening::PageOut(process, start, len) => {
                self.machine
                    .change(self.ids[process], pages(start, start + len), |page| {
                        if page.place == Place::Present {
                            page.place = Place::Swapped;
                        }
                    });
            }
            Happening::Share(process, start, len, on) => {
                self.machine
                    .change(self.ids[process], pages(start, start + len), |page| {
                        page.shared = on
                    });
            }
            Happening::Map(process, nth) if !self.mapped[process].contains(&nth) => {
                self.machine.map(self.ids[process], slot(nth));
                self.mapped[process].push(nth);
            }
            Happening::Unmap(process, nth) => {
                self.machine.unmap(self.ids[process], slot(nth).start);
                self.mapped[process].retain(|known| *known != nth);
            }
            Happening::Map(..) | Happening::Wait(_) => {}
        }
    }

    /// The pages of a process that are there, by address.
    fn present(&self, process: usize) -> BTreeMap<Addr, Page> {
        let mut present = BTreeMap::new();
        for nth in &self.mapped[process] {
            let mut addrs = (slot(*nth).start.0..).step_by(4096).map(Addr);
            let there = self.machine.count(self.ids[process], slot(*nth), |page| {
                let addr = addrs.next().filter(|_| page.place == Place::Present);
                addr.is_some_and(|addr| present.insert(addr, *page).is_none())
            });
            assert!(there <= 600);
        }
        present
    }

    /// The rules of a snapshot taken now.
    fn check(&self, process: usize, regions: &[Region], aggr: Nanos) {
        assert!(
            regions
                .windows(2)
                .all(|pair| pair[0].range.end <= pair[1].range.start),
            "{regions:?}"
        );
        let mut present = self.present(process);
        for region in regions {
            let range = region.range;
            assert!(
                !range.is_empty()
                    && range.start.align_down() == range.start
                    && range.end.align_down() == range.end
            );
            let behind = present.split_off(&range.end);
            let inside = present.split_off(&range.start);
            assert!(present.is_empty(), "pages in no region: {present:?}");
            present = behind;
            assert_eq!(region.resident, Some(Bytes(inside.len() as u64 * PAGE_SIZE)));
            self.check_heat(process, region, &inside, aggr);
        }
        assert!(present.is_empty(), "pages in no region: {present:?}");
    }

    fn check_heat(&self, process: usize, region: &Region, inside: &BTreeMap<Addr, Page>, aggr: Nanos) {
        let judged = inside
            .iter()
            .filter(|(_, page)| !page.shared)
            .map(|(addr, _)| addr);
        let idle: Vec<u64> = judged
            .map(|addr| {
                self.now
                    .saturating_sub(self.touched[&(self.ids[process], *addr)])
                    .0
            })
            .collect();
        let just_touched = idle.iter().any(|idle| *idle < SEEN_FOR.0);
        assert!(!just_touched || region.nr_accesses > 0, "touched, but {region:?}");
        let age = (aggr * u64::from(region.age)).0;
        if region.nr_accesses == 0 && !idle.is_empty() {
            let mean = idle.iter().sum::<u64>() / idle.len() as u64;
            assert!(age <= mean, "{age} is older than {mean}: {region:?}");
        }
        assert!(age <= self.now.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, rng_seed: RngSeed::Fixed(11), ..ProptestConfig::default() })]

    /// Regions from sweeps are sorted, disjoint, page-aligned and hold every page that is there; not more than
    /// asked for, except for three a target; what was touched a moment ago is in a region that says so;
    /// none looks older than it is.
    #[test]
    fn snapshots_tell_the_truth(
        happenings in prop::collection::vec(happening(), 1..120),
        max_nr_regions in prop_oneof![Just(12_usize), Just(100_000)],
    ) {
        let mut world = World::new();
        // What is mapped between two updates is not looked at before the second: here that is no time at all.
        let attrs = Attrs { update: Nanos::millis(1), max_nr_regions, ..Attrs::default() };
        let mut context = Context::new(attrs, 1).unwrap().with_budget(ONE_PERCENT, MethodPolicy::Scan);
        let (mut due, mut changed) = (Nanos(0), Nanos(0));
        for happening in happenings {
            world.let_happen(&happening);
            let Happening::Wait(ms) = happening else {
                changed = world.now;
                continue;
            };
            let until = world.now + Nanos::millis(ms);
            while due <= until {
                world.now = world.now.max(due);
                let mut snapshot = None;
                let mut sink = |event: &Event<'_>| if let Event::Aggregated { targets, attrs, .. } = event {
                    let regions: Vec<Vec<Region>> = targets.iter().map(|t| t.regions.to_vec()).collect();
                    snapshot = Some((regions, attrs.aggr));
                };
                let Next::At(next) = context.step(world.now, &mut world.machine, &mut sink).unwrap() else { break };
                due = next;
                // What changed a moment ago is seen by the next pass.
                let is_settled = world.now >= changed + SETTLES;
                let Some((regions, aggr)) = snapshot.filter(|_| is_settled) else { continue };
                let count: usize = regions.iter().map(Vec::len).sum();
                prop_assert!(count <= max_nr_regions + 3 * regions.len(), "{count} regions");
                for (process, regions) in regions.iter().enumerate() {
                    world.check(process, regions, aggr);
                }
            }
            world.now = until;
        }
    }
}
