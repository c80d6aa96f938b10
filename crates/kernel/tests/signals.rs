//! Termination signals. A separate test program, because handlers apply to the whole process.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_kernel::signals;

#[test]
fn termination_signals_are_counted() {
    signals::install().unwrap();
    assert_eq!((signals::termination_count(), signals::last()), (0, None));
    for count in 1..=2 {
        // SAFETY: a signal to ourselves, whose handler was just installed.
        assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
        assert_eq!(
            (signals::termination_count(), signals::last()),
            (count, Some(libc::SIGTERM))
        );
    }
    signals::reload_on_hangup().unwrap();
    assert!(!signals::take_hangup());
    // SAFETY: as above.
    assert_eq!(unsafe { libc::raise(libc::SIGHUP) }, 0);
    assert!(signals::take_hangup() && !signals::take_hangup());
    assert_eq!(
        signals::termination_count(),
        2,
        "SIGHUP does not request termination"
    );
}
