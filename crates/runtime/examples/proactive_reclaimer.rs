//! A proactive reclaimer: pages out what a process has not touched for a while, at most so much a second.
//!
//! `cargo run -p thermo-runtime --example proactive_reclaimer -- PID MIN_AGE SECONDS` (like `4242 30s 600`)

use std::error::Error;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use thermo_actions::preset::Reclaim;
use thermo_actions::{Actor, PageoutLimits};
use thermo_engine::{Attrs, Context, Event, Scheme};
use thermo_runtime::kdamond::{Kdamond, Parts};
use thermo_runtime::{Vaddr, best_tracker};
use thermo_targets::{LayoutRule, TargetSpec, TrackedProcesses};
use thermo_units::{Bytes, Nanos};

/// What was never seen accessed for `min_age` is paged out, at most `quota_sz` a second, however much is free.
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
    // Mappings by themselves: a quota is not to be spent on what lies between them.
    let mut spec = TargetSpec::of_pids(&[pid.parse()?]);
    spec.layout = LayoutRule::Mappings;
    let members = TrackedProcesses::new(root, spec)?;
    let actor = Actor::new(PageoutLimits::default(), false);
    let ops = Vaddr::new(root, members, best_tracker(root, 1), actor);
    let sink = |event: &Event<'_>| match event {
        Event::SchemeApplied { stats, .. } => println!("{} of {} tried", stats.sz_applied, stats.sz_tried),
        Event::Warning { text, .. } => eprintln!("{text}"),
        _ => {}
    };

    // Start; after half the time, commit a smaller quota, which keeps regions and statistics; then stop.
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
