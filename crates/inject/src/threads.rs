//! Ranks the threads of a target by how safely they can be stopped.

use std::fs;
use std::path::Path;

use thermo_kernel::stat;

use crate::call_state::mask_argument;

/// A thread and its suitability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub suitability: Suitability,
    pub tid: u32,
    /// Its stack pointer, if it sleeps.
    pub stack_pointer: Option<u64>,
}

/// Best first. A running thread has no call to interrupt, but its work pauses, and it may enter a call before
/// it stops. The other kinds differ in what happens if the tracer is killed at the stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suitability {
    /// Sleeps without a timeout in a call that the kernel restarts by itself, even if the tracer is killed.
    Parked,
    /// Runs in user space.
    Running,
    /// Sleeps without a timeout in a call that a stop ends with an error, which only the tracer undoes: the
    /// target sees `EINTR` if the tracer is killed.
    Interruptible,
}

/// The suitable threads of `pid`, best first, and the number of all its threads.
pub(super) fn candidates(root: &Path, pid: u32) -> (Vec<Candidate>, usize) {
    let Ok(folder) = fs::read_dir(root.join(format!("proc/{pid}/task"))) else {
        return (Vec::new(), 0);
    };
    let tids: Vec<u32> = folder
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    // The main thread may have ended before the others.
    let main_has_ended = stat::read(root, pid).is_ok_and(|stat| stat.has_ended());
    let candidate = |tid: &u32| {
        if *tid == pid && main_has_ended {
            return None;
        }
        let text = fs::read_to_string(root.join(format!("proc/{pid}/task/{tid}/syscall"))).ok()?;
        let is_socket = |fd: u64| {
            let link = fs::read_link(root.join(format!("proc/{tid}/fd/{fd}")));
            link.is_ok_and(|file| file.to_string_lossy().starts_with("socket:"))
        };
        let (suitability, stack_pointer) = suitability(text.trim(), &is_socket)?;
        Some(Candidate {
            suitability,
            tid: *tid,
            stack_pointer,
        })
    };
    let mut found: Vec<Candidate> = tids.iter().filter_map(candidate).collect();
    // Within each kind the main thread comes last: signals to the process go to it first.
    found.sort_unstable_by_key(|thread| (thread.suitability, thread.tid == pid, thread.tid));
    (found, tids.len())
}

/// Rates the line of a thread's `syscall` file; `None` if the thread is not suitable. `is_socket` says
/// whether a descriptor is a socket.
fn suitability(line: &str, is_socket: &impl Fn(u64) -> bool) -> Option<(Suitability, Option<u64>)> {
    if line == "running" {
        return Some((Suitability::Running, None));
    }
    let words: Vec<&str> = line.split(' ').collect();
    let nr: i64 = words.first()?.parse().ok()?;
    let hex = |at: usize| {
        let word: &&str = words.get(at)?;
        u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
    };
    // Asleep outside of a system call: in a page fault, or waiting for a processor.
    if nr == -1 {
        return Some((Suitability::Running, hex(1)));
    }
    let argument = |at: usize| hex(1 + at);
    Some((rate_call(nr, &argument, is_socket)?, hex(7)))
}

/// Rates a thread that waits in a system call; `None` unless it waits without a timeout.
fn rate_call(
    nr: i64,
    argument: &impl Fn(usize) -> Option<u64>,
    is_socket: &impl Fn(u64) -> bool,
) -> Option<Suitability> {
    const FUTEX_PRIVATE_OR_CLOCK: u64 = 128 | 256;
    /// With this flag, a stop would make the call return less than requested.
    const MSG_WAITALL: u64 = 0x100;
    let mask = u64::try_from(nr).ok().and_then(mask_argument);
    if mask.is_some_and(|at| argument(at) != Some(0)) {
        return None;
    }
    match nr {
        // read, accept, accept4: interrupted if the socket has a timeout, which is not visible here
        0 if is_socket(argument(0)?) => Some(Suitability::Interruptible),
        43 | 288 => Some(Suitability::Interruptible),
        // read, wait4
        0 | 61 => Some(Suitability::Parked),
        // futex: FUTEX_WAIT and FUTEX_WAIT_BITSET, without a timeout
        202 if matches!(argument(1)? & !FUTEX_PRIVATE_OR_CLOCK, 0 | 9) && argument(3)? == 0 => {
            Some(Suitability::Parked)
        }
        // ppoll without a timeout
        271 if argument(2)? == 0 => Some(Suitability::Parked),
        // recvfrom, recvmsg: interrupted if the socket has a timeout
        45 if argument(3)? & MSG_WAITALL == 0 => Some(Suitability::Interruptible),
        47 if argument(2)? & MSG_WAITALL == 0 => Some(Suitability::Interruptible),
        // epoll_wait, epoll_pwait without a timeout
        232 | 281 if (argument(3)? as u32).cast_signed() < 0 => Some(Suitability::Interruptible),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_and_endlessly_waiting_threads_are_suitable() {
        let tail = "0x0 0x0 0x7ffc0010 0x7f0012";
        let rated = |suitability| Some((suitability, Some(0x7ffc_0010)));
        let (parked, interruptible) = (rated(Suitability::Parked), rated(Suitability::Interruptible));
        for (line, expected) in [
            ("running".to_owned(), Some((Suitability::Running, None))),
            ("-1 0x7ffc0010 0x7f0012".to_owned(), rated(Suitability::Running)),
            (format!("0 0x3 0x1000 0x10 0x0 {tail}"), parked),
            (format!("0 0x9 0x1000 0x10 0x0 {tail}"), interruptible),
            // FUTEX_WAIT without and with a timeout.
            (format!("202 0x7f00 0x189 0x2 0x0 {tail}"), parked),
            (format!("202 0x7f00 0x189 0x2 0x7ffd {tail}"), None),
            // FUTEX_WAKE returns at once.
            (format!("202 0x7f00 0x81 0x1 0x0 {tail}"), None),
            (format!("232 0x4 0x7f00 0x40 0xffffffff {tail}"), interruptible),
            (format!("232 0x4 0x7f00 0x40 0x64 {tail}"), None),
            // Without a timeout; the same with a temporary signal mask.
            (
                format!("281 0x4 0x7f00 0x40 0xffffffff 0x0 0x8 {}", &tail[8..]),
                interruptible,
            ),
            (
                format!("281 0x4 0x7f00 0x40 0xffffffff 0x7ffe 0x8 {}", &tail[8..]),
                None,
            ),
            (format!("271 0x7f00 0x1 0x0 0x0 {tail}"), parked),
            (format!("271 0x7f00 0x1 0x0 0x7ffe {tail}"), None),
            // restart_syscall: it depends on the restart block.
            (format!("219 0x7f00 0x1 0x0 0x0 {tail}"), None),
            (format!("230 0x1 0x0 0x7f00 0x0 {tail}"), None),
            (format!("45 0x3 0x1000 0x10 0x40 {tail}"), interruptible),
            // With MSG_WAITALL.
            (format!("45 0x3 0x1000 0x10 0x100 {tail}"), None),
            (format!("47 0x3 0x1000 0x0 0x100 {tail}"), interruptible),
            (format!("47 0x3 0x1000 0x140 0x0 {tail}"), None),
            ("".to_owned(), None),
        ] {
            assert_eq!(suitability(&line, &|fd| fd == 9), expected, "{line}");
        }
    }

    #[test]
    fn ended_process_has_no_candidates() {
        assert_eq!(candidates(Path::new("/nowhere"), 1), (Vec::new(), 0));
    }
}
