//! Files that are replaced whole or not at all, also when the machine stops in between.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Makes `content` the content of `path`: of a temporary file beside it (`.part`), which then takes its
/// place. When this returns, content and name are on the disk (`fsync(2)`, `rename(2)`).
///
/// # Errors
/// What the system said. The old file is whole then.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let part = path.with_added_extension("part");
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().inspect_err(|_| {
        // There is no room, or the folder went: nothing else can be done about the part.
        drop(fs::remove_file(&part));
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sums.json");
        replace(&path, b"old").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        // A folder is where the temporary file belongs.
        fs::create_dir(folder.path().join("sums.json.part")).unwrap();
        assert!(replace(&path, b"lost").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
