//! A working-set logger: how much of a process's memory was touched in each aggregation interval.
//!
//! `cargo run -p thermocline-ops --example working_set_logger -- PID SECONDS`

use std::error::Error;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use thermo_core::{Attrs, Bytes, Context, Event, Nanos, Region};
use thermo_ops::kdamond::{Kdamond, Parts};
use thermo_ops::targets::{Members, TargetSpec};
use thermo_ops::{Actor, PageoutLimits, Vaddr, tracker};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, seconds] = &arguments[..] else {
        return Err("usage: working_set_logger PID SECONDS".into());
    };
    let (root, half) = (Path::new("/"), Duration::from_secs(seconds.parse()?) / 2);

    // How to look. Every random choice follows from the seed.
    let context = Context::new(Attrs::default(), 1)?;

    // At what, how accesses are seen, and who acts: nothing is to be done here.
    let members = Members::new(root, TargetSpec::of_pids(&[pid.parse()?]))?;
    let actor = Actor::new(PageoutLimits::default(), true);
    let ops = Vaddr::new(root, members, tracker::best(root, 1), actor);

    // Callbacks: after each sampling interval, and after each aggregation interval.
    let mut looks = 0_u64;
    let sink = move |event: &Event<'_>| match event {
        Event::Sampled { .. } => looks += 1,
        Event::Aggregated { targets, .. } => {
            let regions = targets.iter().flat_map(|target| target.regions);
            let touched: Bytes = regions.filter(|r| r.nr_accesses > 0).map(Region::len).sum();
            println!("look {looks}: working set {} bytes ({touched})", touched.0);
        }
        _ => {}
    };

    // Start; after half the time, commit a longer aggregation interval; then stop.
    let kdamond = Kdamond::start(0, Parts { context, ops, sink })?;
    sleep(half);
    let aggr = Nanos::millis(200);
    let slower = move |parts: &mut Parts<_, _>| {
        parts.context.set_attrs(Attrs {
            aggr,
            ..Attrs::default()
        })
    };
    kdamond.call(slower).transpose()?;
    sleep(half);
    println!("ended: {:?}", kdamond.stop().why);
    Ok(())
}
