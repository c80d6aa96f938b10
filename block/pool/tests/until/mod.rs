//! Waiting for other threads.

use std::time::{Duration, Instant};

/// Timeout, generous for slow machines.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `holds` returns true. Panics with `what` after the timeout.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
