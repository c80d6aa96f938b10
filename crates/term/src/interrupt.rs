//! Ctrl-C, once and twice: the first asks for an orderly end, the second ends at once with status 130.

use std::io;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use thermo_kernel::signals;

/// How soon a second Ctrl-C is noticed.
const POLL: Duration = Duration::from_millis(100);
/// What comes so soon is the same wish, delivered twice: timeout(1) signals us, and then our process group.
const SAME: Duration = Duration::from_millis(50);

static WATCHER: Once = Once::new();

/// Listens to SIGINT, SIGTERM and SIGHUP from now on.
///
/// # Errors
/// The handlers cannot be installed.
pub fn listen() -> io::Result<()> {
    signals::install()
}

/// True once an orderly end was asked for. From the first time it is, a second signal ends the process, whatever
/// it may be waiting for.
pub fn asked() -> bool {
    if signals::asked() == 0 {
        return false;
    }
    // Without a thread for it, the orderly end alone has to do.
    WATCHER.call_once(|| {
        drop(
            thread::Builder::new()
                .name("second-signal".to_owned())
                .spawn(end_at_second),
        )
    });
    true
}

fn end_at_second() {
    thread::sleep(SAME);
    let first = signals::asked();
    while signals::asked() == first {
        thread::sleep(POLL);
    }
    std::process::exit(130);
}
