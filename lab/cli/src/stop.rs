//! Ctrl-C during an experiment: aborts the current run and restores the machine's settings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use thermo_term::interrupt;

/// How often the thread checks for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns a flag that becomes true after SIGINT or SIGTERM. The thread that sets it runs until the process
/// ends.
///
/// # Errors
/// When the signal handlers cannot be installed.
pub fn on_signal() -> io::Result<Arc<AtomicBool>> {
    interrupt::listen()?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    thread::spawn(move || {
        while !interrupt::requested() {
            thread::sleep(POLL_INTERVAL);
        }
        flag.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}
