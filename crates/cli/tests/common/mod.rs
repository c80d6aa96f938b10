//! Running the real command, for all tests.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit of conditions, for the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The command under test, in `dir`.
pub fn thermo(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermo"));
    command.current_dir(dir).args(arguments);
    command
}

/// Starts the command under test, with its output discarded.
pub fn spawn_quiet(dir: &Path, arguments: &[&str]) -> Guard {
    spawn_command_quiet(thermo(dir, arguments))
}

/// Starts any command, with its output discarded.
pub fn spawn_command_quiet(mut command: Command) -> Guard {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    Guard(command.spawn().unwrap())
}

/// The path of thermo-lab, which runs workloads.
///
/// Cargo builds only the binaries of the test's own package, so thermo-lab exists after `cargo test
/// --workspace` or `cargo build`.
pub fn lab() -> PathBuf {
    let lab = Path::new(env!("CARGO_BIN_EXE_thermo")).with_file_name("thermo-lab");
    assert!(
        lab.exists(),
        "these tests need workloads of thermo-lab, and {} does not exist: run `cargo build -p thermo-lab` first",
        lab.display()
    );
    lab
}

/// `thermo-lab workload` with these arguments, in `dir`.
pub fn lab_workload(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(lab());
    command.current_dir(dir).arg("workload").args(arguments);
    command
}

/// Starts the workload of a configuration, with its output discarded.
pub fn start_workload(dir: &Path, config: &Path) -> Guard {
    spawn_command_quiet(lab_workload(dir, &["-q", config.to_str().unwrap()]))
}

/// Runs the command under test to its end.
pub fn run(dir: &Path, arguments: &[&str]) -> Output {
    thermo(dir, arguments).output().unwrap()
}

/// Runs the command under test, which must succeed. Returns its standard output as JSON.
pub fn json(dir: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = run(dir, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every verb that `--help` lists, as its words, with its help. The program itself comes first, without
/// words.
pub fn help_of_all_verbs(dir: &Path) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    let mut verbs = vec![Vec::new()];
    while let Some(verb) = verbs.pop() {
        let arguments: Vec<&str> = verb.iter().map(String::as_str).chain(["--help"]).collect();
        let help = String::from_utf8(run(dir, &arguments).stdout).unwrap();
        verbs.extend(subverbs(&help, &verb));
        found.push((verb, help));
    }
    found
}

/// The verbs below "Commands:", each preceded by its parent verbs.
fn subverbs(help: &str, parents: &[String]) -> Vec<Vec<String>> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    listed
        .take_while(|line| !line.is_empty())
        // Lines with a deeper indent continue a description.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(|name| parents.iter().cloned().chain([name.to_owned()]).collect())
        .collect()
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a workload configuration of two small regions, one of them hot, that runs for `ms` milliseconds.
pub fn workload(dir: &Path, ms: u32) -> io::Result<PathBuf> {
    let path = dir.join("hot-cold.cfg");
    let text = format!(
        "hot, 16777216\ncold, 33554432\n\nall\n300\nhot, 0, 4096, 1\ncold, 0, 4096, 1\n\nhot\n{ms}\nhot, 0, 4096, 1\n"
    );
    std::fs::write(&path, text).map(|()| path)
}

/// Waits until `condition` holds. Returns false after [`PATIENCE`].
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

/// Whether a tracker can be used; prints SKIP otherwise.
pub fn has_tracker(dir: &Path) -> bool {
    let doctor = run(dir, &["doctor", "--json"]);
    if !doctor.status.success() {
        eprintln!("SKIP: no tracker can be used on this machine");
    }
    doctor.status.success()
}

/// A child process that is killed at the end of the test.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the recording `file` in `dir`, which may be in progress, has some snapshots.
pub fn has_snapshots(dir: &Path, file: &str) -> bool {
    snapshots(dir, file) >= 5
}

/// The number of snapshots in the recording `file` in `dir`, which may be in progress.
pub fn snapshots(dir: &Path, file: &str) -> u64 {
    let output = run(dir, &["report", "info", file, "--json"]);
    let info = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_default();
    info["snapshots"].as_u64().unwrap_or(0)
}
