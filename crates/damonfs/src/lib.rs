//! DAMON's control files, implemented by this engine: tools written for `/sys/kernel/mm/damon` work
//! unchanged.
//!
//! Three layers. Each layer works without the layers above it:
//!
//! 1. `table` declares every file once: name, mode, kind of value, default. [`Tree`] is built from the table
//!    and holds the staged values. It parses, formats and rejects values as the kernel does, without an
//!    engine.
//! 2. [`ControlFiles`] gives files their effect: start, change and query kdamonds of this process
//!    ([`Engine`]). Three layouts implement it: [`SysfsFiles`] (`/sys/kernel/mm/damon`), [`DebugfsFiles`]
//!    (`/sys/kernel/debug/damon`, before Linux 6.14) and [`ModuleFiles`] (parameters of the kernel's DAMON
//!    modules). Layouts may share an engine.
//! 3. [`Mounted`] serves one layout through FUSE.
//!
//! [`SysfsFiles`] has the files of Linux 6.18, because tools detect features by files. A file without an
//! effect here (`addr_unit`) is still staged and shown. This crate never reads or writes the kernel's own
//! files.

// Reads what others wrote: an index that could panic or a cast that could lose bits is an error here
// (CONTRIBUTING.md, Style).
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod debugfs;
mod engine;
mod files;
mod fuse;
mod modules;
mod staged;
mod sysfs;
mod table;
mod trace;
mod tree;
mod value;

pub use debugfs::DebugfsFiles;
pub use engine::{Engine, LogFn, TrackerFactory};
pub use files::{ControlFiles, IsCancelled, Write};
pub use fuse::Mounted;
pub use modules::ModuleFiles;
pub use rustix::io::Errno;
pub use sysfs::SysfsFiles;
pub use trace::{TRACED_EVENTS, Trace};
pub use tree::{Ino, Node, Tree};
