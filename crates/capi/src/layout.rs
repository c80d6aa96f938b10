//! The structs of the header. A test compiles the header and compares the layouts.

/// `THERMO_DRY`.
pub(crate) const DRY: u32 = 1;
/// `THERMO_SKIP_YOUNG`.
pub(crate) const SKIP_YOUNG: u32 = 2;
/// `THERMO_UNKNOWN`.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// `struct thermo_hint`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ThermoHint {
    pub(crate) process: u32,
    pub(crate) action: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// `struct thermo_result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ThermoResult {
    pub(crate) advised: u64,
    pub(crate) changed: u64,
    pub(crate) skipped: u64,
    pub(crate) reason: u32,
    pub(crate) refused: u32,
}

/// `struct thermo_limits`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ThermoLimits {
    pub(crate) max_bytes: u64,
    pub(crate) max_ns: u64,
    pub(crate) max_cpu_ns: u64,
    pub(crate) kind: u32,
    pub(crate) flags: u32,
}
