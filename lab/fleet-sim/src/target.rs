//! One target over time: the engine monitors it and applies its policy; each interval gives a row.

use thermo_engine::access_tables::Backing;
use thermo_engine::access_tables::{AccessTables, NR_AGES, PageKind, age_bucket};
use thermo_engine::budget::{CpuShare, Method, MethodPolicy};
use thermo_engine::rng::Rng;
use thermo_engine::scheme::{AccessPattern, Age, Bounds, Rate, Scheme};
use thermo_engine::{Action, Attrs, Context, Event, Next, OpsError, Sink};
use thermo_fleet::{Mode, Row};
use thermo_units::{Bytes, Nanos, PAGE_SIZE};

use crate::class::PlacedPattern;
use crate::machine::Machine;
use crate::memory::Memory;

/// Time between two snapshots where a policy acts, and about the length of a pass. The engine counts ages in
/// snapshots, and applies schemes after them.
const ACTING_SNAPSHOT: Nanos = Nanos::secs(30);
/// CPU time of paging out 1 MiB to zram, measured: docs/evaluation.md, proactive reclaim.
const PAGEOUT_COST_PER_MIB: Nanos = Nanos::micros(3100);

/// What is fixed about a target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    /// Minimum age of the policy; `None` to observe.
    pub(crate) min_age: Option<Nanos>,
    /// The target's part of the agent's budget.
    pub(crate) share: CpuShare,
    /// Length of a pass.
    pub(crate) pass: Nanos,
    /// Length of an interval: without a policy, a snapshot at its end is enough.
    pub(crate) interval: Nanos,
    /// Memory that a byte in swap occupies; `None` without swap.
    pub(crate) swap_cost: Option<f64>,
    /// Real bytes that a simulated page stands for.
    pub(crate) page_bytes: u64,
}

/// A target.
#[derive(Debug)]
pub(crate) struct Target {
    context: Context,
    machine: Machine,
    areas: Vec<PlacedPattern>,
    rng: Rng,
    settings: Settings,
    snapshots: Snapshots,
    /// Time of the last access.
    now: Nanos,
    /// Time of the next step.
    next: Nanos,
    before: Counters,
    would_page_out: Option<u64>,
}

/// Counters of a target at the end of the last interval.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    paged_out: u64,
    back: u64,
    spent: Nanos,
}

/// The last snapshot, and the re-accesses since the end of the last interval.
#[derive(Debug)]
struct Snapshots {
    tables: AccessTables,
    reaccessed: [u64; NR_AGES],
    count: u64,
}

impl Sink for Snapshots {
    fn on(&mut self, event: &Event<'_>) {
        if let Event::Aggregated { targets, .. } = event
            && let Some(tables) = targets.first().and_then(|target| target.tables)
        {
            self.tables = *tables;
            self.count += 1;
            let sums = self.reaccessed.iter_mut().zip(&tables.reaccessed);
            sums.for_each(|(sum, bytes)| *sum += bytes.0);
        }
    }
}

impl Target {
    /// A target that starts at time 0.
    ///
    /// # Errors
    /// The engine refuses the scheme.
    pub(crate) fn new(
        (mut memory, mut areas): (Memory, Vec<PlacedPattern>),
        settings: Settings,
        rng: Rng,
    ) -> Result<Self, OpsError> {
        let failed = |error: String| OpsError::Failed(error);
        for placed in &mut areas {
            let mut area = crate::pattern::Area {
                memory: &mut memory,
                first: placed.first,
                len: placed.len,
            };
            placed.pattern.start(&mut area);
        }
        let attrs = Attrs {
            update: Nanos::secs(24 * 3600),
            max_nr_regions: 10,
            ..Attrs::default()
        };
        let mut context = Context::new(attrs, 0)
            .map_err(|error| failed(error.to_string()))?
            .with_budget(settings.share, MethodPolicy::Scan)
            .with_snapshot_interval(match settings.min_age {
                Some(_) => ACTING_SNAPSHOT,
                None => settings.interval,
            });
        if let Some(min_age) = settings.min_age {
            context.set_keeps_ages(settings.mode == Mode::DryRun);
            let schemes = vec![page_out(min_age)];
            context
                .set_schemes(schemes)
                .map_err(|error| failed(error.to_string()))?;
        }
        let machine = Machine {
            memory,
            has_swap: settings.swap_cost.is_some(),
            is_dry_run: settings.mode == Mode::DryRun,
            pass_cost: settings.share.of(settings.pass),
            spent: Nanos::ZERO,
            nr_would_page_out: 0,
        };
        let tables = AccessTables::new(Method::Scan);
        Ok(Self {
            context,
            machine,
            areas,
            rng,
            settings,
            snapshots: Snapshots {
                tables,
                reaccessed: [0; NR_AGES],
                count: 0,
            },
            now: Nanos::ZERO,
            next: Nanos::ZERO,
            before: Counters::default(),
            would_page_out: None,
        })
    }

    /// Runs until `end`, with all steps that are due by then.
    ///
    /// # Errors
    /// Those of [`Context::step`].
    pub(crate) fn run(&mut self, end: Nanos) -> Result<(), OpsError> {
        while self.next <= end {
            let now = self.next;
            self.access(now);
            let count = self.snapshots.count;
            self.machine.nr_would_page_out = 0;
            let next = self.context.step(now, &mut self.machine, &mut self.snapshots)?;
            if self.snapshots.count > count {
                self.would_page_out = Some(self.machine.nr_would_page_out);
            }
            self.context.charge(now, self.machine.spent);
            match self.context.delay_for_budget(next) {
                Next::At(next) => self.next = next.max(now),
                Next::Finished => self.next = Nanos::MAX,
            }
        }
        self.access(end);
        Ok(())
    }

    /// Lets the program access its memory until `now`.
    fn access(&mut self, now: Nanos) {
        if now <= self.now {
            return;
        }
        for placed in &mut self.areas {
            let memory = &mut self.machine.memory;
            let mut area = crate::pattern::Area {
                memory,
                first: placed.first,
                len: placed.len,
            };
            let (from, to) = (self.now.as_secs_f64(), now.as_secs_f64());
            placed.pattern.advance(from, to, &mut area, &mut self.rng);
        }
        self.now = now;
    }

    /// The figures of the interval that ends now. Names and times are set by the caller.
    pub(crate) fn take_row(&mut self) -> Row {
        let page_bytes = self.settings.page_bytes;
        let real = |bytes: Bytes| bytes.0 / PAGE_SIZE * page_bytes;
        let (memory, tables) = (&self.machine.memory, &self.snapshots.tables);
        let counters = Counters {
            paged_out: memory.nr_paged_out,
            back: memory.nr_back,
            spent: self.machine.spent,
        };
        let before = std::mem::replace(&mut self.before, counters);
        let (out, swapped) = memory.nr_out();
        let (out_bytes, out_swap_bytes) = (out * page_bytes, swapped * page_bytes);
        let occupied = out_swap_bytes as f64 * self.settings.swap_cost.unwrap_or(0.0);
        let paged_out_bytes = (counters.paged_out - before.paged_out) * page_bytes;
        let of_files = |kind: &PageKind| kind.backing == Backing::File;
        let file = |age: usize| {
            PageKind::ALL
                .iter()
                .filter(|kind| of_files(kind))
                .map(move |kind| tables.idle[kind.index()][age])
        };
        let reaccessed = std::mem::take(&mut self.snapshots.reaccessed);
        Row {
            mode: self.settings.mode,
            min_age_ms: self.settings.min_age.map(|age| age.0 / 1_000_000),
            resident_bytes: real(tables.resident()),
            swap_bytes: out_swap_bytes,
            unknown_bytes: real(tables.unknown()),
            working_set_bytes: real(tables.working_set()),
            idle_bytes: tables.ages().map(real),
            idle_file_bytes: std::array::from_fn(|age| real(file(age).sum())),
            reaccess_bytes: reaccessed.map(|bytes| real(Bytes(bytes))),
            pass_ms: (tables.nr_passes > 0).then_some(tables.pass.0 / 1_000_000),
            paged_out_bytes,
            would_page_out_bytes: match self.settings.mode {
                Mode::DryRun => self.would_page_out.map(|pages| pages * page_bytes),
                Mode::Observe | Mode::Act => None,
            },
            back_bytes: (counters.back - before.back) * page_bytes,
            out_bytes,
            out_swap_bytes,
            net_saved_bytes: out_bytes.cast_signed() - occupied.round() as i64,
            swap_cost: self.settings.swap_cost,
            watching_cpu_us: counters.spent.0 / 1000 - before.spent.0 / 1000,
            acting_cpu_us: PAGEOUT_COST_PER_MIB.0 * (paged_out_bytes >> 10) / (1000 << 10),
            ..Row::default()
        }
    }

    /// Resident bytes by their exact idle age, without shared pages. The simulator counts them from the last
    /// access to each page, without the engine.
    pub(crate) fn true_idle_bytes(&self) -> [u64; NR_AGES] {
        let mut bytes = [0; NR_AGES];
        for age in self.machine.memory.idle_ages(self.now) {
            bytes[age_bucket(age)] += self.settings.page_bytes;
        }
        bytes
    }
}

/// Page out what was idle for `min_age`.
fn page_out(min_age: Nanos) -> Scheme {
    let pattern = AccessPattern {
        nr_accesses: Bounds {
            min: Rate::Samples(0),
            max: Rate::Samples(0),
        },
        age: Bounds {
            min: Age::Time(min_age),
            max: Age::Time(Nanos::MAX),
        },
        ..AccessPattern::default()
    };
    Scheme {
        pattern,
        ..Scheme::new(Action::Pageout)
    }
}

#[cfg(test)]
mod tests;
