//! One safe function per kernel interface. Readers take a root path, so that tests can build a fake `/proc`.

pub mod clock;
