//! Running the real binary, for every test of the command.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a condition may take on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The command under test, in `folder`.
pub fn thermo(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermo"));
    command.current_dir(folder).args(arguments);
    command
}

/// The command under test, started and not heard of.
pub fn quiet(folder: &Path, arguments: &[&str]) -> Guard {
    quiet_of(thermo(folder, arguments))
}

/// Any command, started and not heard of.
pub fn quiet_of(mut command: Command) -> Guard {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    Guard(command.spawn().unwrap())
}

/// The command that makes workloads, beside the one under test.
///
/// Cargo builds the commands of a test's own package only, so this one is there after `cargo test --workspace` or
/// `cargo build`.
pub fn lab() -> PathBuf {
    let lab = Path::new(env!("CARGO_BIN_EXE_thermo")).with_file_name("thermo-lab");
    assert!(
        lab.exists(),
        "these tests watch workloads of thermo-lab, and there is no {}: run  cargo build -p thermo-lab  first",
        lab.display()
    );
    lab
}

/// `thermo-lab workload` with these arguments, in `folder`.
pub fn lab_workload(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(lab());
    command.current_dir(folder).arg("workload").args(arguments);
    command
}

/// The workload of a configuration, started and not heard of.
pub fn start_workload(folder: &Path, config: &Path) -> Guard {
    quiet_of(lab_workload(folder, &["-q", config.to_str().unwrap()]))
}

/// What it printed, and how it ended.
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    thermo(folder, arguments).output().unwrap()
}

/// Its standard output as JSON.
pub fn json(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Its standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A configuration of two small regions, one of them hot, that takes `ms` milliseconds.
pub fn workload(folder: &Path, ms: u32) -> io::Result<PathBuf> {
    let path = folder.join("hot-cold.cfg");
    let text = format!(
        "hot, 16777216\ncold, 33554432\n\nall\n300\nhot, 0, 4096, 1\ncold, 0, 4096, 1\n\nhot\n{ms}\nhot, 0, 4096, 1\n"
    );
    std::fs::write(&path, text).map(|()| path)
}

/// Asks `condition` again and again until it holds; false when patience ends.
pub fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !condition() {
        if begin.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Whether some tracker can be used; says why not otherwise.
pub fn can_watch(folder: &Path) -> bool {
    let doctor = run(folder, &["doctor", "--json"]);
    if !doctor.status.success() {
        eprintln!("SKIP: no tracker can be used on this machine");
    }
    doctor.status.success()
}

/// A child that does not outlive its test.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the recording being made in `file` of `here` holds some snapshots already.
pub fn has_snapshots(here: &Path, file: &str) -> bool {
    snapshots(here, file) >= 5
}

/// How many snapshots the recording being made in `file` of `here` holds by now.
pub fn snapshots(here: &Path, file: &str) -> u64 {
    let output = run(here, &["report", "info", file, "--json"]);
    let info = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_default();
    info["snapshots"].as_u64().unwrap_or(0)
}
