//! The examples work on a real process.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Target, retry, swap, swapped};
use thermo_engine::TargetId;
use thermo_kernel::meminfo;
use thermo_kernel::process_madvise::{Advice, process_madvise};
use thermo_units::Bytes;

#[test]
fn child() {
    common::run_if_child();
}

/// Path of an example program, in the folder next to that of the tests. Cargo builds the examples together
/// with all tests. If only this test was built, the examples are built here.
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

/// Runs an example to its end and calls `meanwhile` again and again. Returns the output of the example.
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
fn working_set_logger_prints_accessed_memory() {
    let mut target = Target::start(8 << 20);
    let (pid, range) = (target.pid().to_string(), target.range);
    retry(|| {
        let output = run("working_set_logger", &[&pid, "2"], || target.touch(range));
        assert!(output.contains("ended: Stopped"), "{output}");
        let sizes = output
            .lines()
            .filter_map(|line| line.split_once("working set "))
            .filter_map(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
        if sizes.max() > Some(0) {
            Ok(())
        } else {
            Err(format!("no access was found: {output}"))
        }
    });
}

/// True if other processes can be advised, and more swap is free than the reclaimer leaves free.
fn can_page_out(target: &Target) -> bool {
    let process = &target.processes()[&TargetId(0)];
    if let Err(why) = process_madvise(&process.pidfd, &[target.range], Advice::Cold) {
        eprintln!("SKIP: memory of other processes cannot be advised here: {why}");
        return false;
    }
    let memory = meminfo::read(Path::new("/")).unwrap();
    let is_enough = memory.swap_free.0 > memory.swap_total.0 / 4;
    if !is_enough {
        eprintln!(
            "SKIP: only {} of {} of swap are free",
            memory.swap_free, memory.swap_total
        );
    }
    is_enough
}

#[test]
fn proactive_reclaimer_pages_out_idle_memory() {
    let Some(_swap) = swap() else { return };
    let target = Target::start(32 << 20);
    if !can_page_out(&target) {
        return;
    }
    let pid = target.pid().to_string();
    retry(|| {
        let output = run("proactive_reclaimer", &[&pid, "500ms", "4"], || {});
        assert!(output.contains("ended: SchemeStats"), "{output}");
        // A part is enough: if swap is nearly full, the rest stays.
        if swapped(target.pid(), target.range) > Bytes::ZERO {
            Ok(())
        } else {
            Err(format!("nothing was paged out: {output}"))
        }
    });
}
