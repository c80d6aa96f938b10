//! Property test: for random events in two processes, snapshots from scans match the ground truth.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use thermo_engine::budget::MethodPolicy;
use thermo_engine::{Attrs, Context, Event, Next, Region, TargetId};
use thermo_sim::{Machine, Page, PageLocation};
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};

use super::{ONE_PERCENT, pages};

/// A pass takes 125 ms. A change is visible after two passes, and an access stays in the history window for
/// six.
const VISIBLE_AFTER: Nanos = Nanos::millis(300);
const VISIBLE_FOR: Nanos = Nanos::millis(700);

/// An event in one of two processes. Each has up to eight mappings of 600 pages, 700 pages apart.
#[derive(Debug, Clone)]
enum MachineEvent {
    Touch(usize, u64, u64),
    PageOut(usize, u64, u64),
    Share(usize, u64, u64, bool),
    Map(usize, u64),
    Unmap(usize, u64),
    Wait(u64),
}

fn machine_event() -> impl Strategy<Value = MachineEvent> {
    let range = || (0..2_usize, 0..5600_u64, 1..300_u64);
    prop_oneof![
        6 => range().prop_map(|(process, start, len)| MachineEvent::Touch(process, start, len)),
        1 => range().prop_map(|(process, start, len)| MachineEvent::PageOut(process, start, len)),
        1 => (range(), any::<bool>()).prop_map(|((process, start, len), on)| MachineEvent::Share(process, start, len, on)),
        1 => (0..2_usize, 0..8_u64).prop_map(|(process, slot)| MachineEvent::Map(process, slot)),
        1 => (0..2_usize, 0..8_u64).prop_map(|(process, slot)| MachineEvent::Unmap(process, slot)),
        6 => (1..3000_u64).prop_map(MachineEvent::Wait),
    ]
}

const fn slot(nth: u64) -> AddrRange {
    AddrRange::new(nth * 700 * PAGE_SIZE, (nth * 700 + 600) * PAGE_SIZE)
}

/// A machine and its ground truth.
struct World {
    machine: Machine,
    ids: [TargetId; 2],
    mapped: [Vec<u64>; 2],
    /// Time of the last access of each page.
    accessed: BTreeMap<(TargetId, Addr), Nanos>,
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
            accessed: BTreeMap::new(),
            now: Nanos(0),
        }
    }

    fn apply(&mut self, event: &MachineEvent) {
        match *event {
            MachineEvent::Touch(process, start, len) => {
                let (id, range) = (self.ids[process], pages(start, start + len));
                self.machine.touch(id, range);
                for page in start..start + len {
                    self.accessed.insert((id, Addr(page * PAGE_SIZE)), self.now);
                }
            }
            MachineEvent::PageOut(process, start, len) => {
                self.machine
                    .change(self.ids[process], pages(start, start + len), |page| {
                        if page.location == PageLocation::Present {
                            page.location = PageLocation::Swapped;
                        }
                    });
            }
            MachineEvent::Share(process, start, len, on) => {
                self.machine
                    .change(self.ids[process], pages(start, start + len), |page| {
                        page.shared = on
                    });
            }
            MachineEvent::Map(process, nth) if !self.mapped[process].contains(&nth) => {
                self.machine.map(self.ids[process], slot(nth));
                self.mapped[process].push(nth);
            }
            MachineEvent::Unmap(process, nth) => {
                self.machine.unmap(self.ids[process], slot(nth).start);
                self.mapped[process].retain(|mapped| *mapped != nth);
            }
            MachineEvent::Map(..) | MachineEvent::Wait(_) => {}
        }
    }

    /// The resident pages of a process, by address.
    fn present(&self, process: usize) -> BTreeMap<Addr, Page> {
        let mut present = BTreeMap::new();
        for nth in &self.mapped[process] {
            let mut addrs = (slot(*nth).start.0..).step_by(4096).map(Addr);
            let nr_present = self.machine.count(self.ids[process], slot(*nth), |page| {
                let addr = addrs.next().filter(|_| page.location == PageLocation::Present);
                addr.is_some_and(|addr| present.insert(addr, *page).is_none())
            });
            assert!(nr_present <= 600);
        }
        present
    }

    /// Checks the regions of a snapshot that was taken now.
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
            self.check_access_history(process, region, &inside, aggr);
        }
        assert!(present.is_empty(), "pages in no region: {present:?}");
    }

    fn check_access_history(
        &self,
        process: usize,
        region: &Region,
        inside: &BTreeMap<Addr, Page>,
        aggr: Nanos,
    ) {
        let exclusive = inside
            .iter()
            .filter(|(_, page)| !page.shared)
            .map(|(addr, _)| addr);
        let idle_times: Vec<u64> = exclusive
            .map(|addr| {
                self.now
                    .saturating_sub(self.accessed[&(self.ids[process], *addr)])
                    .0
            })
            .collect();
        let recently_accessed = idle_times.iter().any(|idle| *idle < VISIBLE_FOR.0);
        assert!(
            !recently_accessed || region.nr_accesses > 0,
            "accessed recently, but {region:?}"
        );
        let age = (aggr * u64::from(region.age)).0;
        if region.nr_accesses == 0 && !idle_times.is_empty() {
            let mean = idle_times.iter().sum::<u64>() / idle_times.len() as u64;
            assert!(
                age <= mean,
                "age {age} is above the mean idle time {mean}: {region:?}"
            );
        }
        assert!(age <= self.now.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, rng_seed: RngSeed::Fixed(11), ..ProptestConfig::default() })]

    /// Regions from scans are sorted, disjoint and page-aligned, and hold every resident page. There are at
    /// most `max_nr_regions`, plus three for each target. A recently accessed page is in a region with
    /// accesses. No region is older than its mean idle time.
    #[test]
    fn snapshots_match_ground_truth(
        events in prop::collection::vec(machine_event(), 1..120),
        max_nr_regions in prop_oneof![Just(12_usize), Just(100_000)],
    ) {
        let mut world = World::new();
        // New mappings are monitored from the next update on. A short interval makes that delay negligible.
        let attrs = Attrs { update: Nanos::millis(1), max_nr_regions, ..Attrs::default() };
        let mut context = Context::new(attrs, 1).unwrap().with_budget(ONE_PERCENT, MethodPolicy::Scan);
        let (mut due, mut changed) = (Nanos(0), Nanos(0));
        for event in events {
            world.apply(&event);
            let MachineEvent::Wait(ms) = event else {
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
                // Recent changes may be missing in the snapshot.
                let is_settled = world.now >= changed + VISIBLE_AFTER;
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
