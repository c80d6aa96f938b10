//! The documented examples do what they say, on a real process.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Target, repeat_until_good, swap, swapped};
use thermo_engine::TargetId;
use thermo_kernel::meminfo;
use thermo_kernel::process_madvise::{Advice, process_madvise};
use thermo_units::Bytes;

#[test]
fn child() {
    common::live_as_child();
}

/// The program of an example. Whoever builds all tests builds the examples, beside the folder of the tests; whoever
/// builds this one alone gets them built now.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    if !program.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let target = tests.ancestors().nth(3).unwrap();
        let built = Command::new(cargo)
            .args([
                "build",
                "--package",
                "thermo-runtime",
                "--examples",
                "--target-dir",
            ])
            .arg(target)
            .status()
            .unwrap();
        assert!(built.success(), "the examples cannot be built");
    }
    program
}

/// Runs it to its end, having `meanwhile` done again and again. What it printed.
fn run(name: &str, arguments: &[&str], mut meanwhile: impl FnMut()) -> String {
    let mut child = Command::new(example(name))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while child.try_wait().unwrap().is_none() {
        meanwhile();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{name} {arguments:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_working_set_logger_sees_what_is_touched() {
    let mut target = Target::start(8 << 20);
    let (pid, range) = (target.pid().to_string(), target.range);
    repeat_until_good(|| {
        let told = run("working_set_logger", &[&pid, "2"], || target.touch(range));
        assert!(told.contains("ended: Stopped"), "{told}");
        let sizes = told
            .lines()
            .filter_map(|line| line.split_once("working set "))
            .filter_map(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
        if sizes.max() > Some(0) {
            Ok(())
        } else {
            Err(format!("no access was seen: {told}"))
        }
    });
}

/// True where we may advise other processes, and more swap is free than the reclaimer leaves free.
fn may_be_paged_out(target: &Target) -> bool {
    let process = &target.processes()[&TargetId(0)];
    if let Err(why) = process_madvise(process.pidfd.as_fd(), &[target.range], Advice::Cold) {
        eprintln!("SKIP: other processes' memory cannot be advised here: {why}");
        return false;
    }
    let memory = meminfo::read(Path::new("/")).unwrap();
    let enough = memory.swap_free.0 > memory.swap_total.0 / 4;
    if !enough {
        eprintln!(
            "SKIP: only {} of {} of swap are free",
            memory.swap_free, memory.swap_total
        );
    }
    enough
}

#[test]
fn the_proactive_reclaimer_pages_out_what_is_idle() {
    let Some(_swap) = swap() else { return };
    let target = Target::start(32 << 20);
    if !may_be_paged_out(&target) {
        return;
    }
    let pid = target.pid().to_string();
    repeat_until_good(|| {
        let told = run("proactive_reclaimer", &[&pid, "500ms", "4"], || {});
        assert!(told.contains("ended: SchemeStats"), "{told}");
        // Once a part of it is out, the example works: where swap is nearly full the rest has to stay.
        if swapped(target.pid(), target.range) > Bytes::ZERO {
            Ok(())
        } else {
            Err(format!("nothing was paged out: {told}"))
        }
    });
}
