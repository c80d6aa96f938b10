//! The system call that moves pages, for a process that is held.

use std::io;

use thermo_kernel::move_pages::{self, PageStatus};
use thermo_targets::Process;
use thermo_units::Addr;

/// The two calls of the kernel. See [`move_pages`].
pub trait MovePages {
    fn move_pages(
        &mut self,
        pages: &[Addr],
        nodes: &[u32],
        statuses: &mut Vec<PageStatus>,
    ) -> io::Result<usize>;
    fn query(&mut self, pages: &[Addr], statuses: &mut Vec<PageStatus>) -> io::Result<()>;
}

/// The kernel, for the process with this pid.
pub struct Kernel(pub u32);

impl MovePages for Kernel {
    fn move_pages(
        &mut self,
        pages: &[Addr],
        nodes: &[u32],
        statuses: &mut Vec<PageStatus>,
    ) -> io::Result<usize> {
        move_pages::move_pages(self.0, pages, nodes, statuses)
    }

    fn query(&mut self, pages: &[Addr], statuses: &mut Vec<PageStatus>) -> io::Result<()> {
        move_pages::query(self.0, pages, statuses)
    }
}

/// Calls by the number of `process`, which another process may have once this one has ended: none is made
/// then, and the answer to a call in whose time it ended does not count.
pub struct Living<'a, T> {
    process: &'a Process,
    calls: T,
}

/// The `calls` for a process, none of which reaches a later process with the same number.
pub const fn living<T>(process: &Process, calls: T) -> Living<'_, T> {
    Living { process, calls }
}

impl<T> Living<'_, T> {
    fn check(&self) -> io::Result<()> {
        match self.process.is_alive() {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }
}

impl<T: MovePages> MovePages for Living<'_, T> {
    fn move_pages(
        &mut self,
        pages: &[Addr],
        nodes: &[u32],
        statuses: &mut Vec<PageStatus>,
    ) -> io::Result<usize> {
        self.check()?;
        self.calls.move_pages(pages, nodes, statuses)
    }

    fn query(&mut self, pages: &[Addr], statuses: &mut Vec<PageStatus>) -> io::Result<()> {
        self.check()?;
        self.calls.query(pages, statuses)?;
        self.check()
    }
}
