//! A scanned target, replayed by idle age: cohorts of memory that has been idle since the same time.
//!
//! The access tables give the bytes of each age bucket, exactly. Buckets are wide (10 s to 30 s), so each
//! snapshot's growth of idle memory begins a cohort of its own, and a scheme's age is compared with the age
//! of the cohort. At every snapshot the cohorts of a bucket are made to add up to its recorded bytes
//! ([`reconcile`]).
//!
//! Which pages of a bucket were accessed again is not recorded. The share of each cohort that left is taken
//! to be the same among the pages accessed again as among all pages of the bucket.
//!
//! Cohorts have no addresses. The engine gets them as regions at made-up addresses.

mod reconcile;

use thermo_engine::Region;
use thermo_engine::access_tables::{AccessTables, NR_AGES, age_bucket};
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

use crate::target::{BACKINGS, ByBacking, PageFilters, TargetMemory, TargetView, scanned_tables};
use reconcile::{Reconciliation, Times};

/// Cohorts of one bucket are merged if their ages differ by less than this part of the age.
const MERGE_DIVISOR: u64 = 32;

/// Memory with one idle age. In the recording all of it is resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cohort {
    /// Time of the last access.
    since: Nanos,
    /// Bytes that are still in memory in the replay.
    resident: u64,
    /// Bytes that have left.
    out: u64,
}

impl Cohort {
    const fn total(&self) -> u64 {
        self.resident + self.out
    }

    fn age(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.since)
    }

    /// Removes `bytes` in proportion from both parts and returns them.
    fn take(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.total());
        let out = u128::from(self.out) * u128::from(bytes) / u128::from(self.total().max(1));
        let out = u64::try_from(out).unwrap_or(self.out);
        let taken = Self {
            since: self.since,
            resident: (bytes - out).min(self.resident),
            out: bytes - (bytes - out).min(self.resident),
        };
        self.resident -= taken.resident;
        self.out -= taken.out;
        taken
    }

    fn merge(&mut self, other: Self) {
        self.resident += other.resident;
        self.out += other.out;
    }
}

/// The memory of a scanned target in the replay.
#[derive(Debug, Default)]
pub struct IdleMemory {
    /// By backing; oldest first.
    cohorts: [Vec<Cohort>; 3],
    /// Memory accessed within the last second or the last pass.
    accessed: [Cohort; 3],
    unknown: u64,
    /// The parts of memory behind the regions that the engine has.
    slots: Vec<Slot>,
    last_update: Option<Nanos>,
}

/// The memory behind a region.
#[derive(Debug, Clone, Copy)]
struct Slot {
    range: AddrRange,
    part: Part,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Accessed { backing: usize },
    Idle { backing: usize, cohort: usize },
    Unknown,
}

impl TargetMemory for IdleMemory {
    fn update(&mut self, view: &TargetView<'_>) -> u64 {
        let Some(tables) = scanned_tables(view.target) else {
            return 0;
        };
        let now = Nanos(view.snapshot.time_ns);
        // A page that left right after its access is in use.
        let mut refaults: u64 = self.accessed.iter().map(|cohort| cohort.out).sum();
        let interval = now.saturating_sub(self.last_update.unwrap_or(now));
        self.last_update = Some(now);
        let recorded = by_backing(tables);
        let times = Times {
            now,
            pass: tables.pass,
            slack: tables.pass.saturating_add(interval),
        };
        let reaccessed = tables.reaccessed.map(|bytes| bytes.0);
        refaults += Reconciliation::new(&mut self.cohorts, &recorded, times).run(&reaccessed);
        self.accessed = recorded.map(|ages| Cohort {
            since: now,
            resident: ages[0],
            out: 0,
        });
        self.unknown = tables.unknown().0;
        self.cohorts
            .iter_mut()
            .for_each(|cohorts| merge_alike(cohorts, now));
        refaults
    }

    fn regions(&mut self, view: &TargetView<'_>) -> Vec<Region> {
        self.slots = self.lay_out();
        let (now, aggr) = (Nanos(view.snapshot.time_ns), view.snapshot.aggr_ns.max(1));
        let region = |slot: &Slot| {
            let mut region = Region::new(slot.range);
            match slot.part {
                Part::Accessed { .. } => {
                    region.nr_accesses = view.snapshot.max_nr_accesses.max(1);
                    region.nr_accesses_bp = u64::from(region.nr_accesses) * 10_000;
                }
                Part::Idle { backing, cohort } => {
                    let age = self.cohorts[backing][cohort].age(now).0 / aggr;
                    region.age = u32::try_from(age).unwrap_or(u32::MAX);
                }
                Part::Unknown => region.unknown = true,
            }
            region
        };
        self.slots.iter().map(region).collect()
    }

    fn page_out(&mut self, range: AddrRange, filters: &PageFilters<'_>) -> Bytes {
        let first = self.slots.partition_point(|slot| slot.range.end <= range.start);
        let mut left = 0;
        for slot in &self.slots[first..] {
            let Some(range) = slot.range.intersection(&range) else {
                break;
            };
            let (cohort, backing, accessed) = match slot.part {
                Part::Accessed { backing } => (&mut self.accessed[backing], backing, true),
                Part::Idle { backing, cohort } => (&mut self.cohorts[backing][cohort], backing, false),
                Part::Unknown => continue,
            };
            if filters.pass(BACKINGS[backing], accessed) {
                let bytes = range.len().0.min(cohort.resident);
                cohort.resident -= bytes;
                cohort.out += bytes;
                left += bytes;
            }
        }
        Bytes(left)
    }

    fn out(&self) -> ByBacking {
        std::array::from_fn(|backing| {
            let idle: u64 = self.cohorts[backing].iter().map(|cohort| cohort.out).sum();
            idle + self.accessed[backing].out
        })
    }
}

impl IdleMemory {
    /// Gives each part of resident memory a range of addresses, one behind the other. Parts of less than a
    /// page have none.
    fn lay_out(&self) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut start = PAGE_SIZE;
        let mut add = |bytes: u64, part: Part| {
            let len = bytes / PAGE_SIZE * PAGE_SIZE;
            if len > 0 {
                let range = AddrRange::new(start, start + len);
                slots.push(Slot { range, part });
                start += len;
            }
        };
        for backing in 0..BACKINGS.len() {
            for (cohort, memory) in self.cohorts[backing].iter().enumerate() {
                add(memory.resident, Part::Idle { backing, cohort });
            }
            add(self.accessed[backing].resident, Part::Accessed { backing });
        }
        add(self.unknown, Part::Unknown);
        slots
    }
}

/// Idle bytes of the tables by backing and age.
fn by_backing(tables: &AccessTables) -> [[u64; NR_AGES]; 3] {
    std::array::from_fn(|backing| {
        let (small, huge) = (&tables.idle[backing * 2], &tables.idle[backing * 2 + 1]);
        std::array::from_fn(|age| small[age].0 + huge[age].0)
    })
}

/// Merges neighbours of nearly the same age, so that the number of cohorts stays in the hundreds.
fn merge_alike(cohorts: &mut Vec<Cohort>, now: Nanos) {
    cohorts.dedup_by(|next, cohort| {
        let (age, next_age) = (cohort.age(now), next.age(now));
        let is_alike = age.0.abs_diff(next_age.0) < next_age.0 / MERGE_DIVISOR;
        let merges = is_alike && age_bucket(age) == age_bucket(next_age);
        if merges {
            // The younger time: no memory leaves before its age.
            cohort.since = next.since;
            cohort.merge(*next);
        }
        merges
    });
}
