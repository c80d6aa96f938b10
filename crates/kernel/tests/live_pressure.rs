//! The pressure of this machine, and being woken by it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use thermo_kernel::psi::{self, Trigger};
use thermo_units::Nanos;

#[test]
fn pressure_only_grows_and_can_be_waited_for() {
    let root = Path::new("/");
    let Ok(before) = psi::system(root) else {
        eprintln!("SKIP: this kernel does not tell the pressure of memory (psi=1 at boot)");
        return;
    };
    assert!(psi::system(root).unwrap() >= before);
    let path = psi::system_file(root);
    match Trigger::new(&path, Nanos::millis(150), Nanos::secs(2)) {
        // Whether there is pressure is not ours to say.
        Ok(trigger) => drop(trigger.wait(Nanos::millis(1)).unwrap()),
        Err(err) => eprintln!("SKIP: no pressure trigger can be set here: {err}"),
    }
}
