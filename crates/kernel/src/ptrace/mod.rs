//! Stops a thread of another process and changes its state (`ptrace(2)`), on x86-64.
//!
//! This module has one safe function for each request, and classifies stops. The crate `inject` combines them
//! to a system call that another process makes.
//!
//! A [`Tracee`] belongs to the *thread* that seized it. When that thread ends, for any reason, the kernel
//! resumes all its tracees with their current registers. `PTRACE_O_EXITKILL` is never set.
//! `PTRACE_O_TRACESYSGOOD` is always set: without it, a tracee that is stopped at a system call gets a
//! `SIGTRAP` when its tracer dies, which ends it. With it, the kernel sends a signal number that does not
//! exist, which has no effect.

mod memory;
mod registers;
mod rseq;
mod seccomp;
mod sigmask;
mod stop;
mod tracee;
mod xstate;

pub use memory::Memory;
pub use registers::Registers;
pub use rseq::RseqArea;
pub use seccomp::Instruction;
pub use stop::Stop;
pub use tracee::Tracee;
pub use xstate::size_of_features;

use std::io;

/// One request, whose result is a number; negative for an error.
///
/// # Safety
/// `addr` and `data` must be as ptrace(2) requires for `request`: pointers to memory of the size that it
/// reads or writes, which lives through the call.
unsafe fn request(request: libc::c_uint, tid: u32, addr: usize, data: usize) -> io::Result<libc::c_long> {
    // SAFETY: ensured by the caller. The C library passes both to the kernel unchanged; it changes `data`
    // only for PEEK requests, which are not used here.
    let result = unsafe {
        libc::ptrace(
            request,
            tid.cast_signed(),
            std::ptr::without_provenance_mut::<libc::c_void>(addr),
            std::ptr::without_provenance_mut::<libc::c_void>(data),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A request whose result the kernel writes to `data`.
fn request_into<T>(kind: libc::c_uint, tid: u32, addr: usize, data: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `data` is borrowed exclusively through the call. Callers pass a request that writes a `T`, or
    // at most `addr` bytes where `addr` is a size.
    unsafe { request(kind, tid, addr, std::ptr::from_mut(data).expose_provenance()) }
}
