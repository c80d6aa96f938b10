//! Files that are replaced whole or not at all, also when the machine stops in between, in folders that other
//! users may write to.
//!
//! Such a folder may hold names that another user chose: a symbolic link in place of the temporary file or of
//! a subfolder would send our content into a file of the link's choice. So every folder below the root is
//! opened without following links (`openat(2)` with `O_NOFOLLOW`), the temporary file has a name that nobody
//! can guess and must not exist (`O_EXCL`), and `rename(2)` replaces a link instead of following it.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher as _;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fstat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Makes `content` the content of `path`: of a temporary file beside it (`.part`), which then takes its
/// place. When this returns, content and name are on the disk (`fsync(2)`, `rename(2)`). See
/// [`replace_beneath`] for who may read the file.
///
/// # Errors
/// What the system said. The old file is whole then.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let name = path.file_name().ok_or(Errno::INVAL)?;
    replace_beneath(folder.unwrap_or(Path::new(".")), Path::new(name), content)
}

/// Like [`replace`], for the file `name` below the folder `root`. Missing folders between them are made, with
/// the permissions of the folder around them. The owner may read and write the file; the group may read the
/// file if it may list the folder; others may not.
///
/// # Errors
/// What the system said: `ENOTDIR` or `ELOOP` if a folder below `root` is a symbolic link, `EINVAL` if `name`
/// leaves `root`.
pub fn replace_beneath(root: &Path, name: &Path, content: &[u8]) -> io::Result<()> {
    let file_name = name.file_name().ok_or(Errno::INVAL)?;
    let folder = open_folder(root, name.parent().unwrap_or(Path::new("")), true)?;
    let mut part = file_name.to_owned();
    part.push(format!(".{:016x}.part", RandomState::new().hash_one(())));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&folder, &part, flags, Mode::RUSR | Mode::WUSR)?);
    let mut write = || {
        fchmod(&file, file_mode(permissions(folder.as_fd())?))?;
        file.write_all(content)?;
        file.sync_all()?;
        renameat(&folder, &part, &folder, file_name).map_err(io::Error::from)
    };
    write().inspect_err(|_| {
        // There is no room, or the folder went: nothing else can be done about the part.
        let _ = unlinkat(&folder, &part, AtFlags::empty());
    })?;
    File::from(folder).sync_all()
}

/// Makes the folder `path`, and those around it that are missing. The folder gets the permission bits `mode`,
/// whatever the umask; one that exists keeps its own.
///
/// # Errors
/// What the system said.
pub fn create_folder(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let around = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let around = around.unwrap_or(Path::new("."));
    fs::create_dir_all(around)?;
    make_folder(
        File::open(around)?.as_fd(),
        Path::new(name),
        Mode::from_raw_mode(mode),
    )
}

/// The content of the file `name` below the folder `root`. Symbolic links are not followed, and only regular
/// files are read, so another user of the folder cannot name a file for us to read, nor make us wait.
///
/// # Errors
/// What the system said: `ELOOP` for a symbolic link, `EINVAL` if it is no regular file.
pub fn read_beneath(root: &Path, name: &Path) -> io::Result<Vec<u8>> {
    let file_name = name.file_name().ok_or(Errno::INVAL)?;
    let folder = open_folder(root, name.parent().unwrap_or(Path::new("")), false)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(openat(&folder, file_name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(Errno::INVAL.into());
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Opens the folder `relative` below `root`, following no symbolic link below `root`. With `create`, missing
/// folders are made.
fn open_folder(root: &Path, relative: &Path, create: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = OwnedFd::from(File::open(root)?);
    for component in relative.components() {
        let Component::Normal(name) = component else {
            return Err(Errno::INVAL.into());
        };
        let open = || openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty());
        let next = match open() {
            Err(Errno::NOENT) if create => {
                // The sticky bit, and writing by others.
                let sticky = Mode::from_raw_mode(0o1002);
                make_folder(
                    folder.as_fd(),
                    Path::new(name),
                    permissions(folder.as_fd())? - sticky,
                )?;
                open()?
            }
            result => result?,
        };
        folder = next;
    }
    Ok(folder)
}

/// Makes a folder with these permissions, whatever the umask.
fn make_folder(around: BorrowedFd<'_>, name: &Path, mode: Mode) -> io::Result<()> {
    match mkdirat(around, name, Mode::RWXU) {
        // Another process made it meanwhile.
        Err(Errno::EXIST) => return Ok(()),
        result => result?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(around, name, flags, Mode::empty())?;
    Ok(fchmod(&folder, mode)?)
}

fn permissions(folder: BorrowedFd<'_>) -> io::Result<Mode> {
    Ok(Mode::from_raw_mode(fstat(folder)?.st_mode))
}

fn file_mode(folder: Mode) -> Mode {
    Mode::RUSR | Mode::WUSR | (folder & Mode::RGRP)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sums.json");
        replace(&path, b"old").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        // No temporary file can be made beside a file with so long a name.
        let long = folder.path().join("n".repeat(250));
        fs::write(&long, "old").unwrap();
        assert!(replace(&long, b"lost").is_err());
        assert_eq!(fs::read(&long).unwrap(), b"old");
        // A file cannot take the place of a folder.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(replace(&taken, b"lost").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no part is left");
    }

    #[test]
    fn links_of_others_are_never_followed() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = folder.path();
        let victim = outside.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        for name in ["n.parquet", "n.parquet.part"] {
            symlink(&victim, root.join(name)).unwrap();
        }
        symlink(outside.path(), root.join("date=d")).unwrap();
        replace_beneath(root, Path::new("n.parquet"), b"ours").unwrap();
        assert_eq!(fs::read(root.join("n.parquet")).unwrap(), b"ours");
        for name in ["date=d/victim", "../victim", "/victim"] {
            assert!(replace_beneath(root, Path::new(name), b"ours").is_err(), "{name}");
            assert!(read_beneath(root, Path::new(name)).is_err(), "{name}");
        }
        assert!(read_beneath(root, Path::new("n.parquet.part")).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        replace_beneath(root, Path::new("a/b/file"), b"content").unwrap();
        assert_eq!(read_beneath(root, Path::new("a/b/file")).unwrap(), b"content");
        assert!(read_beneath(root, Path::new("a/b")).is_err());
        // Opening a FIFO for reading waits for a writer.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("fifo"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let error = read_beneath(root, Path::new("fifo")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn created_folder_has_its_mode_and_an_existing_one_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/export");
        create_folder(&path, 0o770).unwrap();
        assert_eq!(mode(&path), 0o770);
        create_folder(&path, 0o700).unwrap();
        assert_eq!(mode(&path), 0o770, "an administrator's choice");
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(create_folder(&file.join("below"), 0o770).is_err());
    }

    #[test]
    fn folder_decides_whether_its_group_may_read() {
        let folder = tempfile::tempdir().unwrap();
        for (folder_mode, made_mode, read_mode) in [
            (0o700, 0o700, 0o600),
            (0o2770, 0o2770, 0o640),
            (0o1777, 0o775, 0o640),
        ] {
            let root = folder.path().join(format!("{folder_mode:o}"));
            fs::create_dir(&root).unwrap();
            fs::set_permissions(&root, Permissions::from_mode(folder_mode)).unwrap();
            replace_beneath(&root, Path::new("date=d/file"), b"").unwrap();
            assert_eq!(mode(&root.join("date=d")), made_mode, "{folder_mode:o}");
            assert_eq!(mode(&root.join("date=d/file")), read_mode, "{folder_mode:o}");
        }
    }
}
