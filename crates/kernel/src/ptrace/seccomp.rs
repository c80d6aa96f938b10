//! The filters on a stopped thread's system calls.

use std::io;

use super::{Tracee, into, request};

/// One instruction of a filter (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// How many instructions to skip when true.
    pub jump_true: u8,
    /// How many when false.
    pub jump_false: u8,
    /// A number.
    pub k: u32,
}

/// What no filter is longer than.
const MOST: usize = 4096;

impl Tracee {
    /// Reads its filters, the newest first, of a thread that has some.
    ///
    /// # Errors
    /// `EINVAL` when it has none, and on kernels that do not show them (without CONFIG_CHECKPOINT_RESTORE): which of
    /// both only its status tells. `EACCES` without CAP_SYS_ADMIN, or when we are filtered ourselves; `EMEDIUMTYPE` for
    /// one that is no program of this kind; `ENOSYS` on kernels without the request.
    pub fn seccomp_filters(&self) -> io::Result<Vec<Vec<Instruction>>> {
        let mut filters = Vec::new();
        loop {
            match self.filter(filters.len()) {
                Ok(filter) => filters.push(filter),
                // There is no further one.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(filters),
                // A request the kernel does not know.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                    return Err(io::Error::from_raw_os_error(libc::ENOSYS));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn filter(&self, index: usize) -> io::Result<Vec<Instruction>> {
        const GET_FILTER: libc::c_uint = 0x420c;
        // SAFETY: without a place to write to, only the length is answered.
        let length = unsafe { request(GET_FILTER, self.tid(), index, 0) }?;
        let length = usize::try_from(length).unwrap_or(0).min(MOST);
        let mut filter = vec![Instruction::default(); length];
        if length > 0 {
            let place = filter.as_mut_ptr().expose_provenance();
            // SAFETY: the filter of a number never changes, so the kernel writes `length` instructions, which have
            // their place in `filter`.
            unsafe { request(GET_FILTER, self.tid(), index, place) }?;
        }
        Ok(filter)
    }

    /// Whether the program wants to see its own system calls before the kernel does (`PR_SET_SYSCALL_USER_DISPATCH`);
    /// kernels before 6.4 do not tell.
    ///
    /// # Errors
    /// `ESRCH` when it is not stopped.
    pub fn dispatches_syscalls(&self) -> io::Result<Option<bool>> {
        const GET_CONFIG: libc::c_uint = 0x4211;
        let mut config = [0_u64; 4];
        match into(GET_CONFIG, self.tid(), size_of_val(&config), &mut config) {
            Ok(_) => Ok(Some(config[0] != 0)),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(error),
            Err(_) => Ok(None),
        }
    }
}
