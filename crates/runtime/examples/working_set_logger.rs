//! A working-set logger: how much of a process's memory was accessed within the last second and the last ten.
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
use thermo_runtime::kdamond::{Kdamond, Parts};
use thermo_runtime::{Vaddr, best_tracker};
use thermo_targets::{LayoutRule, TargetSpec, TrackedProcesses};
use thermo_units::{Bytes, Nanos};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, seconds] = &arguments[..] else {
        return Err("usage: working_set_logger PID SECONDS".into());
    };
    let (root, time) = (Path::new("/"), Duration::from_secs(seconds.parse()?));

    // Every page is scanned, within one percent of a CPU; a snapshot comes every second.
    let one_percent = CpuShare(10_000);
    let context = Context::new(Attrs::default(), 1)?.with_budget(one_percent, MethodPolicy::Auto);

    // Of what, how accesses are found, and who acts: nothing is to be done here.
    let spec = TargetSpec {
        layout: LayoutRule::Mappings,
        ..TargetSpec::of_pids(&[pid.parse()?])
    };
    let members = TrackedProcesses::new(root, spec)?;
    let actor = Actor::new(PageoutLimits::default(), true);
    let ops = Vaddr::new(root, members, best_tracker(root, 1), actor);

    // Called with each snapshot. Totals come from the tables, which know every page; regions would blur them.
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
    println!("ended: {:?}", kdamond.stop().why);
    Ok(())
}

/// Bytes accessed within the last `window`, which is one of the edges of the tables' buckets.
fn within(tables: &AccessTables, window: Nanos) -> Bytes {
    tables.ages()[..age_bucket(window)].iter().copied().sum()
}
