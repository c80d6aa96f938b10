//! The interface between a layout and the file system that serves it: a tree, reads and writes.

use std::fmt::Debug;
use std::sync::MutexGuard;

use rustix::io::Errno;

use crate::table::Role;
use crate::tree::{Ino, Tree};

/// Returns true once the client no longer waits for its request.
pub type IsCancelled<'a> = &'a dyn Fn() -> bool;

/// One write to a file.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The bytes.
    pub text: &'a [u8],
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// A write that has to wait fails with EINTR once this returns true.
    pub is_cancelled: IsCancelled<'a>,
}

impl<'a> Write<'a> {
    /// A write at offset 0 that is never cancelled.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            offset: 0,
            is_cancelled: &|| false,
        }
    }
}

/// Control files of one layout.
pub trait ControlFiles: Debug + Send + Sync {
    /// The staged values.
    fn tree(&self) -> MutexGuard<'_, Tree>;

    /// Returns the content of a file.
    ///
    /// # Errors
    /// EISDIR: a directory. ENODEV: the file is gone. The layout's errno for files that cannot be read.
    fn read(&self, ino: Ino) -> Result<String, Errno>;

    /// Writes to a file and returns the number of bytes consumed.
    ///
    /// # Errors
    /// The errno that the kernel returns for this write. Nothing changes then.
    fn write(&self, ino: Ino, write: Write<'_>) -> Result<usize, Errno>;

    /// Stops every kdamond of this layout.
    fn stop_all(&self);

    /// Returns true for a file whose writes may block for a long time.
    fn is_slow(&self, ino: Ino) -> bool {
        let slow = [Role::State, Role::MonitorOn, Role::Enabled, Role::CommitInputs];
        self.tree()
            .node(ino)
            .is_ok_and(|node| slow.contains(&node.role()))
    }
}
