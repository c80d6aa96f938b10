//! The memory pressure of this machine, and a trigger on it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use thermo_kernel::psi::{self, Trigger};
use thermo_units::Nanos;

#[test]
fn pressure_grows_and_trigger_can_be_set() {
    let root = Path::new("/");
    let Ok(before) = psi::system_stall(root) else {
        eprintln!("SKIP: this kernel has no PSI (boot with psi=1)");
        return;
    };
    assert!(psi::system_stall(root).unwrap() >= before);
    let path = psi::system_file(root);
    match Trigger::new(&path, Nanos::millis(150), Nanos::secs(2)) {
        // The test does not depend on actual pressure.
        Ok(trigger) => drop(trigger.wait(Nanos::millis(1)).unwrap()),
        Err(err) => eprintln!("SKIP: cannot set a pressure trigger: {err}"),
    }
}
