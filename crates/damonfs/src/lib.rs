//! DAMON's control files over this engine: tools written for `/sys/kernel/mm/damon` work unchanged.
//!
//! Three layers, each of which can be had without the one above:
//!
//! 1. `table` declares every file once: name, mode, kind of value, default. [`Tree`] is made from it and holds what
//!    was staged; it parses, formats and refuses as the kernel does and knows no engine.
//! 2. [`ControlFiles`] adds what files do: start, change and ask kdamonds of ours ([`Engine`]). There are three
//!    layouts: [`Control`] (`/sys/kernel/mm/damon`), [`Early`] (`/sys/kernel/debug/damon`, before Linux 6.14) and
//!    [`Modules`] (parameters of the kernel's ready-made modules), which may share an engine.
//! 3. [`Mounted`] shows one through FUSE.
//!
//! The file set of [`Control`] is that of Linux 6.18, in which tools look for features: what is not carried out here
//! (`dests`, `addr_unit`) is staged and shown all the same. Nothing here reads or writes the kernel's own files.

mod control;
mod debugfs;
mod engine;
mod files;
mod fuse;
mod modules;
mod staged;
mod table;
mod trace;
mod tree;
mod value;

pub use control::Control;
pub use debugfs::Early;
pub use engine::{Engine, Tell, TrackerFactory};
pub use files::{ControlFiles, GivenUp, Write};
pub use fuse::Mounted;
pub use modules::Modules;
pub use rustix::io::Errno;
pub use trace::{TRACED_EVENTS, Trace};
pub use tree::{Ino, Node, Tree};
