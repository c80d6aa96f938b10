//! Tracker `smaps` on real processes: memory in use is distinguished from idle memory.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use thermo_backends::Tracker as _;
use thermo_backends::smaps::Smaps;
use thermo_engine::TargetId;
use thermo_engine::ops::{CheckResult, Probe};
use thermo_kernel::clear_refs;
use thermo_kernel::maps;
use thermo_targets::{Process, Processes};
use thermo_units::Addr;

const ID: TargetId = TargetId(0);
/// Longer than a round takes for a program this small.
const ROUND: Duration = Duration::from_millis(300);

// Forking writes the stack and flushes the TLB; without a flush an accessed bit may stay clear for long.
#[test]
fn stack_in_use_is_accessed() {
    wait_for("while :; do (:); done", "accessed", |probes| {
        probes.iter().any(|probe| probe.result == CheckResult::Accessed)
    });
}

#[test]
fn stack_of_waiting_process_is_idle() {
    wait_for("read x", "idle", |probes| {
        probes.iter().all(|probe| probe.result == CheckResult::Idle)
    });
}

/// Monitors the stack of a shell that runs `script` until `done` holds, for at most a minute.
fn wait_for(script: &str, what: &str, done: impl Fn(&[Probe]) -> bool) {
    let mut child = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let found = monitor(child.id(), done);
    child.kill().unwrap();
    child.wait().unwrap();
    match found {
        Ok(found) => assert!(found, "the stack was not found {what} within a minute"),
        Err(why) => eprintln!("SKIP: {why}"),
    }
}

fn monitor(pid: u32, done: impl Fn(&[Probe]) -> bool) -> Result<bool, String> {
    let processes = Processes::from([(ID, Process::open(ID, pid).unwrap())]);
    let mut tracker = Smaps::new(Path::new("/"), 1);
    clear_refs::clear(Path::new("/"), pid).map_err(|why| why.to_string())?;
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < Duration::from_secs(60) {
        let mut probes = stack_probes(pid);
        tracker.prepare(&processes, &probes);
        std::thread::sleep(ROUND);
        tracker.check(&processes, &mut probes);
        let known = !probes.is_empty() && probes.iter().all(|probe| probe.result != CheckResult::Unknown);
        rounds += u32::from(known);
        // The first rounds still see the start of the program.
        if known && rounds > 2 && done(&probes) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn stack_probes(pid: u32) -> Vec<Probe> {
    let mappings = maps::read(Path::new("/"), pid).unwrap();
    let stack = mappings.into_iter().find(|mapping| mapping.name == "[stack]");
    let pages = stack
        .into_iter()
        .flat_map(|stack| (stack.range.start.0..stack.range.end.0).step_by(4096));
    pages
        .map(|addr| Probe {
            target: ID,
            addr: Addr(addr),
            result: CheckResult::Unknown,
        })
        .collect()
}
