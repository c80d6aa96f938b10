//! Waiting for what other threads do.

use std::time::{Duration, Instant};

/// How long it may take on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `holds`, or fails with `what` was waited for.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
