//! A proactive reclaimer: pages out memory that a process has not accessed for a while, with a limit per
//! second.
//!
//! `cargo run -p thermo-runtime --example proactive_reclaimer -- PID MIN_AGE SECONDS` (e.g. `4242 30s 600`)

use std::error::Error;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use thermo_actions::preset::Reclaim;
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::{Attrs, Context, Event, Scheme};
use thermo_runtime::Vaddr;
use thermo_runtime::host::Host;
use thermo_runtime::kdamond::{Kdamond, Parts};
use thermo_targets::{LayoutRule, TargetSpec, TrackedProcesses};
use thermo_units::{Bytes, Nanos};

/// Pages out memory not accessed for `min_age`, at most `quota_sz` per second, at any amount of free memory.
fn pageout(min_age: Nanos, quota_sz: Bytes) -> Scheme {
    let mut preset = Reclaim::default();
    (preset.min_age, preset.quota_sz) = (min_age, quota_sz);
    let watermarks = Default::default();
    Scheme {
        watermarks,
        ..preset.scheme()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, min_age, seconds] = &arguments[..] else {
        return Err("usage: proactive_reclaimer PID MIN_AGE SECONDS".into());
    };
    let (root, half) = (Path::new("/"), Duration::from_secs(seconds.parse()?) / 2);
    let min_age: Nanos = min_age.parse()?;

    let mut context = Context::new(Attrs::default(), 1)?;
    context.set_schemes(vec![pageout(min_age, Bytes::mib(256))])?;
    // Monitors only the mappings, so that the quota is not spent on the gaps between them.
    let mut spec = TargetSpec::for_pids(&[pid.parse()?]);
    spec.layout = LayoutRule::Mappings;
    let targets = TrackedProcesses::new(root, spec)?;
    let actor = Actor::new(PageoutLimits::default(), false);
    let tracker = Host::probe().open_own_tracker(1)?.tracker;
    let ops = Vaddr::new(root, targets, tracker, actor);
    let sink = |event: &Event<'_>| match event {
        Event::SchemeApplied { stats, .. } => println!("{} of {} tried", stats.sz_applied, stats.sz_tried),
        Event::Warning { text, .. } => eprintln!("{text}"),
        _ => {}
    };

    // After half the time, a smaller quota is set. Regions and statistics are kept.
    let kdamond = Kdamond::start(0, Parts { context, ops, sink })?;
    sleep(half);
    let gentler = vec![pageout(min_age, Bytes::mib(64))];
    let commit = move |parts: &mut Parts<_, _>| parts.context.set_schemes(gentler);
    kdamond.call(commit).transpose()?;
    sleep(half);
    let parts = kdamond.stop().parts;
    println!("ended: {:?}", parts.context.schemes()[0].stats());
    Ok(())
}
