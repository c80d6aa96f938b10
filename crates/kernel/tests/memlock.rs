//! Locking memory. In a program of its own, as it is the whole process's that is locked.

use thermo_kernel::memlock;

#[test]
fn locking_works_or_says_why() {
    if let Err(err) = memlock::lock_on_fault() {
        assert!(err.raw_os_error().is_some(), "{err}");
    }
}
