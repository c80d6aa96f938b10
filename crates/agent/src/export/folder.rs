//! The folder in which finished files wait until `thermo-upload`, or whoever else, takes them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thermo_fleet::clean_name;
use thermo_kernel::durable_file;

use crate::config::ExportConfig;

/// The folder.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    /// Files of this cluster and node are ours: a folder may be shared.
    cluster: String,
    node: String,
    /// In bytes; `None`: nothing is dropped.
    max_bytes: Option<u64>,
}

/// A file that waits. The oldest day sorts first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// The day and the start of the window.
    age: (String, u64),
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

impl Folder {
    /// The folder of a configuration.
    #[must_use]
    pub fn new(config: &ExportConfig) -> Self {
        Self {
            root: config.folder.clone(),
            cluster: format!("cluster={}", clean_name(&config.cluster)),
            node: format!("{}.", clean_name(&config.node)),
            max_bytes: config.max_size.map(|size| size.0),
        }
    }

    /// Moves the file `from` to `to` in this folder, whole or not at all. It may be on another disk.
    ///
    /// # Errors
    /// `to` cannot be written; then `from` stays.
    pub(super) fn take(&self, from: &Path, to: &Path) -> io::Result<()> {
        let content = fs::read(from)?;
        fs::create_dir_all(to.parent().unwrap_or(&self.root))?;
        durable_file::replace(to, &content)?;
        fs::remove_file(from)
    }

    /// The files of this node, the oldest first.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn waiting(&self) -> io::Result<Vec<Waiting>> {
        let mut files = Vec::new();
        for day in entries(&self.root)? {
            let name = day.file_name().to_string_lossy().into_owned();
            if !name.starts_with("date=") {
                continue;
            }
            for entry in entries(&day.path().join(&self.cluster))? {
                let start = self.window_start(&entry.file_name().to_string_lossy());
                let Some(start) = start else { continue };
                files.push(Waiting {
                    age: (name.clone(), start),
                    path: entry.path(),
                    bytes: entry.metadata().map_or(0, |metadata| metadata.len()),
                });
            }
        }
        files.sort();
        Ok(files)
    }

    /// The start of the window in the name of a file of this node.
    fn window_start(&self, name: &str) -> Option<u64> {
        let rest = name.strip_prefix(&self.node)?.strip_suffix(".parquet")?;
        rest.split('.').next()?.parse().ok()
    }

    /// Drops the oldest files until the others fit. Returns how many.
    ///
    /// # Errors
    /// The folder cannot be read, or a file not be removed.
    pub(super) fn drop_oldest(&self) -> io::Result<u64> {
        let Some(max_bytes) = self.max_bytes else {
            return Ok(0);
        };
        let waiting = self.waiting()?;
        let mut bytes: u64 = waiting.iter().map(|file| file.bytes).sum();
        let mut dropped = 0;
        for file in waiting {
            if bytes <= max_bytes {
                break;
            }
            match fs::remove_file(&file.path) {
                Ok(()) => dropped += 1,
                // It was taken meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            bytes -= file.bytes;
        }
        Ok(dropped)
    }
}

/// The entries of a folder; none if there is no folder.
fn entries(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
