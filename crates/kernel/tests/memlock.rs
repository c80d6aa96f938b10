//! Memory locking. A separate test program, because it locks the memory of the whole process.

use thermo_kernel::memlock;

#[test]
fn lock_on_fault_works_or_gives_errno() {
    if let Err(err) = memlock::lock_on_fault() {
        assert!(err.raw_os_error().is_some(), "{err}");
    }
}
