//! A working-set logger: how much memory a process accessed within the last second and within the last 10
//! seconds.
//!
//! `cargo run -p thermo-runtime --example working_set_logger -- PID SECONDS`

use std::error::Error;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::access_tables::age_bucket;
use thermo_engine::budget::{CpuShare, MethodPolicy};
use thermo_engine::{AccessTables, Attrs, Context, Event};
use thermo_runtime::Vaddr;
use thermo_runtime::host::Host;
use thermo_runtime::kdamond::{Kdamond, Parts};
use thermo_targets::{LayoutRule, TargetSpec, TrackedProcesses};
use thermo_units::{Bytes, Nanos};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, seconds] = &arguments[..] else {
        return Err("usage: working_set_logger PID SECONDS".into());
    };
    let (root, time) = (Path::new("/"), Duration::from_secs(seconds.parse()?));

    // Scans every page, with one percent of a CPU. A snapshot is taken every second.
    let one_percent = CpuShare(10_000);
    let context = Context::new(Attrs::default(), 1)?.with_budget(one_percent, MethodPolicy::Auto);

    // Targets, tracker and actor. No scheme is set, so the actor is not used.
    let spec = TargetSpec {
        layout: LayoutRule::Mappings,
        ..TargetSpec::for_pids(&[pid.parse()?])
    };
    let targets = TrackedProcesses::new(root, spec)?;
    let actor = Actor::new(PageoutLimits::default(), true);
    let tracker = Host::probe().open_own_tracker(1)?.tracker;
    let ops = Vaddr::new(root, targets, tracker, actor);

    // Called for each event. Totals come from the access tables, which count every page; regions are
    // averages.
    let sink = |event: &Event<'_>| {
        if let Event::Aggregated { targets, .. } = event {
            for tables in targets.iter().filter_map(|target| target.tables) {
                let (second, ten) = (within(tables, Nanos::secs(1)), within(tables, Nanos::secs(10)));
                println!(
                    "working set {} bytes ({second}), in 10 s {ten}, of {} resident; pass {}",
                    second.0,
                    tables.resident(),
                    tables.pass
                );
            }
        }
    };

    let kdamond = Kdamond::start(0, Parts { context, ops, sink })?;
    sleep(time);
    println!("ended: {:?}", kdamond.stop().reason);
    Ok(())
}

/// Bytes accessed within the last `window`, which must be an edge of the age buckets.
fn within(tables: &AccessTables, window: Nanos) -> Bytes {
    tables.ages()[..age_bucket(window)].iter().copied().sum()
}
