//! Which threads of a target could be stopped with the least harm, in order.

use std::fs;
use std::path::Path;

use thermo_kernel::stat;

use crate::calls::mask_argument;

/// A thread, and how well it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub fitness: Fitness,
    pub tid: u32,
    /// Where its stack is, if it sleeps.
    pub stack_pointer: Option<u64>,
}

/// The best first. Running its program, a thread has no call to break off; but work stands still, and it may enter one
/// before it stops. What comes before and after that differs in what is left should we be killed at the stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fitness {
    /// Sleeps for good in a call that the kernel takes up again by itself, whatever becomes of us.
    Parked,
    /// Runs its program.
    Running,
    /// Sleeps for good in a call that a stop ends with an error, which only we turn back: `EINTR` if we are killed then.
    Breakable,
}

/// The threads of `pid` that fit, the best first, and how many there are in all.
pub(super) fn candidates(root: &Path, pid: u32) -> (Vec<Candidate>, usize) {
    let Ok(folder) = fs::read_dir(root.join(format!("proc/{pid}/task"))) else {
        return (Vec::new(), 0);
    };
    let tids: Vec<u32> = folder
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    // The first thread may have ended before the others.
    let leads_no_more = stat::read(root, pid).is_ok_and(|stat| stat.has_ended());
    let candidate = |tid: &u32| {
        if *tid == pid && leads_no_more {
            return None;
        }
        let text = fs::read_to_string(root.join(format!("proc/{pid}/task/{tid}/syscall"))).ok()?;
        let is_socket = |fd: u64| {
            let link = fs::read_link(root.join(format!("proc/{tid}/fd/{fd}")));
            link.is_ok_and(|file| file.to_string_lossy().starts_with("socket:"))
        };
        let (fitness, stack_pointer) = fitness(text.trim(), &is_socket)?;
        Some(Candidate {
            fitness,
            tid: *tid,
            stack_pointer,
        })
    };
    let mut found: Vec<Candidate> = tids.iter().filter_map(candidate).collect();
    // The main thread last of its kind: signals to the process go to it first.
    found.sort_unstable_by_key(|one| (one.fitness, one.tid == pid, one.tid));
    (found, tids.len())
}

/// What the line of a thread's `syscall` file says; nothing when it does not fit. Which of its descriptors are sockets,
/// `is_socket` tells.
fn fitness(line: &str, is_socket: &impl Fn(u64) -> bool) -> Option<(Fitness, Option<u64>)> {
    if line == "running" {
        return Some((Fitness::Running, None));
    }
    let words: Vec<&str> = line.split(' ').collect();
    let nr: i64 = words.first()?.parse().ok()?;
    let hex = |at: usize| {
        let word: &&str = words.get(at)?;
        u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
    };
    // Asleep, but not in a call: it is being given a page, or waits for a processor.
    if nr == -1 {
        return Some((Fitness::Running, hex(1)));
    }
    let argument = |at: usize| hex(1 + at);
    Some((asleep(nr, &argument, is_socket)?, hex(7)))
}

/// How well a thread fits in a call that waits without an end.
fn asleep(
    nr: i64,
    argument: &impl Fn(usize) -> Option<u64>,
    is_socket: &impl Fn(u64) -> bool,
) -> Option<Fitness> {
    const FUTEX_PRIVATE_OR_CLOCK: u64 = 128 | 256;
    /// What was received before the stop would be answered, though it is less than all.
    const MSG_WAITALL: u64 = 0x100;
    let mask = u64::try_from(nr).ok().and_then(mask_argument);
    if mask.is_some_and(|at| argument(at) != Some(0)) {
        return None;
    }
    match nr {
        // read, accept, accept4: with a timeout of the socket, which cannot be told here, they break
        0 if is_socket(argument(0)?) => Some(Fitness::Breakable),
        43 | 288 => Some(Fitness::Breakable),
        // read, wait4
        0 | 61 => Some(Fitness::Parked),
        // futex: FUTEX_WAIT and FUTEX_WAIT_BITSET, without a timeout
        202 if matches!(argument(1)? & !FUTEX_PRIVATE_OR_CLOCK, 0 | 9) && argument(3)? == 0 => {
            Some(Fitness::Parked)
        }
        // ppoll without a timeout
        271 if argument(2)? == 0 => Some(Fitness::Parked),
        // recvfrom, recvmsg: with a timeout of the socket they break
        45 if argument(3)? & MSG_WAITALL == 0 => Some(Fitness::Breakable),
        47 if argument(2)? & MSG_WAITALL == 0 => Some(Fitness::Breakable),
        // epoll_wait, epoll_pwait: for ever
        232 | 281 if (argument(3)? as u32).cast_signed() < 0 => Some(Fitness::Breakable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_wait_for_ever_or_run_fit() {
        let tail = "0x0 0x0 0x7ffc0010 0x7f0012";
        let fits = |fitness| Some((fitness, Some(0x7ffc_0010)));
        let (parked, breakable) = (fits(Fitness::Parked), fits(Fitness::Breakable));
        for (line, expected) in [
            ("running".to_owned(), Some((Fitness::Running, None))),
            ("-1 0x7ffc0010 0x7f0012".to_owned(), fits(Fitness::Running)),
            (format!("0 0x3 0x1000 0x10 0x0 {tail}"), parked),
            (format!("0 0x9 0x1000 0x10 0x0 {tail}"), breakable),
            // A futex for ever, and one with a timeout.
            (format!("202 0x7f00 0x189 0x2 0x0 {tail}"), parked),
            (format!("202 0x7f00 0x189 0x2 0x7ffd {tail}"), None),
            // Waking others is over in no time.
            (format!("202 0x7f00 0x81 0x1 0x0 {tail}"), None),
            (format!("232 0x4 0x7f00 0x40 0xffffffff {tail}"), breakable),
            (format!("232 0x4 0x7f00 0x40 0x64 {tail}"), None),
            // Without an end; the same with a mask for its own time.
            (
                format!("281 0x4 0x7f00 0x40 0xffffffff 0x0 0x8 {}", &tail[8..]),
                breakable,
            ),
            (
                format!("281 0x4 0x7f00 0x40 0xffffffff 0x7ffe 0x8 {}", &tail[8..]),
                None,
            ),
            (format!("271 0x7f00 0x1 0x0 0x0 {tail}"), parked),
            (format!("271 0x7f00 0x1 0x0 0x7ffe {tail}"), None),
            // It goes on with a sleep from what the kernel keeps of it.
            (format!("219 0x7f00 0x1 0x0 0x0 {tail}"), None),
            (format!("230 0x1 0x0 0x7f00 0x0 {tail}"), None),
            (format!("45 0x3 0x1000 0x10 0x40 {tail}"), breakable),
            // All of it or nothing.
            (format!("45 0x3 0x1000 0x10 0x100 {tail}"), None),
            (format!("47 0x3 0x1000 0x0 0x100 {tail}"), breakable),
            (format!("47 0x3 0x1000 0x140 0x0 {tail}"), None),
            ("".to_owned(), None),
        ] {
            assert_eq!(fitness(&line, &|fd| fd == 9), expected, "{line}");
        }
    }

    #[test]
    fn a_process_that_is_gone_has_none() {
        assert_eq!(candidates(Path::new("/nowhere"), 1), (Vec::new(), 0));
    }
}
