//! Folders of the kernel with something of ours in them: a tmpfs over the folder, in which everything else is as it was.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount, mount_bind_recursive};

/// Covers `folder` by one with the same in it, but for `ours`, which are empty folders.
pub fn cover(folder: &Path, ours: &[&str]) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = rustix::fs::open(folder, flags, Mode::empty())?;
    // By this name it is found also when it is covered.
    let real = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    let names: Vec<OsString> = fs::read_dir(&real)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<_>>()?;
    mount(
        "thermo",
        folder,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        c"mode=0755,size=64m",
    )?;
    let theirs = |name: &OsString| !ours.iter().any(|our| name == our);
    for name in names.iter().filter(|name| theirs(name)) {
        let (from, to) = (real.join(name), folder.join(name));
        if from.is_dir() {
            fs::create_dir(&to)?;
        } else {
            fs::write(&to, "")?;
        }
        mount_bind_recursive(&from, &to)?;
    }
    ours.iter().try_for_each(|name| fs::create_dir(folder.join(name)))
}

/// Where the first file system of this kind is mounted.
pub fn mounted_at(kind: &str) -> io::Result<Option<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields.get(2) == Some(&kind));
    Ok(found.and_then(|fields| fields.get(1).map(PathBuf::from)))
}
