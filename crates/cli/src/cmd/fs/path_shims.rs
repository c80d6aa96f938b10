//! Programs that come first in the command's PATH: a `perf` that records our events, and `pgrep`, `pidof` and
//! `ps` that know our kdamonds.
//!
//! Tools for DAMON find kdamonds by name, and ask for the CPU time of their pid. The kernel's kdamonds are
//! processes. Ours are threads, which these programs do not list; and the kernel's have nothing to do with
//! the control files of the command.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The functions that the scripts below share.
const KDAMONDS: &str = include_str!("shims/kdamonds.sh");
const SCRIPTS: [(&str, &str); 3] = [
    ("pgrep", include_str!("shims/pgrep.sh")),
    ("pidof", include_str!("shims/pidof.sh")),
    ("ps", include_str!("shims/ps.sh")),
];

/// Writes the programs into `bin` below `private_dir`, and returns that directory.
pub fn install(private_dir: &Path) -> io::Result<PathBuf> {
    let bin = private_dir.join("bin");
    fs::create_dir(&bin)?;
    let thermo = env::current_exe()?;
    let quoted = thermo.to_string_lossy().replace('\'', r"'\''");
    let perf = format!(
        "exec '{quoted}' fs --as-perf {}/events -- \"$@\"\n",
        private_dir.display()
    );
    write(&bin.join("perf"), &perf)?;
    for (name, script) in SCRIPTS {
        write(&bin.join(name), &format!("{KDAMONDS}{script}"))?;
    }
    Ok(bin)
}

fn write(path: &Path, script: &str) -> io::Result<()> {
    fs::write(path, format!("#!/bin/sh\n{script}"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
