//! The files at a folder of the user's choice, until interrupted.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::mount::{UnmountFlags, unmount};
use thermo_damonfs::ControlFiles;
use thermo_term::exit::Exit;
use thermo_term::interrupt;

/// How soon an interruption, or an unmounting by others, is noticed.
const POLL: Duration = Duration::from_millis(100);

/// Mounts at `dir` and serves until interrupted or unmounted.
pub fn run(dir: &Path, files: Arc<dyn ControlFiles>) -> anyhow::Result<Exit> {
    take_away_what_died(dir)?;
    let kind = fs::metadata(dir)
        .with_context(|| format!("{} is not there: make the folder first", dir.display()))?;
    ensure!(
        kind.is_dir(),
        "{} is not a folder: name one to mount at",
        dir.display()
    );
    ensure!(
        !is_kernels_own(dir),
        "{} belongs to the kernel's own DAMON: mount elsewhere, or run the command with `thermo fs -- CMD`",
        dir.display()
    );
    interrupt::listen().context("cannot listen to Ctrl-C")?;
    let mounted = super::mount(dir, files)?;
    eprintln!(
        "thermo: DAMON's control files are at {}; Ctrl-C ends it",
        dir.display()
    );
    while mounted.is_served() {
        if interrupt::asked() {
            mounted
                .unmount()
                .with_context(|| format!("cannot unmount {}", dir.display()))?;
            return Ok(Exit::Interrupted);
        }
        thread::sleep(POLL);
    }
    eprintln!("thermo: {} was unmounted", dir.display());
    Ok(Exit::Done)
}

/// A service that was killed leaves a mount that answers nothing.
fn take_away_what_died(dir: &Path) -> anyhow::Result<()> {
    // What the folder itself looks like, the kernel may still remember.
    match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotConnected => unmount(dir, UnmountFlags::DETACH)
            .with_context(|| format!("cannot unmount what was left at {}", dir.display())),
        _ => Ok(()),
    }
}

/// Whether tools outside would take ours for the kernel's.
fn is_kernels_own(dir: &Path) -> bool {
    let own = ["/sys/kernel/mm/damon", "/sys/kernel/debug/damon"];
    dir.canonicalize()
        .is_ok_and(|dir| own.iter().any(|own| dir.starts_with(own)))
}
