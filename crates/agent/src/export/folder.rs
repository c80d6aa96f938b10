//! A folder of finished files, of which those of this machine are bounded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thermo_fleet::{Finished, clean_name};
use thermo_kernel::durable_file;

use crate::config::ExportConfig;

/// The folder.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    /// The permissions of the folder, if it has to be made.
    mode: u32,
    /// Files of this cluster and node are ours: a folder may be shared.
    cluster: String,
    node: String,
    /// In bytes; `None`: nothing is dropped.
    max_bytes: Option<u64>,
}

impl Folder {
    /// The folder at `root`, for the files of a configuration. It has the permissions `mode` if it has to be
    /// made.
    #[must_use]
    pub fn new(root: PathBuf, mode: u32, config: &ExportConfig) -> Self {
        Self {
            root,
            mode,
            cluster: clean_name(&config.cluster),
            node: clean_name(&config.node),
            max_bytes: config.max_size.map(|size| size.0),
        }
    }

    /// Where the file `name` is.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The files of this machine, the oldest first.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn files(&self) -> io::Result<Vec<Finished>> {
        let mut files = thermo_fleet::finished(&self.root)?;
        files.retain(|file| file.cluster == self.cluster && file.node == self.node);
        Ok(files)
    }

    /// Makes the folder, unless it exists.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn create(&self) -> io::Result<()> {
        durable_file::create_folder(&self.root, self.mode)
    }

    /// Writes the file `name`, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.create()?;
        durable_file::replace_beneath(&self.root, Path::new(name), content)
    }

    /// Moves the file `name` to the folder `to`, which may be on another disk.
    ///
    /// # Errors
    /// It cannot be read here, or written there: then it stays here.
    pub(super) fn move_to(&self, to: &Self, name: &str) -> io::Result<()> {
        to.write(name, &durable_file::read_beneath(&self.root, Path::new(name))?)?;
        thermo_fleet::remove(&self.root, name).map(drop)
    }

    /// The size of a file; 0 where it was taken meanwhile.
    ///
    /// # Errors
    /// Its size cannot be read.
    pub(super) fn size(&self, file: &Finished) -> io::Result<u64> {
        match fs::symlink_metadata(self.path(&file.name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            metadata => Ok(metadata?.len()),
        }
    }

    /// Drops the oldest files until the others fit. Returns how many.
    ///
    /// # Errors
    /// The folder cannot be read, or a file not be removed.
    pub(super) fn drop_oldest(&self) -> io::Result<u64> {
        let Some(max_bytes) = self.max_bytes else {
            return Ok(0);
        };
        let files = self.files()?;
        let sizes: Vec<u64> = files
            .iter()
            .map(|file| self.size(file))
            .collect::<Result<_, _>>()?;
        let mut bytes: u64 = sizes.iter().sum();
        let mut dropped = 0;
        for (file, size) in files.iter().zip(sizes) {
            if bytes <= max_bytes {
                break;
            }
            dropped += u64::from(thermo_fleet::remove(&self.root, &file.name)?);
            bytes -= size;
        }
        Ok(dropped)
    }

    /// Where the folder is.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }
}
