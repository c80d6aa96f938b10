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
    let has_name =
        |pid: &u32| *pid != std::process::id() && stat::read(root, *pid).is_ok_and(|stat| stat.comm == comm);
    let found: Vec<u32> = proc::pids(root)?.into_iter().filter(has_name).collect();
    ensure!(
        !found.is_empty(),
        "no process is named {name}: give the name as `ps -o pid,comm` shows it, or --pid"
    );
    Ok(found)
}
