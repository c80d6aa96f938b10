//! The scheduling policy of a thread (sched(7)).

use std::io;

/// A policy without realtime priority. Numbers are those of include/uapi/linux/sched.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Policy {
    /// `SCHED_OTHER`: the default, that of kernel threads.
    Other = libc::SCHED_OTHER,
    /// `SCHED_BATCH`: as the default, but wake-ups do not preempt other threads.
    Batch = libc::SCHED_BATCH,
    /// `SCHED_IDLE`: only while other threads leave CPU time.
    Idle = libc::SCHED_IDLE,
}

/// Sets the policy of this thread. Its nice value stays.
///
/// # Errors
/// `EPERM` if the thread may not leave `SCHED_IDLE` (CAP_SYS_NICE or `RLIMIT_NICE`).
pub fn set_policy(policy: Policy) -> io::Result<()> {
    // SAFETY: a structure of integers (and, on some systems, of padding), for which zeros are valid.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: `param` lives through the call; 0 is this thread.
    match unsafe { libc::sched_setscheduler(0, policy as i32, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn policy_is_that_of_this_thread() {
        set_policy(Policy::Batch).unwrap();
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        // Field 41 of proc_pid_stat(5); the first field here is number 3.
        assert_eq!(fields.split_ascii_whitespace().nth(38), Some("3"));
    }
}
