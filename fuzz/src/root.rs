//! A fake machine: a folder with the files that an input describes. Readers take its path as their root.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use tempfile::TempDir;

/// Separates the files of an input (ASCII's record separator).
const SEPARATOR: u8 = 0x1e;

/// A root with the files of one target. They stay open, because an input is often shorter to parse than a
/// file is to create.
#[derive(Debug)]
pub(crate) struct Root {
    dir: TempDir,
    files: Vec<File>,
}

impl Root {
    /// Creates `files` in a new folder. Their folders are created too.
    pub(crate) fn new(files: &[&str]) -> Self {
        let dir = check(TempDir::with_prefix("thermo-fuzz-"));
        let create = |name: &&str| {
            let path = dir.path().join(name);
            check(fs::create_dir_all(path.parent().unwrap_or(dir.path())));
            check(File::create(path))
        };
        let files = files.iter().map(create).collect();
        Self { dir, files }
    }

    /// Fills the files with the parts of `data`. Files without a part are empty.
    pub(crate) fn fill(&self, data: &[u8]) -> &Path {
        self.fill_parts(data.split(|byte| *byte == SEPARATOR))
    }

    /// Fills the only file with `data`.
    pub(crate) fn fill_whole(&self, data: &[u8]) -> &Path {
        self.fill_parts(std::iter::once(data))
    }

    fn fill_parts<'a>(&self, mut parts: impl Iterator<Item = &'a [u8]>) -> &Path {
        for file in &self.files {
            let part = parts.next().unwrap_or_default();
            check(file.write_all_at(part, 0));
            check(file.set_len(part.len() as u64));
        }
        self.dir.path()
    }
}

/// Without its files a target tests nothing, so it cannot go on.
fn check<T>(result: std::io::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("cannot write the files of the fake machine: {error}"))
}
