//! Fuzzes one target of this group: see `thermo_fuzz::fuzz!`.
#![no_main]

thermo_fuzz::fuzz!(thermo_fuzz::reports::TARGETS);
