//! Why the kernel refused a call that acts on another process: one table from call and error number to a
//! cause, after process_madvise(2), madvise(2), process_vm_readv(2), move_pages(2) and proc_pid_pagemap(5).

use std::fmt;
use std::io;

use crate::process_madvise::Advice;

/// A call that acts on another process, or looks at its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `process_madvise` with this advice.
    Madvise(Advice),
    /// `process_vm_readv`.
    ReadMemory,
    /// `move_pages`, as a whole.
    MovePages,
    /// The status that `move_pages` gives to a page.
    PageStatus,
    /// Opening `/proc/PID/pagemap`.
    OpenPagemap,
}

/// A cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The process has ended.
    Gone,
    /// We lack the right to act on the process.
    NotPermitted,
    /// The kernel does not have the call or the advice, or a system call filter hides it.
    Unsupported,
    /// Nothing is mapped or present there.
    NotMapped,
    /// The kind of mapping does not allow it: locked, device, hugetlb.
    Mapping,
    /// The process itself may not read the mapping.
    Unreadable,
    /// No huge page is free.
    NoHugePage,
    /// The limit of the control group does not allow it.
    CgroupLimit,
    /// The kernel uses the page at the moment.
    Busy,
    /// Other processes map the page too.
    Shared,
    /// The node has no free memory.
    NodeFull,
    /// The cpuset of the process forbids the node.
    Cpuset,
    /// The process holds the lock of its address space ([`crate::stalled_call`]). The call may yet be done.
    NotAnswering,
    /// An error that the man page of the call does not explain.
    Other,
}

/// A call that the kernel refused, with its error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The call.
    pub call: Call,
    /// The error number; 0 if the call was done in part only, `ETIMEDOUT` if the process does not answer.
    pub errno: i32,
}

impl Refusal {
    /// The refusal of `call` with `error`.
    #[must_use]
    pub fn new(call: Call, error: &io::Error) -> Self {
        let without_number = match error.kind() {
            io::ErrorKind::TimedOut => libc::ETIMEDOUT,
            _ => libc::EIO,
        };
        Self {
            call,
            errno: error.raw_os_error().unwrap_or(without_number),
        }
    }

    /// The cause.
    #[must_use]
    pub const fn cause(self) -> Cause {
        match (self.call, self.errno) {
            (_, libc::ETIMEDOUT) => Cause::NotAnswering,
            (Call::MovePages, libc::EACCES) => Cause::Cpuset,
            (Call::MovePages, libc::ENOMEM) => Cause::NodeFull,
            (Call::PageStatus, libc::EACCES) => Cause::Shared,
            (Call::PageStatus, libc::ENOENT | libc::EFAULT) => Cause::NotMapped,
            (Call::PageStatus, libc::ENOMEM) => Cause::NodeFull,
            // EIO: a dirty page whose file system cannot move it. EINVAL: under migration by others.
            (Call::PageStatus, libc::EBUSY | libc::EIO | libc::EINVAL | libc::EAGAIN) => Cause::Busy,
            (Call::OpenPagemap, libc::ENOENT) | (_, libc::ESRCH) => Cause::Gone,
            (_, libc::EPERM | libc::EACCES) => Cause::NotPermitted,
            (_, libc::ENOSYS) => Cause::Unsupported,
            (Call::Madvise(Advice::Collapse), libc::ENOMEM) => Cause::NoHugePage,
            // Also for absent pages of a mapping with userfaultfd: only its flags tell.
            (Call::Madvise(Advice::Collapse), libc::EBUSY) => Cause::CgroupLimit,
            (Call::Madvise(_), libc::ENOMEM) => Cause::NotMapped,
            (Call::Madvise(_), libc::EINVAL) => Cause::Mapping,
            // 0: a part was advised. EAGAIN: a page was locked, isolated or under writeback.
            (Call::Madvise(_), 0 | libc::EAGAIN | libc::EBUSY) => Cause::Busy,
            (Call::ReadMemory, libc::EFAULT) => Cause::Unreadable,
            _ => Cause::Other,
        }
    }

    /// True if the cause holds for the whole process, so that further calls would be refused too.
    #[must_use]
    pub const fn is_process_wide(self) -> bool {
        matches!(
            self.cause(),
            Cause::Gone | Cause::NotPermitted | Cause::Unsupported | Cause::NotAnswering
        )
    }

    /// A sentence with the way out, where the user can do something or the cause does not explain it.
    #[must_use]
    pub fn sentence(self) -> Option<String> {
        match self.cause() {
            Cause::NotPermitted => Some(format!(
                "the kernel refused {self}: acting on other processes needs root outside of any user namespace \
                 (CAP_SYS_NICE, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH), and a system call filter of a container \
                 may forbid it"
            )),
            Cause::Unsupported => Some(format!(
                "the kernel does not offer {self}: it is too old, or the system call filter (seccomp) of a \
                 container hides the call"
            )),
            Cause::NotAnswering => Some(format!(
                "{} waits for the process: it holds the lock of its address space, and is asked again once it \
                 answers",
                self.call
            )),
            Cause::Other => Some(format!("the kernel refused {self}")),
            _ => None,
        }
    }
}

/// `process_madvise(MADV_COLD): Operation not permitted (os error 1)`.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, io::Error::from_raw_os_error(self.errno))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Madvise(advice) => write!(f, "process_madvise({})", advice.name()),
            Self::ReadMemory => f.write_str("process_vm_readv"),
            Self::MovePages | Self::PageStatus => f.write_str("move_pages"),
            Self::OpenPagemap => f.write_str("open(/proc/PID/pagemap)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLD: Call = Call::Madvise(Advice::Cold);
    const COLLAPSE: Call = Call::Madvise(Advice::Collapse);

    #[test]
    fn each_error_of_the_man_pages_has_its_cause() {
        for (call, errno, cause) in [
            (COLD, libc::EPERM, Cause::NotPermitted),
            (COLD, libc::ESRCH, Cause::Gone),
            (COLD, libc::ENOSYS, Cause::Unsupported),
            (COLD, libc::ENOMEM, Cause::NotMapped),
            (COLD, libc::EINVAL, Cause::Mapping),
            (COLLAPSE, libc::ENOMEM, Cause::NoHugePage),
            (COLLAPSE, libc::EBUSY, Cause::CgroupLimit),
            (COLLAPSE, libc::EAGAIN, Cause::Busy),
            (Call::ReadMemory, libc::EFAULT, Cause::Unreadable),
            (Call::ReadMemory, libc::EPERM, Cause::NotPermitted),
            (Call::MovePages, libc::EACCES, Cause::Cpuset),
            (Call::MovePages, libc::ENOMEM, Cause::NodeFull),
            (Call::MovePages, libc::EPERM, Cause::NotPermitted),
            (Call::PageStatus, libc::EACCES, Cause::Shared),
            (Call::PageStatus, libc::ENOENT, Cause::NotMapped),
            (Call::OpenPagemap, libc::EACCES, Cause::NotPermitted),
            (Call::OpenPagemap, libc::ENOENT, Cause::Gone),
            (Call::MovePages, libc::ETIMEDOUT, Cause::NotAnswering),
        ] {
            assert_eq!(Refusal { call, errno }.cause(), cause, "{call}: {errno}");
        }
    }

    #[test]
    fn process_that_does_not_answer_is_not_asked_again_at_once() {
        let error = io::Error::new(io::ErrorKind::TimedOut, "process 7 is not answering");
        for call in [COLD, Call::ReadMemory, Call::MovePages, Call::OpenPagemap] {
            let refusal = Refusal::new(call, &error);
            assert_eq!(refusal.cause(), Cause::NotAnswering);
            assert!(refusal.is_process_wide());
            let sentence = refusal.sentence().unwrap_or_default();
            assert!(sentence.contains("the lock of its address space"), "{sentence}");
        }
    }

    #[test]
    fn unexpected_error_is_printed_with_its_call() {
        for (call, errno, text) in [
            (
                COLLAPSE,
                libc::EIO,
                "process_madvise(MADV_COLLAPSE): Input/output error (os error 5)",
            ),
            (
                Call::OpenPagemap,
                libc::EMFILE,
                "open(/proc/PID/pagemap): Too many open files",
            ),
            (
                Call::ReadMemory,
                libc::ENOMEM,
                "process_vm_readv: Cannot allocate memory",
            ),
        ] {
            let refusal = Refusal { call, errno };
            assert_eq!(refusal.cause(), Cause::Other);
            let sentence = refusal.sentence().unwrap_or_default();
            assert!(
                sentence.contains(text) && !sentence.contains("root"),
                "{sentence}"
            );
        }
    }
}
