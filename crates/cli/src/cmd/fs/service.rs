//! Mounts the control files at a directory of the user's choice, until interrupted.
//!
//! The mount of a killed service stays and returns errors. A note makes `thermo doctor --leftovers` list it,
//! and the next service at the same directory removes it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::mount::{UnmountFlags, unmount};
use thermo_damonfs::ControlFiles;
use thermo_kernel::leftovers::{self, Leftover, Note, Until};
use thermo_kernel::mountinfo::MountPoint;
use thermo_term::exit::Exit;
use thermo_term::interrupt;

/// How often an interruption or an unmount by another program is checked.
const POLL: Duration = Duration::from_millis(100);

/// Mounts at `dir` and serves until interrupted or unmounted.
pub fn run(dir: &Path, files: Arc<dyn ControlFiles>) -> anyhow::Result<Exit> {
    unmount_dead_service(dir)?;
    let kind = fs::metadata(dir)
        .with_context(|| format!("{} does not exist: create the directory first", dir.display()))?;
    ensure!(
        kind.is_dir(),
        "{} is not a directory: give a directory to mount at",
        dir.display()
    );
    ensure!(
        !is_kernels_own(dir),
        "{} belongs to the kernel's own DAMON: mount elsewhere, or run the command with `thermo fs -- CMD`",
        dir.display()
    );
    interrupt::listen().context("cannot handle Ctrl-C")?;
    // Written first, so that no moment is without a note. Declared first, so that it is dropped last.
    let note = write_note(dir);
    let mounted = super::mount(dir, files)?;
    thermo_kernel::message!(
        "thermo: DAMON's control files are mounted at {}; Ctrl-C unmounts them",
        dir.display()
    );
    while mounted.is_served() {
        if interrupt::requested() {
            if let Err(error) = mounted.unmount() {
                note.into_iter().for_each(Note::keep);
                return Err(error).with_context(|| format!("cannot unmount {}", dir.display()));
            }
            return Ok(Exit::Interrupted);
        }
        thread::sleep(POLL);
    }
    thermo_kernel::message!("thermo: {} was unmounted", dir.display());
    Ok(Exit::Done)
}

/// Unmounts the mount that a killed service left: FUSE answers ENOTCONN there.
fn unmount_dead_service(dir: &Path) -> anyhow::Result<()> {
    // Metadata of the directory may still be cached, so read its entries.
    match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotConnected => unmount(dir, UnmountFlags::DETACH)
            .with_context(|| format!("cannot unmount the mount left at {}", dir.display())),
        _ => Ok(()),
    }
}

/// Writes the note of the mount. Without a note, the files are mounted all the same.
fn write_note(dir: &Path) -> Option<Note> {
    let root = Path::new("/");
    let folder = leftovers::folder(root)?;
    // Drops the notes of mounts that are gone, so that none is mistaken for a note of the new mount.
    drop(leftovers::find_orphaned(root, &folder));
    let written = dir.canonicalize().map_err(anyhow::Error::from).and_then(|dir| {
        let note = Note::new(root, &folder, "fs-mount")?;
        let path = dir.display();
        note.write(&[Leftover {
            until: Until::Unmount(MountPoint::new(&dir)),
            description: format!(
                "dead control files at {path}: `umount -l '{path}'` removes them, and so does `thermo fs --mount \
                 '{path}'`"
            ),
        }])?;
        Ok(note)
    });
    written
        .inspect_err(|error| {
            super::warn(&format!(
                "cannot record the mount at {}: {error}. If thermo is killed, the mount stays, and `thermo doctor \
                 --leftovers` cannot list it",
                dir.display()
            ));
        })
        .ok()
}

/// Whether `dir` is a directory of in-kernel DAMON: programs outside would mistake our files for the
/// kernel's.
fn is_kernels_own(dir: &Path) -> bool {
    let own = ["/sys/kernel/mm/damon", "/sys/kernel/debug/damon"];
    dir.canonicalize()
        .is_ok_and(|dir| own.iter().any(|own| dir.starts_with(own)))
}
