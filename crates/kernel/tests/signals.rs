//! Signals that ask us to end. In a program of its own, as handlers are the whole process's.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_kernel::signals;

#[test]
fn a_signal_is_counted() {
    signals::install().unwrap();
    assert_eq!((signals::asked(), signals::last()), (0, None));
    for count in 1..=2 {
        // SAFETY: a signal to ourselves, whose handler was just installed.
        assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
        assert_eq!((signals::asked(), signals::last()), (count, Some(libc::SIGTERM)));
    }
    signals::reload_on_hangup().unwrap();
    assert!(!signals::take_hangup());
    // SAFETY: as above.
    assert_eq!(unsafe { libc::raise(libc::SIGHUP) }, 0);
    assert!(signals::take_hangup() && !signals::take_hangup());
    assert_eq!(signals::asked(), 2, "it asked for no end");
}
