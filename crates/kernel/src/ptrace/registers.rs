//! The registers of a stopped thread.

use std::io;

use super::{Tracee, request, request_into};

/// All general registers, laid out as `struct user_regs_struct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "register names of the processor manual")]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// The number of the current system call; -1 outside of one.
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// The code segment selector of 64-bit user space.
const USER_CS_64: u64 = 0x33;

const NT_PRSTATUS: usize = 1;

impl Registers {
    /// False for a thread that currently runs 32-bit code.
    #[must_use]
    pub const fn is_64_bit(&self) -> bool {
        self.cs == USER_CS_64
    }

    /// The current system call, if any.
    #[must_use]
    pub const fn syscall_nr(&self) -> Option<u64> {
        // The kernel checks the lower half only.
        if (self.orig_rax as u32).cast_signed() < 0 {
            None
        } else {
            Some(self.orig_rax)
        }
    }
}

impl Tracee {
    /// Reads the registers.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped; `ENOSYS` for a thread of a 32-bit program.
    pub fn registers(&self) -> io::Result<Registers> {
        let mut registers = Registers::default();
        let mut vector = libc::iovec {
            iov_base: (&raw mut registers).cast(),
            iov_len: size_of::<Registers>(),
        };
        request_into(libc::PTRACE_GETREGSET, self.tid(), NT_PRSTATUS, &mut vector)?;
        if vector.iov_len == size_of::<Registers>() {
            Ok(registers)
        } else {
            Err(io::Error::from_raw_os_error(libc::ENOSYS))
        }
    }

    /// Sets all registers in one request.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped; no register is changed then.
    pub fn set_registers(&mut self, registers: &Registers) -> io::Result<()> {
        let vector = libc::iovec {
            iov_base: std::ptr::from_ref(registers).cast_mut().cast(),
            iov_len: size_of::<Registers>(),
        };
        let vector = (&raw const vector).expose_provenance();
        // SAFETY: the vector, and the registers that it points to, live through the call, which only reads
        // them.
        unsafe { request(libc::PTRACE_SETREGSET, self.tid(), NT_PRSTATUS, vector) }.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_match_kernel_layout() {
        assert_eq!(size_of::<Registers>(), size_of::<libc::user_regs_struct>());
        assert_eq!(
            std::mem::offset_of!(Registers, orig_rax),
            std::mem::offset_of!(libc::user_regs_struct, orig_rax)
        );
        assert_eq!(
            std::mem::offset_of!(Registers, rsp),
            std::mem::offset_of!(libc::user_regs_struct, rsp)
        );
        assert_eq!(
            std::mem::offset_of!(Registers, gs),
            std::mem::offset_of!(libc::user_regs_struct, gs)
        );
    }

    #[test]
    fn syscall_is_none_outside_of_system_calls() {
        let with = |orig_rax| Registers {
            orig_rax,
            ..Registers::default()
        };
        assert_eq!(with(u64::MAX).syscall_nr(), None);
        assert_eq!(with(0xffff_ffff).syscall_nr(), None);
        assert_eq!(with(0).syscall_nr(), Some(0));
    }
}
