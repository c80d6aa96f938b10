//! CPU time of a task in nanoseconds, also for kernel threads (`/proc/PID/schedstat`).

use std::path::Path;

use thermo_units::Nanos;

use crate::proc::{self, ProcError};
use crate::stat;

/// The CPU time that `pid` has used so far; in clock ticks if the kernel has no schedstat.
///
/// # Errors
/// [`ProcError::Gone`] if it has ended.
pub fn cpu(root: &Path, pid: u32) -> Result<Nanos, ProcError> {
    let text = proc::text(root, pid, "schedstat").ok();
    let nanos = text.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
    match nanos {
        Some(nanos) => Ok(Nanos(nanos)),
        None => stat::read(root, pid).map(|stat| stat.utime + stat.stime),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn cpu_uses_schedstat_and_falls_back_to_ticks() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("proc/7");
        std::fs::create_dir_all(&dir).unwrap();
        let line = "7 (kdamond.0) S 2 0 0 0 -1 2129984 0 0 0 0 0 250 0 0 20 0 1 0 1 0 0";
        std::fs::write(dir.join("stat"), line).unwrap();
        assert_eq!(cpu(root.path(), 7).unwrap(), Nanos::millis(2500));
        std::fs::write(dir.join("schedstat"), "123456789 55 7\n").unwrap();
        assert_eq!(cpu(root.path(), 7).unwrap(), Nanos(123_456_789));
    }
}
