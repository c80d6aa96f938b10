//! `/proc/PID/stat`: identity, state and CPU time of a process (proc_pid_stat(5)).

use std::path::Path;

use thermo_units::Nanos;

use crate::file::FileError;
use crate::proc::{self, ProcError};

/// `PF_KTHREAD` of include/linux/sched.h: set in `flags` of kernel threads since 2.6.27.
const PF_KTHREAD: u64 = 0x0020_0000;

/// The fields that are used, of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stat {
    /// The pid.
    pub pid: u32,
    /// The name of the program, truncated to 15 bytes by the kernel.
    pub comm: String,
    /// `R` running, `S` sleeping, `Z` zombie (ended, not yet reaped), `X` dead, …
    pub state: char,
    /// The parent.
    pub ppid: u32,
    /// The kernel flags of the task.
    pub flags: u64,
    /// Major faults.
    pub majflt: u64,
    /// User CPU time.
    pub utime: Nanos,
    /// System CPU time.
    pub stime: Nanos,
    /// Number of threads.
    pub num_threads: u32,
    /// Start time in clock ticks since boot. Together with the pid it identifies a process.
    pub starttime: u64,
    /// Load addresses of the program; they change with an exec.
    pub image: Image,
}

/// Load addresses of a program. With address space randomisation they differ between two executions, even of
/// the same program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Image {
    /// Start of the code; 0 for kernel threads, 1 without permission to see it.
    pub start_code: u64,
    /// Start of the data.
    pub start_data: u64,
    /// Start (bottom) of the stack.
    pub start_stack: u64,
}

impl Image {
    /// False while the program is being loaded, and without permission to see the addresses.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.start_code > 1 && self.start_stack > 1
    }
}

impl Stat {
    /// True for a kernel thread, which has no address space.
    #[must_use]
    pub const fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// True once the task has ended and only its exit status remains.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether the process still runs. The state is that of the main thread, which may end before the others.
    #[must_use]
    pub const fn process_lives(&self) -> bool {
        !self.has_ended() || self.num_threads > 1
    }

    // The name may contain spaces and brackets: it ends at the last closing bracket.
    fn parse(text: &str) -> Option<Self> {
        let (pid, rest) = text.split_once(" (")?;
        let (comm, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Numbered as in the man page, where `state` is field 3.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            comm: comm.to_owned(),
            state: fields.first()?.chars().next()?,
            ppid: u32::try_from(number(4)?).ok()?,
            flags: number(9)?,
            majflt: number(12)?,
            utime: ticks(number(14)?),
            stime: ticks(number(15)?),
            num_threads: u32::try_from(number(20)?).ok()?,
            starttime: number(22)?,
            image: Image {
                start_code: number(26).unwrap_or(0),
                start_data: number(45).unwrap_or(0),
                start_stack: number(28).unwrap_or(0),
            },
        })
    }
}

/// Reads the stat line of process `pid`.
///
/// # Errors
/// [`ProcError::Gone`] if the process has ended and was reaped.
pub fn read(root: &Path, pid: u32) -> Result<Stat, ProcError> {
    let text = proc::text(root, pid, "stat")?;
    let path = proc::dir(root, pid).join("stat");
    Stat::parse(text.trim_end())
        .ok_or_else(|| FileError::malformed(&path, text.trim_end(), "a line as in proc_pid_stat(5)").into())
}

fn ticks(ticks: u64) -> Nanos {
    let hz = rustix::param::clock_ticks_per_second().max(1);
    Nanos(u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(hz)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn cpu_time_that_does_not_fit_is_the_longest() {
        let line = format!(
            "1 (x) R 1 0 0 0 -1 0 0 0 0 0 {0} {0} 0 0 20 0 1 0 1 0 0",
            u64::MAX
        );
        let stat = Stat::parse(&line).unwrap();
        assert_eq!(stat.utime + stat.stime, Nanos(u64::MAX));
    }

    #[test]
    fn name_with_brackets_does_not_shift_fields() {
        let line = "42 (a) b (c)) S 7 42 42 0 -1 4194304 10 0 3 0 200 100 0 0 20 0 5 0 987654 1000 50";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            (stat.pid, stat.comm.as_str(), stat.state, stat.ppid),
            (42, "a) b (c)", 'S', 7)
        );
        assert_eq!((stat.num_threads, stat.starttime, stat.majflt), (5, 987_654, 3));
        assert_eq!(stat.utime, Nanos(stat.stime.0 * 2));
        assert!(!stat.is_kernel_thread() && !stat.has_ended());
    }

    #[test]
    fn kernel_thread_is_detected_by_flag() {
        let stat = Stat::parse("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0").unwrap();
        assert!(stat.is_kernel_thread());
    }

    #[test]
    fn process_lives_on_without_main_thread() {
        for (state, num_threads, lives) in [('S', 1, true), ('Z', 2, true), ('Z', 1, false), ('X', 1, false)]
        {
            let stat = Stat {
                state,
                num_threads,
                ..Stat::default()
            };
            assert_eq!(stat.process_lives(), lives, "{state} {num_threads}");
        }
    }

    #[test]
    fn truncated_line_is_refused() {
        assert_eq!(Stat::parse("42 (x) S 7"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn own_stat_is_readable() {
        let stat = read(Path::new("/"), std::process::id()).unwrap();
        assert_eq!(stat.pid, std::process::id());
        assert!(!stat.has_ended() && !stat.is_kernel_thread());
        assert!(stat.image.is_known());
    }
}
