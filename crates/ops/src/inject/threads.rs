//! Which threads of a target could be stopped with the least harm, in order.

use std::fs;
use std::path::Path;

/// A thread, and how well it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub fitness: Fitness,
    pub tid: u32,
    /// Where its stack is, if it sleeps.
    pub stack_pointer: Option<u64>,
}

/// The best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fitness {
    /// Waits for good for another thread (an untimed futex). Nobody waits for it, it gets a processor at once, and the
    /// kernel takes the wait up again by itself: the least that can be done to a busy program.
    Waiting,
    /// Runs its program: there is no call to break off, but work stands still.
    Running,
    /// Sleeps for good in another call that is taken up again without a trace.
    Parked,
}

/// The threads of `pid` that fit, the best first, and how many there are in all.
pub(super) fn candidates(root: &Path, pid: u32) -> (Vec<Candidate>, usize) {
    let Ok(folder) = fs::read_dir(root.join(format!("proc/{pid}/task"))) else {
        return (Vec::new(), 0);
    };
    let tids: Vec<u32> = folder
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let candidate = |tid: &u32| {
        let text = fs::read_to_string(root.join(format!("proc/{pid}/task/{tid}/syscall"))).ok()?;
        let (fitness, stack_pointer) = fitness(text.trim())?;
        Some(Candidate {
            fitness,
            tid: *tid,
            stack_pointer,
        })
    };
    let mut found: Vec<Candidate> = tids.iter().filter_map(candidate).collect();
    found.sort_unstable();
    (found, tids.len())
}

/// What the line of a thread's `syscall` file says; nothing when it does not fit.
fn fitness(line: &str) -> Option<(Fitness, Option<u64>)> {
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
    if is_futex_wait(nr, &argument)? {
        return Some((Fitness::Waiting, hex(7)));
    }
    is_parked(nr, &argument)?.then_some((Fitness::Parked, hex(7)))
}

/// futex: FUTEX_WAIT and FUTEX_WAIT_BITSET, without a timeout.
fn is_futex_wait(nr: i64, argument: &impl Fn(usize) -> Option<u64>) -> Option<bool> {
    const FUTEX_PRIVATE_OR_CLOCK: u64 = 128 | 256;
    Some(nr == 202 && matches!(argument(1)? & !FUTEX_PRIVATE_OR_CLOCK, 0 | 9) && argument(3)? == 0)
}

/// Whether a call waits without an end, and is taken up again as if nothing had been.
fn is_parked(nr: i64, argument: &impl Fn(usize) -> Option<u64>) -> Option<bool> {
    Some(match nr {
        // read, wait4, accept, accept4, recvfrom, recvmsg
        0 | 61 | 43 | 288 | 45 | 47 => true,
        // epoll_wait, epoll_pwait: for ever
        232 | 281 => (argument(3)? as u32).cast_signed() < 0,
        // ppoll without a timeout
        271 => argument(2)? == 0,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_wait_for_ever_or_run_fit() {
        let tail = "0x0 0x0 0x7ffc0010 0x7f0012";
        for (line, expected) in [
            ("running".to_owned(), Some((Fitness::Running, None))),
            (
                "-1 0x7ffc0010 0x7f0012".to_owned(),
                Some((Fitness::Running, Some(0x7ffc_0010))),
            ),
            (
                format!("0 0x3 0x1000 0x10 0x0 {tail}"),
                Some((Fitness::Parked, Some(0x7ffc_0010))),
            ),
            // A futex for ever, and one with a timeout.
            (
                format!("202 0x7f00 0x189 0x2 0x0 {tail}"),
                Some((Fitness::Waiting, Some(0x7ffc_0010))),
            ),
            (format!("202 0x7f00 0x189 0x2 0x7ffd {tail}"), None),
            // Waking others is over in no time.
            (format!("202 0x7f00 0x81 0x1 0x0 {tail}"), None),
            (
                format!("232 0x4 0x7f00 0x40 0xffffffff {tail}"),
                Some((Fitness::Parked, Some(0x7ffc_0010))),
            ),
            (format!("232 0x4 0x7f00 0x40 0x64 {tail}"), None),
            (format!("230 0x1 0x0 0x7f00 0x0 {tail}"), None),
            ("".to_owned(), None),
        ] {
            assert_eq!(fitness(&line), expected, "{line}");
        }
    }

    #[test]
    fn a_process_that_is_gone_has_none() {
        assert_eq!(candidates(Path::new("/nowhere"), 1), (Vec::new(), 0));
    }
}
