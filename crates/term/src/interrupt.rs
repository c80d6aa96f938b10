//! Ctrl-C: the first requests an orderly shutdown, the second exits at once with status 130.

use std::io;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use thermo_kernel::signals;

/// Interval at which a second Ctrl-C is checked for.
const POLL: Duration = Duration::from_millis(100);
/// A second signal within this time is the same request, delivered twice: timeout(1) signals us, and then our
/// process group.
const DUPLICATE_WINDOW: Duration = Duration::from_millis(50);

static WATCHER: Once = Once::new();

/// Installs handlers for SIGINT, SIGTERM and SIGHUP.
///
/// # Errors
/// Fails if the handlers cannot be installed.
pub fn listen() -> io::Result<()> {
    signals::install()
}

/// True once a shutdown was requested. From the first call that returns true, a second signal ends the
/// process, even if it is blocked.
pub fn requested() -> bool {
    if signals::termination_count() == 0 {
        return false;
    }
    // If the thread cannot be started, only the orderly shutdown remains.
    WATCHER.call_once(|| {
        drop(
            thread::Builder::new()
                .name("second-signal".to_owned())
                .spawn(exit_at_second_signal),
        )
    });
    true
}

fn exit_at_second_signal() {
    thread::sleep(DUPLICATE_WINDOW);
    let first = signals::termination_count();
    while signals::termination_count() == first {
        thread::sleep(POLL);
    }
    std::process::exit(130);
}
