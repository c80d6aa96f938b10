//! Programs that come first in the command's PATH: a `perf` that records our events, and a `pgrep` that knows our
//! kdamonds.
//!
//! Scripts written for DAMON count kdamonds by `pgrep kdamond`. The kernel's are processes; ours are threads, which
//! pgrep does not list, and the kernel's own have nothing to do with the files that the command sees.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Files that tell a kdamond's thread, or -1, or none.
const PIDS: &str = "/sys/kernel/mm/damon/admin/kdamonds/*/pid /sys/module/damon_*/parameters/kdamond_pid \
                    /sys/kernel/debug/damon/kdamond_pid /sys/kernel/debug/damon/*/kdamond_pid";

/// Puts both into `bin` below `ours`, and returns that folder.
pub fn install(ours: &Path) -> io::Result<PathBuf> {
    let bin = ours.join("bin");
    fs::create_dir(&bin)?;
    let thermo = env::current_exe()?;
    let quoted = thermo.to_string_lossy().replace('\'', r"'\''");
    let perf = format!(
        "exec '{quoted}' fs --as-perf {}/events -- \"$@\"\n",
        ours.display()
    );
    write(&bin.join("perf"), &perf)?;
    write(&bin.join("pgrep"), &pgrep())?;
    Ok(bin)
}

fn write(path: &Path, script: &str) -> io::Result<()> {
    fs::write(path, format!("#!/bin/sh\n{script}"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Answers `pgrep kdamond…`, and leaves everything else to the real one behind it in PATH.
fn pgrep() -> String {
    format!(
        r#"case "$#$1" in
1kdamond*) ;;
*) PATH=${{PATH#*:}} exec pgrep "$@" ;;
esac
found=1
for file in {PIDS}; do
    tid=$(cat "$file" 2>/dev/null)
    case "$(cat "/proc/$tid/comm" 2>/dev/null)" in
    "$1"*) echo "$tid"; found=0 ;;
    esac
done
exit $found
"#
    )
}
