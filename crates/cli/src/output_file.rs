//! Files that verbs write: exports and pictures. They show what a program does, as a recording does, so only
//! their owner may read them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// Writes the file `path` with `write`. The data goes to a temporary file next to it first, which replaces
/// `path` when it is complete and on the disk: after an error, an existing file is unchanged. The temporary
/// file has no name until then, where the file system allows that: a killed command leaves none behind.
/// Devices and pipes are written to directly.
///
/// # Errors
/// `write` fails, the file cannot be written, or `path` is a symbolic link (except directly in `/dev`): in a
/// folder that others can write to, the link may lead to any file of ours.
pub fn write(path: &Path, write: impl FnOnce(&mut File) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let cannot_write = || format!("cannot write {}", path.display());
    if is_special(path)? {
        let mut file = OpenOptions::new()
            .write(true)
            .open(path)
            .with_context(cannot_write)?;
        return write(&mut file);
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Its name is not predictable, its mode is 0600, and an existing file is never opened.
    let mut name = tempfile::Builder::new();
    name.prefix(".thermo-");
    if let Some(mut file) = open_unnamed(folder) {
        write(&mut file)?;
        file.sync_all().with_context(cannot_write)?;
        let named = name.make_in(folder, |name| give_name(&file, name));
        named
            .with_context(cannot_write)?
            .persist(path)
            .with_context(cannot_write)?;
        return Ok(());
    }
    let mut temporary = name.tempfile_in(folder).with_context(cannot_write)?;
    write(temporary.as_file_mut())?;
    temporary.as_file().sync_all().with_context(cannot_write)?;
    temporary.persist(path).with_context(cannot_write)?;
    Ok(())
}

/// Writes `bytes` to the file `path`, as [`write()`] does, and prints its name.
///
/// # Errors
/// As [`write()`].
pub fn write_bytes(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let cannot_write = || format!("cannot write {}", path.display());
    write(path, |file| file.write_all(bytes).with_context(cannot_write))?;
    thermo_kernel::message!("thermo: wrote {}", path.display());
    Ok(())
}

/// A file without a name (`O_TMPFILE`). `None` if the file system has none, or on an error that the attempt
/// with a name reports.
fn open_unnamed(folder: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).ok()?;
    Some(file.into())
}

fn give_name(file: &File, name: &Path) -> io::Result<()> {
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(
        CWD,
        unnamed,
        CWD,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )?)
}

/// Whether `path` is a device, a pipe or a socket.
fn is_special(path: &Path) -> anyhow::Result<bool> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(cannot_inspect(path, error)),
    };
    if kind.is_symlink() && path.parent() != Some(Path::new("/dev")) {
        bail!(
            "{} is a symbolic link, and links are not followed: name the file itself",
            path.display()
        );
    }
    if kind.is_dir() {
        bail!("{} is a folder: name a file in it", path.display());
    }
    Ok(!kind.is_file())
}

fn cannot_inspect(path: &Path, error: io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn put(path: &Path, text: &str) -> anyhow::Result<()> {
        write(path, |file| Ok(file.write_all(text.as_bytes())?))
    }

    #[test]
    fn output_is_private_and_replaces_existing_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.svg");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        put(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn symbolic_link_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("out.csv"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        let error = put(&link, "new").unwrap_err().to_string();
        assert!(error.contains("out.csv is a symbolic link"), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn failed_output_keeps_existing_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        fs::write(&path, "old").unwrap();
        let failed = write(&path, |file| {
            file.write_all(b"half")?;
            bail!("the recording is damaged")
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        // A command that is killed here leaves nothing behind.
        if open_unnamed(folder.path()).is_some() {
            let count_files = |_: &mut File| {
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
                Ok(())
            };
            write(&path, count_files).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn device_is_written_directly() {
        put(Path::new("/dev/null"), "text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
