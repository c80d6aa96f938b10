//! The folder in which finished files wait until they are taken to a store.

use std::fs::{self, FileType};
use std::io;
use std::path::Path;

/// A finished file. Files sort by their window, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finished {
    /// Start of the window, Unix time in s.
    pub start_s: u64,
    /// Path below the folder: the name of [`file_name`](crate::file_name).
    pub name: String,
    /// Name of the cluster, cleaned.
    pub cluster: String,
    /// Name of the machine, cleaned.
    pub node: String,
}

impl Finished {
    /// The parts of the name of a file. `None`: it is no name of [`file_name`](crate::file_name), of this or
    /// another version.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let [date, cluster, file] = name.split('/').collect::<Vec<_>>().try_into().ok()?;
        date.strip_prefix("date=")?;
        let mut parts = file.strip_suffix(".parquet")?.rsplitn(3, '.');
        let version = parts.next()?.strip_prefix('v')?;
        let start_s = parts.next()?.parse().ok()?;
        version.parse::<u32>().ok()?;
        Some(Self {
            start_s,
            name: name.to_owned(),
            cluster: cluster.strip_prefix("cluster=")?.to_owned(),
            node: parts.next()?.to_owned(),
        })
    }
}

/// The finished files below `root`, the oldest first; none if there is no such folder. Files that are still
/// written have other names.
///
/// # Errors
/// A folder cannot be read.
pub fn finished(root: &Path) -> io::Result<Vec<Finished>> {
    let mut files = Vec::new();
    for date in names(root, FileType::is_dir)? {
        for cluster in names(&root.join(&date), FileType::is_dir)? {
            let folder = format!("{date}/{cluster}");
            for file in names(&root.join(&folder), FileType::is_file)? {
                files.extend(Finished::parse(&format!("{folder}/{file}")));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The names of one kind in a folder, of those that are Unicode. None if there is no folder: it may be taken
/// meanwhile.
fn names(folder: &Path, is_wanted: fn(&FileType) -> bool) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if is_wanted(&entry.file_type()?) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// Removes the file `name` below `root`, and its folders if they are empty then. Returns whether it was
/// there.
///
/// # Errors
/// What the system said.
pub fn remove(root: &Path, name: &str) -> io::Result<bool> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let was_there = match fs::remove_file(root.join(name)) {
        Err(error) if is_gone(&error) => false,
        result => result.map(|()| true)?,
    };
    let folders = Path::new(name).ancestors().skip(1);
    for folder in folders.take_while(|folder| !folder.as_os_str().is_empty()) {
        match fs::remove_dir(root.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => break,
            Err(error) if is_gone(&error) => {}
            result => result?,
        }
    }
    Ok(was_there)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::{FileFacts, file_name};

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        folder
    }

    #[test]
    fn names_have_their_parts() {
        let facts = FileFacts {
            cluster: "eu west".into(),
            node: "node-7.example".into(),
            window_start_ms: 1_793_660_400_000,
            window_ms: 3_600_000,
            ..FileFacts::default()
        };
        let name = file_name(&facts).unwrap();
        let parts = Finished {
            start_s: 1_793_660_400,
            name: name.clone(),
            cluster: "eu_west".into(),
            node: "node-7.example".into(),
        };
        assert_eq!(Finished::parse(&name), Some(parts));
        for other in [
            "date=d/cluster=c/n.1.v1.parquet.part",
            "date=d/cluster=c/n.1.parquet",
            "date=d/cluster=c/n.x.v1.parquet",
            "date=d/n.1.v1.parquet",
            "date=d/cluster=c/x/n.1.v1.parquet",
            "d/cluster=c/n.1.v1.parquet",
            "",
        ] {
            assert_eq!(Finished::parse(other), None, "{other}");
        }
    }

    #[test]
    fn finished_files_are_listed_oldest_first() {
        let folder = folder(&[
            "date=2026-11-03/cluster=a/n.9.v1.parquet",
            "date=2026-11-02/cluster=b/n.1.v1.parquet",
            "date=2026-11-02/cluster=a/n.2.v2.parquet",
            "date=2026-11-02/cluster=a/n.3.v1.parquet.part",
            "date=2026-11-02/stray.parquet",
            "window.jsonl",
            // A folder with the name of a file.
            "date=2026-11-02/cluster=a/n.4.v1.parquet/file",
        ]);
        let files = finished(folder.path()).unwrap();
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "date=2026-11-02/cluster=b/n.1.v1.parquet",
                "date=2026-11-02/cluster=a/n.2.v2.parquet",
                "date=2026-11-03/cluster=a/n.9.v1.parquet",
            ]
        );
        assert_eq!(finished(&folder.path().join("none")).unwrap(), []);
    }

    #[test]
    fn folders_go_with_their_last_file() {
        let (one, two) = (
            "date=d/cluster=a/n.1.v1.parquet",
            "date=d/cluster=b/n.1.v1.parquet",
        );
        let folder = folder(&[one, two]);
        assert!(remove(folder.path(), one).unwrap());
        assert!(!folder.path().join("date=d/cluster=a").exists());
        assert!(!remove(folder.path(), one).unwrap(), "it is gone already");
        assert!(remove(folder.path(), two).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
