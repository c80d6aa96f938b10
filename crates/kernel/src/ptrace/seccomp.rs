//! The seccomp filters of a stopped thread.

use std::io;

use super::{Tracee, request, request_into};

/// One instruction of a filter (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions to skip if the condition is true.
    pub jump_true: u8,
    /// Instructions to skip if it is false.
    pub jump_false: u8,
    /// The operand.
    pub k: u32,
}

/// Maximum length of a filter (`BPF_MAXINSNS`).
const MAX_INSTRUCTIONS: usize = 4096;

impl Tracee {
    /// Reads the filters of a thread that has some, newest first.
    ///
    /// # Errors
    /// `EINVAL` if it has none, and on kernels that do not show them (without CONFIG_CHECKPOINT_RESTORE):
    /// only the thread's status distinguishes the two. `EACCES` without CAP_SYS_ADMIN, or if this process has
    /// filters itself; `EMEDIUMTYPE` for a filter that is not classic BPF; `ENOSYS` on kernels without the
    /// request.
    pub fn seccomp_filters(&self) -> io::Result<Vec<Vec<Instruction>>> {
        let mut filters = Vec::new();
        loop {
            match self.filter(filters.len()) {
                Ok(filter) => filters.push(filter),
                // No further filter.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(filters),
                // The kernel does not know the request.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                    return Err(io::Error::from_raw_os_error(libc::ENOSYS));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn filter(&self, index: usize) -> io::Result<Vec<Instruction>> {
        const GET_FILTER: libc::c_uint = 0x420c;
        // SAFETY: with a null pointer, only the length is returned.
        let length = unsafe { request(GET_FILTER, self.tid(), index, 0) }?;
        let length = usize::try_from(length).unwrap_or(0).min(MAX_INSTRUCTIONS);
        let mut filter = vec![Instruction::default(); length];
        if length > 0 {
            let address = filter.as_mut_ptr().expose_provenance();
            // SAFETY: the filter at an index never changes, so the kernel writes `length` instructions, for
            // which `filter` has room.
            unsafe { request(GET_FILTER, self.tid(), index, address) }?;
        }
        Ok(filter)
    }

    /// Whether the program handles its own system calls (`PR_SET_SYSCALL_USER_DISPATCH`); `None` on kernels
    /// before 6.4, which do not show it.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped.
    pub fn dispatches_syscalls(&self) -> io::Result<Option<bool>> {
        const GET_CONFIG: libc::c_uint = 0x4211;
        let mut config = [0_u64; 4];
        match request_into(GET_CONFIG, self.tid(), size_of_val(&config), &mut config) {
            Ok(_) => Ok(Some(config[0] != 0)),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(error),
            Err(_) => Ok(None),
        }
    }
}
