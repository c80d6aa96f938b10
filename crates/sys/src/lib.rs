//! One safe function per kernel interface. Readers take a root path, so that tests can build a fake `/proc`.

pub mod kpageflags;
pub mod pagemap;
pub mod pidfd;
pub mod process_madvise;
pub mod process_vm;
