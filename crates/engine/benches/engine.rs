//! CPU time and memory of the engine itself, on a machine that answers at once: `cargo bench -p
//! thermo-engine`.
//!
//! Prints medians, the range from the 10th to the 90th percentile, and ratios within the same run. Absolute
//! values differ between machines and days. The time of the operations is measured separately and subtracted.

#![allow(clippy::unwrap_used, reason = "in a benchmark a panic is the report")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::disallowed_macros, reason = "a benchmark prints its results")]

use std::time::{Duration, Instant};

use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::ops::{Applied, CheckResult, Outcome, Probe, Request, TargetRange};
use thermo_engine::scan::ScanChunk;
use thermo_engine::scheme::{Age, Rate, SystemMetric};
use thermo_engine::{
    Action, Attrs, Context, Event, Next, Operations, OpsError, Scheme, TargetId, TargetLayout,
};
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};

const GIB: u64 = 1 << 30;

fn main() {
    // `cargo test --all-targets` runs this too, without the argument of `cargo bench`.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("{:<44} {:>11} {:>23} {:>9}", "", "median", "p10..p90", "ratio");
    // First, so that the allocator has no freed memory to reuse.
    memory();
    regions();
    schemes();
    scans();
    growth();
}

/// A machine with one target. Hot and idle runs of pages alternate. All pages are resident.
struct Machine {
    range: AddrRange,
    /// Pages in a run.
    run_pages: u64,
    /// Time spent in the machine's own code.
    own_time: Duration,
}

impl Machine {
    fn new(len: u64, run_pages: u64) -> Self {
        Self {
            range: AddrRange::new(1 << 40, (1 << 40) + len),
            run_pages,
            own_time: Duration::ZERO,
        }
    }

    const fn is_hot(&self, addr: Addr) -> bool {
        (addr.0 / PAGE_SIZE / self.run_pages).is_multiple_of(2)
    }
}

impl Operations for Machine {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        Ok(vec![TargetLayout::new(TargetId(0), None, vec![self.range])])
    }

    fn prepare_access_checks(&mut self, _probes: &[Probe]) {}

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        let began = Instant::now();
        for probe in probes {
            let hot = self.is_hot(probe.addr);
            probe.result = if hot {
                CheckResult::Accessed
            } else {
                CheckResult::Idle
            };
        }
        self.own_time += began.elapsed();
    }

    fn can_scan(&self) -> bool {
        true
    }

    fn scan(&mut self, run: &TargetRange, chunk: &mut ScanChunk) -> Addr {
        let began = Instant::now();
        for addr in (run.range.start.0..run.range.end.0).step_by(4096).map(Addr) {
            chunk.set(addr, self.is_hot(addr));
        }
        self.own_time += began.elapsed();
        run.range.end
    }

    fn any_target_left(&mut self) -> bool {
        true
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        Ok(Outcome {
            results: vec![Applied::default(); request.ranges.len()],
            spent: Nanos::ZERO,
            notes: Vec::new(),
        })
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        Err(OpsError::Unsupported {
            what: format!("{metric:?}"),
            why: "the benchmark does not use it".into(),
        })
    }
}

/// Measured durations of one step.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) * percent / 100]
    }

    /// Prints a row and returns the median. The ratio is median / `base`.
    fn print(&self, label: &str, base: Option<Duration>) -> Duration {
        let median = self.percentile(50);
        let range = format!("{:.1?}..{:.1?}", self.percentile(10), self.percentile(90));
        let ratio = base.map_or(String::new(), |base| {
            format!("{:.2}x", median.as_secs_f64() / base.as_secs_f64())
        });
        println!(
            "{label:<44} {:>11} {range:>23} {ratio:>9}",
            format!("{median:.1?}")
        );
        median
    }
}

/// A context of exactly `nr_regions` regions of two pages each, which are neither merged nor split.
fn sampling(nr_regions: usize) -> (Context, Machine) {
    let attrs = Attrs {
        min_nr_regions: nr_regions,
        max_nr_regions: nr_regions,
        update: Nanos::secs(1 << 30),
        ..Attrs::default()
    };
    let machine = Machine::new(nr_regions as u64 * 2 * PAGE_SIZE, 2);
    (Context::new(attrs, 1).unwrap(), machine)
}

/// Runs `aggregations`. Returns the times of steps with access checks only, and of steps that end an
/// aggregation.
fn run_aggregations(context: &mut Context, machine: &mut Machine, aggregations: usize) -> (Times, Times) {
    let (mut checks, mut ends) = (Times::default(), Times::default());
    let mut now = Nanos(0);
    while ends.0.len() < aggregations {
        let (mut ended, own_before) = (false, machine.own_time);
        let began = Instant::now();
        let next = context.step(now, machine, &mut |event: &Event<'_>| {
            ended |= matches!(event, Event::Aggregated { .. });
        });
        let took = began.elapsed().saturating_sub(machine.own_time - own_before);
        if ended { &mut ends } else { &mut checks }.0.push(took);
        if let Next::At(next) = next.unwrap() {
            now = next;
        }
    }
    (checks, ends)
}

fn regions() {
    let mut bases: Option<(Duration, Duration)> = None;
    for (nr_regions, aggregations) in [(1_000, 200), (10_000, 100), (100_000, 30)] {
        let (mut context, mut machine) = sampling(nr_regions);
        let (checks, ends) = run_aggregations(&mut context, &mut machine, aggregations);
        assert_eq!(context.nr_regions(), nr_regions);
        let check = checks.print(
            &format!("access checks of {nr_regions} regions"),
            bases.map(|bases| bases.0),
        );
        let end = ends.print("... that ends an aggregation", bases.map(|bases| bases.1));
        bases.get_or_insert((check, end));
    }
}

fn schemes() {
    let (mut context, mut machine) = sampling(1_000);
    let (_, without) = run_aggregations(&mut context, &mut machine, 200);
    let base = without.print("end of an aggregation of 1000 regions", None);
    let (mut context, mut machine) = sampling(1_000);
    let scheme = |nth: u64| {
        let mut scheme = Scheme::new(Action::Pageout);
        scheme.pattern.nr_accesses.max = Rate::Samples(0);
        scheme.pattern.age.min = Age::Aggrs(0);
        scheme.quota.sz = Bytes::mib(1 + nth);
        scheme.quota.reset_interval = Nanos::millis(100);
        scheme.quota.weights.age = 1;
        scheme
    };
    context.set_schemes((0..10).map(scheme).collect()).unwrap();
    let (_, with) = run_aggregations(&mut context, &mut machine, 200);
    with.print("... with 10 schemes that match half of these", Some(base));
}

/// Runs a context with scans. Returns the context and the CPU times from snapshot to snapshot.
fn run_scans(machine: &mut Machine, nr_snapshots: usize) -> (Context, Times) {
    let attrs = Attrs {
        update: Nanos::secs(1 << 30),
        ..Attrs::default()
    };
    let mut context = Context::new(attrs, 1)
        .unwrap()
        .with_budget(CpuShare(10_000), MethodPolicy::Scan);
    let (mut times, mut since_snapshot, mut now) = (Times::default(), Duration::ZERO, Nanos(0));
    while times.0.len() < nr_snapshots {
        let (mut ended, own_before) = (false, machine.own_time);
        let began = Instant::now();
        let next = context.step(now, machine, &mut |event: &Event<'_>| {
            ended |= matches!(event, Event::Aggregated { .. });
        });
        since_snapshot += began.elapsed().saturating_sub(machine.own_time - own_before);
        if ended {
            times.0.push(std::mem::take(&mut since_snapshot));
        }
        if let Next::At(next) = next.unwrap() {
            now = next;
        }
    }
    (context, times)
}

fn scans() {
    let (_, coarse) = run_scans(&mut Machine::new(GIB, 4096), 30);
    let base = coarse.print("scans and a snapshot of 1 GiB, 64 page runs", None);
    let (_, fine) = run_scans(&mut Machine::new(GIB, 16), 30);
    fine.print("... 16384 page runs, merged to 1000 regions", Some(base));
    let (_, finest) = run_scans(&mut Machine::new(GIB, 1), 30);
    finest.print("... every second page hot", Some(base));
}

/// Targets from 64 MiB to 1 TiB, fully resident, half of it hot in 64 runs. Cost for each GiB and exactness
/// should not change.
fn growth() {
    const RUNS: u64 = 64;
    let mut base = None;
    for mib in [64, 1 << 10, 16 << 10, 128 << 10, 1 << 20] {
        let len = mib << 20;
        let mut machine = Machine::new(len, len / PAGE_SIZE / RUNS);
        let before = resident();
        let (context, mut times) = run_scans(&mut machine, 4);
        let grown = resident().saturating_sub(before);
        let per_gib = |took: &mut Duration| *took = took.mul_f64(GIB as f64 / len as f64);
        times.0.iter_mut().for_each(per_gib);
        let name = format!("scan of {}, for each GiB", Bytes(len));
        let median = times.print(&name, base);
        base.get_or_insert(median);
        let regions: Vec<_> = context.targets().flat_map(|target| target.regions).collect();
        let exact = regions
            .iter()
            .filter(|region| {
                region.len().0 == len / RUNS && machine.is_hot(region.range.start) == (region.nr_accesses > 0)
            })
            .count();
        println!(
            "... {exact} of {RUNS} runs exact in {} regions, {:.1} KiB for each GiB",
            regions.len(),
            grown as f64 / 1024.0 / (len as f64 / GIB as f64)
        );
    }
}

fn memory() {
    const SIZE: u64 = 16;
    let before = resident();
    let (context, _) = run_scans(&mut Machine::new(SIZE * GIB, 4096), 2);
    let grown = resident().saturating_sub(before);
    println!(
        "memory for each scanned GiB: {} KiB ({} regions over {SIZE} GiB)",
        grown / SIZE / 1024,
        context.nr_regions()
    );
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * PAGE_SIZE
}
