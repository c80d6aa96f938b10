//! The folder in which finished files wait: `date=DAY/cluster=NAME/NODE.SECONDS.v1.parquet`.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use thermo_fleet::Finished;
use thermo_kernel::durable_file;

/// The folder in which finished files wait.
#[derive(Debug)]
pub struct Spool {
    root: PathBuf,
}

/// The content of a file, and what identifies this content.
#[derive(Debug)]
pub struct Content {
    /// All bytes.
    pub bytes: Vec<u8>,
    state: FileState,
}

/// Changes when a file is replaced or written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    inode: u64,
    length: u64,
    modified: SystemTime,
}

impl FileState {
    fn of(metadata: &Metadata) -> io::Result<Self> {
        Ok(Self {
            inode: metadata.ino(),
            length: metadata.len(),
            modified: metadata.modified()?,
        })
    }
}

impl Spool {
    /// The spool at `root`.
    ///
    /// # Errors
    /// It is not a folder.
    pub fn open(root: &Path) -> anyhow::Result<Self> {
        let metadata = fs::metadata(root).with_context(|| {
            format!(
                "cannot read {}: give the agent's export folder with --from",
                root.display()
            )
        })?;
        ensure!(
            metadata.is_dir(),
            "{} is not a folder: give the agent's export folder with --from",
            root.display()
        );
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// The files that wait, the oldest first. Files that are still written have other names.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn waiting(&self) -> io::Result<Vec<Finished>> {
        // A spool that has gone is not an empty one.
        fs::read_dir(&self.root)?;
        thermo_fleet::finished(&self.root)
    }

    /// Reads a file. `None`: it has gone meanwhile.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self, file: &Finished) -> io::Result<Option<Content>> {
        let path = self.root.join(&file.name);
        let read = || {
            let state = FileState::of(&fs::symlink_metadata(&path)?)?;
            let bytes = durable_file::read_beneath(&self.root, Path::new(&file.name))?;
            Ok::<_, io::Error>(Content { bytes, state })
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            content => content.map(Some),
        }
    }

    /// Removes a file whose `content` is stored, and folders that are empty then. A file that was replaced
    /// meanwhile stays, and is moved the next time.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, file: &Finished, content: &Content) -> io::Result<()> {
        let path = self.root.join(&file.name);
        match fs::symlink_metadata(&path).and_then(|metadata| FileState::of(&metadata)) {
            Ok(state) if state != content.state => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        thermo_fleet::remove(&self.root, &file.name).map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn spool(files: &[&str]) -> (tempfile::TempDir, Spool) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let spool = Spool::open(folder.path()).unwrap();
        (folder, spool)
    }

    #[test]
    fn replaced_file_stays() {
        let (folder, spool) = spool(&["date=d/cluster=c/n.1.v1.parquet"]);
        let file = spool.waiting().unwrap().remove(0);
        let content = spool.read(&file).unwrap().unwrap();
        fs::write(folder.path().join(&file.name), "newer and longer than before").unwrap();
        spool.remove(&file, &content).unwrap();
        assert_eq!(spool.waiting().unwrap(), std::slice::from_ref(&file));
        let content = spool.read(&file).unwrap().unwrap();
        spool.remove(&file, &content).unwrap();
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            0,
            "folders are removed, too"
        );
        assert!(spool.read(&file).unwrap().is_none());
    }

    #[test]
    fn spool_that_has_gone_is_an_error() {
        let (folder, spool) = spool(&[]);
        assert_eq!(spool.waiting().unwrap(), []);
        folder.close().unwrap();
        assert_eq!(spool.waiting().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn folder_must_exist() {
        let error = Spool::open(Path::new("/nonexistent")).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot read /nonexistent: give the agent's export folder with --from"
        );
        let error = Spool::open(Path::new("/proc/version")).unwrap_err().to_string();
        assert!(error.contains("is not a folder"), "{error}");
    }
}
