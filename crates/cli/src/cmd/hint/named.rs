//! The processes of a program, by its name.

use std::path::Path;

use anyhow::ensure;
use thermo_kernel::{proc, stat};

/// What the kernel keeps of a name.
const KEPT: usize = 15;

/// The numbers of all processes of the machine at `root` whose program has this name, but not our own.
///
/// # Errors
/// There is none.
pub fn pids(root: &Path, name: &str) -> anyhow::Result<Vec<u32>> {
    let kept = name.get(..KEPT).unwrap_or(name);
    let is_meant =
        |pid: &u32| *pid != std::process::id() && stat::read(root, *pid).is_ok_and(|stat| stat.comm == kept);
    let found: Vec<u32> = proc::all(root)?.into_iter().filter(is_meant).collect();
    ensure!(
        !found.is_empty(),
        "no process is named {name}: give the name as  ps -o pid,comm  shows it, or --pid"
    );
    Ok(found)
}
