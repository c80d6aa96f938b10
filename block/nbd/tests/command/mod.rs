//! The command `thermo-nbd` as a process, for test programs.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Timeout, generous for slow machines.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The command under test, with `folder` as working directory.
pub fn thermo_nbd(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermo-nbd"));
    command.current_dir(folder).args(arguments);
    command
}

/// Polls `condition` until it holds. False after the timeout.
pub fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !condition() {
        if begin.elapsed() > TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}
