//! Filters of system calls: a process gives up all that it does not need (seccomp(2)).
//! `ptrace/seccomp.rs` reads the filters of other processes.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// A list of system calls, by the numbers of `libc::SYS_*`.
#[derive(Debug, Clone, Default)]
pub struct AllowedCalls(BTreeMap<i64, Vec<SeccompRule>>);

impl AllowedCalls {
    /// Adds `calls` with any arguments.
    #[must_use]
    pub fn any(mut self, calls: &[i64]) -> Self {
        self.0.extend(calls.iter().map(|&call| (call, Vec::new())));
        self
    }

    /// Adds `call` where the bits `mask` of its argument number `argument` (the first is 0) are `value`.
    ///
    /// # Errors
    /// There are six arguments at most.
    pub fn with_bits(mut self, call: i64, argument: u8, (mask, value): (u32, u32)) -> io::Result<Self> {
        let compare = SeccompCmpOp::MaskedEq(mask.into());
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value.into());
        let rule = condition.and_then(|condition| SeccompRule::new(vec![condition]));
        self.0
            .entry(call)
            .or_default()
            .push(rule.map_err(io::Error::other)?);
        Ok(self)
    }

    /// From now on, any other system call of any thread of this process ends the process with SIGSYS. The
    /// kernel logs the number of the call (`type=1326 … syscall=N`). Sets [`crate::no_new_privs`], too.
    ///
    /// # Errors
    /// This kernel has no seccomp (`CONFIG_SECCOMP_FILTER`), or this processor is not known.
    pub fn enforce(self) -> io::Result<()> {
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
        let (other, listed) = (SeccompAction::KillProcess, SeccompAction::Allow);
        let filter = SeccompFilter::new(self.0, other, listed, arch).map_err(io::Error::other)?;
        let program = BpfProgram::try_from(filter).map_err(io::Error::other)?;
        seccompiler::apply_filter_all_threads(&program).map_err(|error| match error {
            Error::Prctl(source) | Error::Seccomp(source) => source,
            other => io::Error::other(other),
        })
    }
}

/// What every Rust program with threads needs: memory, threads, locks, clocks, signals, its own descriptors,
/// and its end.
pub const RUNTIME: &[i64] = &[
    // No call: a tracer (strace) has put this number in the place of a call that it makes fail.
    u32::MAX as i64,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_membarrier,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_geteuid,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    // Older forms of the above, which only x86-64 has.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// Questions about files by path, and folders. Opening is apart: see [`AllowedCalls::reading_files`].
const FILE_FACTS: &[i64] = &[
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];

/// Calls on open sockets. Making sockets is apart: see [`AllowedCalls::serving_sockets`].
const SOCKET_IO: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
];

impl AllowedCalls {
    /// Adds calls that read files. Files are opened for reading only, and never created.
    ///
    /// # Errors
    /// None known.
    pub fn reading_files(self) -> io::Result<Self> {
        self.opening((libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u32)
    }

    /// Adds calls that read files and write to existing ones, as those of `/proc` are. Files are never
    /// created or truncated.
    ///
    /// # Errors
    /// None known.
    pub fn opening_existing_files(self) -> io::Result<Self> {
        self.opening((libc::O_CREAT | libc::O_TRUNC) as u32)
    }

    // Opening without any of the flags `refused`.
    fn opening(self, refused: u32) -> io::Result<Self> {
        let allowed = self
            .any(FILE_FACTS)
            .with_bits(libc::SYS_openat, 2, (refused, 0))?;
        #[cfg(target_arch = "x86_64")]
        let allowed = allowed.with_bits(libc::SYS_open, 1, (refused, 0))?;
        Ok(allowed)
    }

    /// Adds the calls of sockets that are open already, and Unix sockets.
    ///
    /// # Errors
    /// None known.
    pub fn serving_sockets(self) -> io::Result<Self> {
        self.any(SOCKET_IO)
            .with_bits(libc::SYS_socket, 0, (u32::MAX, libc::AF_UNIX as u32))?
            .with_bits(libc::SYS_ioctl, 1, (u32::MAX, libc::FIONBIO as u32))
    }

    /// Adds the calls that remove a file.
    #[must_use]
    pub fn removing_files(self) -> Self {
        #[cfg(target_arch = "x86_64")]
        let older = &[libc::SYS_unlink];
        #[cfg(not(target_arch = "x86_64"))]
        let older = &[];
        self.any(&[libc::SYS_unlinkat]).any(older)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, ExitStatus};

    use super::*;

    const IN_CHILD: &str = "THERMO_TEST_SYSCALL_FILTER";

    // A filter belongs to a process for ever, so the test runs itself again in a child.
    fn run_child(call: &str) -> ExitStatus {
        let test = "syscall_filter::tests::process_ends_at_a_call_that_is_not_allowed";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", test, "--nocapture"]).env(IN_CHILD, call);
        child.status().unwrap()
    }

    fn in_child(call: &str) {
        let allowed = AllowedCalls::default().any(RUNTIME).reading_files().unwrap();
        allowed.enforce().unwrap();
        let done = match call {
            "read" => std::fs::read("/proc/self/status").is_ok(),
            "write" => std::fs::File::create("/dev/null").is_ok(),
            "remove" => std::fs::remove_file("/no-such-file").is_ok(),
            _ => false,
        };
        std::process::exit(if done { 7 } else { 8 });
    }

    #[test]
    fn process_ends_at_a_call_that_is_not_allowed() {
        if let Ok(call) = std::env::var(IN_CHILD) {
            return in_child(&call);
        }
        assert_eq!(run_child("read").code(), Some(7));
        assert_eq!(run_child("write").signal(), Some(libc::SIGSYS));
        assert_eq!(run_child("remove").signal(), Some(libc::SIGSYS));
    }
}
