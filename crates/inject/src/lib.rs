//! Makes another process execute one system call: `madvise` on its own memory, for advice that the kernel
//! accepts only from the process itself (`MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`).
//!
//! One thread is seized, stopped on its way back to user space, made to execute one `madvise`, restored to
//! its exact previous state, and detached. The other threads keep running. [`Injector::madvise`] chooses the
//! thread; `sequence` has the order of ptrace requests.
//!
//! **If the tracer dies** after any request, the target continues by itself. Before the registers are
//! changed, a complete signal frame is written below the stack and the red zone (`frame`). Then a single
//! request sets registers that execute `syscall; ret` in the target's own code, with the frame's restorer as
//! return address: the call is made, and `rt_sigreturn` restores everything. While the tracer lives, the end
//! is more exact: it sets the registers of the stop again, so that the kernel itself restarts an interrupted
//! call by all its rules.
//!
//! **No system call of the target fails because of the stop.** Threads that wait without a timeout in a call
//! that the kernel restarts by itself are chosen first, then threads in user space, last threads in calls
//! that a stop ends with `EINTR` (`threads`). Such an `EINTR` is turned into a restart, which the kernel does
//! unless a signal handler runs (`call_state`). A thread is not used if its call needs the restart block, or
//! waits with a temporary signal mask. The target sees `EINTR` only if the tracer is killed within the
//! microseconds of a stop in a call of the last kind.
//!
//! **Refused without an attempt**: targets that are traced, use a user shadow stack, run 32-bit code, handle
//! their own system calls, are inside a restartable sequence, or have a seccomp filter that does not allow
//! both calls (evaluated by `cbpf`); and threads whose stack has no proven room (goroutines, fibers): see
//! `stacks`.
//!
//! Not here: which ranges get a flag, and the later state of flags. See `thermo_actions`.

// Reads what others wrote: an index or slice that could panic is an error here (CONTRIBUTING.md, Style).
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

mod call;
#[cfg(target_arch = "x86_64")]
mod call_state;
pub mod cbpf;
mod error;
#[cfg(target_arch = "x86_64")]
mod frame;
#[cfg(target_arch = "x86_64")]
mod gadget;
#[cfg(target_arch = "x86_64")]
mod injector;
mod live_thread;
#[cfg(target_arch = "x86_64")]
mod seccomp;
#[cfg(target_arch = "x86_64")]
mod sequence;
#[cfg(target_arch = "x86_64")]
mod stacks;
#[cfg(target_arch = "x86_64")]
mod threads;
#[cfg(not(target_arch = "x86_64"))]
mod unsupported;

pub use call::{Call, HugeFlag, Injected};
pub use error::InjectError;
#[cfg(target_arch = "x86_64")]
pub use injector::Injector;
pub use live_thread::live_thread;
#[cfg(target_arch = "x86_64")]
pub use sequence::Request;
#[cfg(not(target_arch = "x86_64"))]
pub use unsupported::{Injector, Request};
