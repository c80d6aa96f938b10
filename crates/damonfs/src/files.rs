//! What a layout is to whoever shows it: a tree, what reading a file gives, what writing to it does.

use std::fmt::Debug;
use std::sync::MutexGuard;

use rustix::io::Errno;

use crate::table::Role;
use crate::tree::{Ino, Tree};

/// Whether who asked for something has gone.
pub type GivenUp<'a> = &'a dyn Fn() -> bool;

/// What is written to a file.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The bytes.
    pub text: &'a [u8],
    /// Where in the file.
    pub offset: u64,
    /// Where it has to be waited for, it is given up with EINTR once this says that nobody waits any more.
    pub given_up: GivenUp<'a>,
}

impl<'a> Write<'a> {
    /// All of a file, by somebody who waits for as long as it takes.
    #[must_use]
    pub fn of(text: &'a [u8]) -> Self {
        Self {
            text,
            offset: 0,
            given_up: &|| false,
        }
    }
}

/// Control files of one layout.
pub trait ControlFiles: Debug + Send + Sync {
    /// The staged values.
    fn tree(&self) -> MutexGuard<'_, Tree>;

    /// What a read of a file gives.
    ///
    /// # Errors
    /// EISDIR; ENODEV when it is gone; what the layout says to files that cannot be read.
    fn read(&self, ino: Ino) -> Result<String, Errno>;

    /// Takes what is written to a file, and returns how much of it was taken.
    ///
    /// # Errors
    /// What the kernel says to it; nothing changes then.
    fn write(&self, ino: Ino, write: Write<'_>) -> Result<usize, Errno>;

    /// Stops every kdamond.
    fn stop_all(&self);

    /// True for a file whose writes may take long.
    fn is_slow(&self, ino: Ino) -> bool {
        let slow = [Role::State, Role::MonitorOn, Role::Enabled, Role::CommitInputs];
        self.tree()
            .node(ino)
            .is_ok_and(|node| slow.contains(&node.role()))
    }
}
