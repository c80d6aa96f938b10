//! Adds directories to a directory of the kernel: a tmpfs is mounted over it, and the old entries are
//! bind-mounted into the tmpfs.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount, mount_bind_recursive};

/// Mounts a tmpfs over `dir` that has the entries of `dir`, and the empty directories `added`. An entry with
/// a name in `added` is hidden.
pub fn overlay(dir: &Path, added: &[&str]) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = rustix::fs::open(dir, flags, Mode::empty())?;
    // This name reaches the old directory also when the tmpfs is mounted over it.
    let old = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    let names: Vec<OsString> = fs::read_dir(&old)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<_>>()?;
    mount(
        "thermo",
        dir,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        c"mode=0755,size=64m",
    )?;
    let is_kept = |name: &OsString| !added.iter().any(|added| name == added);
    for name in names.iter().filter(|name| is_kept(name)) {
        let (from, to) = (old.join(name), dir.join(name));
        if from.is_dir() {
            fs::create_dir(&to)?;
        } else {
            fs::write(&to, "")?;
        }
        mount_bind_recursive(&from, &to)?;
    }
    added.iter().try_for_each(|name| fs::create_dir(dir.join(name)))
}

/// The mount point of the first mounted file system of this type.
pub fn mounted_at(kind: &str) -> io::Result<Option<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields.get(2) == Some(&kind));
    Ok(found.and_then(|fields| fields.get(1).map(PathBuf::from)))
}
