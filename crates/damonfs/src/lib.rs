//! DAMON's control files over this engine: tools written for `/sys/kernel/mm/damon` work unchanged.
//!
//! Three layers, each of which can be had without the one above:
//!
//! 1. `table` declares every file of the tree once: name, mode, kind of value, default. [`Tree`] is made from it
//!    and holds what was staged; it parses, formats and refuses as the kernel does and knows no engine.
//! 2. [`Control`] adds the files that do something: commands written to `state` start, change and ask kdamonds
//!    of ours ([`Engine`]).
//! 3. [`Mounted`] shows it through FUSE.
//!
//! The file set is that of Linux 6.18, in which tools look for features: what is not carried out here (`dests`,
//! `addr_unit`) is staged and shown all the same. Nothing here reads or writes the kernel's own tree.

mod control;
mod engine;
mod fuse;
mod staged;
mod table;
mod trace;
mod tree;
mod value;

pub use control::Control;
pub use engine::{Engine, Looks};
pub use fuse::Mounted;
pub use rustix::io::Errno;
pub use table::Layout;
pub use trace::{TRACED_EVENTS, Trace};
pub use tree::{Ino, Node, Tree};
