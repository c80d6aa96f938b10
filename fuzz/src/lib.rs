//! Fuzz targets: every parser and protocol that reads bytes of others. `make fuzz` runs them, `make nightly`
//! each for 10 s, and the test `corpus`, a part of `make test`, runs each on the inputs in `fuzz/corpus`.
//!
//! A target is a function of bytes. It panics on a finding: a panic of the parser, an overflow, or a broken
//! promise that the target checks. The engine (libFuzzer) finds timeouts and excessive memory itself.

#[cfg(feature = "daemons")]
pub mod daemons;
#[cfg(feature = "formats")]
pub mod formats;
#[cfg(feature = "machine")]
pub mod machine;
#[cfg(feature = "network")]
pub mod network;
#[cfg(feature = "recordings")]
pub mod recordings;
#[cfg(feature = "reports")]
pub mod reports;
#[cfg(any(
    feature = "daemons",
    feature = "machine",
    feature = "recordings",
    feature = "reports"
))]
#[allow(dead_code, reason = "each group uses a part of it")]
mod root;

#[cfg(feature = "libfuzzer")]
pub use libfuzzer_sys;

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name, also that of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Runs it on one input.
    pub run: fn(&[u8]),
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8])) -> Self {
        Self { name, run }
    }
}

/// The target that the environment variable `FUZZ_TARGET` names.
///
/// # Panics
/// Panics with the list of names if it names none of `targets`.
#[must_use]
pub fn selected(targets: &[Target]) -> Target {
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = targets.iter().find(|target| target.name == wanted);
    let Some(target) = found else {
        let names: Vec<&str> = targets.iter().map(|target| target.name).collect();
        panic!("FUZZ_TARGET is {wanted:?}: set it to one of {}", names.join(" "));
    };
    *target
}

/// The entry of a program that fuzzes one of `targets`.
#[cfg(feature = "libfuzzer")]
#[macro_export]
macro_rules! fuzz {
    ($targets:expr) => {
        static SELECTED: std::sync::LazyLock<$crate::Target> =
            std::sync::LazyLock::new(|| $crate::selected($targets));

        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| (SELECTED.run)(data));
    };
}
