//! Stopping a thread of another process and changing what it does next (`ptrace(2)`), on x86-64.
//!
//! Owned here: one safe function per request, and telling stops apart. How they are put together to a system call
//! that another process makes is not: see `inject` of the crate `ops`.
//!
//! A [`Tracee`] belongs to the *thread* that seized it; when that thread ends, however it ends, the kernel lets all
//! its tracees go on as their registers then say. `PTRACE_O_EXITKILL` is never set. `PTRACE_O_TRACESYSGOOD` always
//! is: without it, a tracee whose tracer dies while it is stopped at a system call is sent a `SIGTRAP`, which ends
//! it; with it the kernel sends a signal that does not exist, that is nothing.

mod memory;
mod registers;
mod rseq;
mod seccomp;
mod sigmask;
mod stop;
mod tracee;
mod xstate;

pub use memory::write;
pub use registers::Registers;
pub use rseq::RseqArea;
pub use seccomp::Instruction;
pub use stop::Stop;
pub use tracee::Tracee;
pub use xstate::size_of_features;

use std::io;

/// One request, whose answer is a number that is negative for an error.
///
/// # Safety
/// `addr` and `data` must be what ptrace(2) says of `request`: pointers to memory of the size it reads or writes,
/// which lives through the call.
unsafe fn request(request: libc::c_uint, tid: u32, addr: usize, data: usize) -> io::Result<libc::c_long> {
    // SAFETY: the caller's. The C library hands both on to the kernel unchanged; no PEEK request is made here, for
    // which it would take `data` as its own.
    let answer = unsafe {
        libc::ptrace(
            request,
            tid.cast_signed(),
            std::ptr::without_provenance_mut::<libc::c_void>(addr),
            std::ptr::without_provenance_mut::<libc::c_void>(data),
        )
    };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}

/// A request whose answer the kernel writes to `data`, as its address and size.
fn into<T>(kind: libc::c_uint, tid: u32, addr: usize, data: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `data` is exclusively ours through the call, and callers name a kind whose answer is a `T`, or at
    // most `addr` bytes where that is its size.
    unsafe { request(kind, tid, addr, std::ptr::from_mut(data).expose_provenance()) }
}
