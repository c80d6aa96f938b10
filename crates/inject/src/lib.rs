//! One system call made by another process: advice on its own memory that the kernel takes from nobody else
//! (`MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`).
//!
//! A thread is seized, stopped on its way back to its program, made to run one `madvise`, set back to exactly what it
//! was, and let go; the others run on. [`Injector::madvise`] chooses the thread; `sequence` has the order of requests.
//!
//! **If we die** after any of them, the target goes on by itself. Before its registers are changed, a complete signal
//! frame is written below its stack and red zone (`frame`), and one request then sets registers that run `syscall; ret`
//! in its own code with the frame's restorer as return address: the call is made, and `rt_sigreturn` restores the
//! rest. Only while we live is the end better than that: we set the very registers of the stop, so that the kernel
//! itself restarts an interrupted call by all its rules.
//!
//! **No call fails that would not have**: threads that wait for good in a call that the kernel takes up again by itself
//! come first, then those in their program, last those in calls that a stop ends with `EINTR` (`threads`). Such an
//! `EINTR` is turned into a call that the kernel makes again unless a handler runs (`calls`); a call that needs its
//! restart block, or waits with a signal mask of its own, is left as it is. Only if we are killed within the microseconds of a stop in a call of the last kind
//! does its program see the `EINTR`.
//!
//! **Refused**, never tried: targets that somebody traces, with user shadow stacks, 32-bit code, system calls handled
//! by themselves, restartable sequences under way, or a seccomp filter that does not allow both calls as evaluated by
//! `cbpf`; and threads whose stack has no proven room (goroutines, fibres): see `stacks`.
//!
//! Deliberately not here: which ranges are worth it, and what becomes of the flags. See `thermo_actions`.

mod call;
#[cfg(target_arch = "x86_64")]
mod calls;
mod cbpf;
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
