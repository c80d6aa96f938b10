//! The processes of a program, by its name.

use std::path::Path;

use anyhow::ensure;
use thermo_kernel::{proc, stat};

/// The kernel keeps this many bytes of a name (TASK_COMM_LEN - 1).
const COMM_LEN: usize = 15;

/// The IDs of all processes with this program name on the machine at `root`, except our own.
///
/// # Errors
/// No process has this name, or /proc cannot be read.
pub fn pids(root: &Path, name: &str) -> anyhow::Result<Vec<u32>> {
    let comm = name.get(..COMM_LEN).unwrap_or(name);
    let has_name = |stat: &stat::Stat| stat.comm == comm && stat.process_lives();
    let others = proc::pids(root)?
        .into_iter()
        .filter(|pid| *pid != std::process::id());
    let mut found: Vec<stat::Stat> = others
        .filter_map(|pid| stat::read(root, pid).ok())
        .filter(has_name)
        .collect();
    // One without its first thread would refuse the command for all others.
    if found.iter().any(|stat| !stat.has_ended()) {
        found.retain(|stat| !stat.has_ended());
    }
    ensure!(
        !found.is_empty(),
        "no process is named {name}: give the name as `ps -o pid,comm` shows it, or --pid"
    );
    Ok(found.into_iter().map(|stat| stat.pid).collect())
}
