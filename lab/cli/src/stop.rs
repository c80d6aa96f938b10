//! Ctrl-C during an experiment: the run under way is given up, and everything is restored.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use thermo_term::interrupt;

/// How soon an interruption is noticed.
const POLL: Duration = Duration::from_millis(50);

/// A flag that is set once an orderly end was asked for. The thread that sets it ends with the process.
///
/// # Errors
/// Signals cannot be listened to.
pub fn at_signal() -> io::Result<Arc<AtomicBool>> {
    interrupt::listen()?;
    let stop = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&stop);
    thread::spawn(move || {
        while !interrupt::asked() {
            thread::sleep(POLL);
        }
        theirs.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}
