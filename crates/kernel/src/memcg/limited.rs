//! Groups with a limit: what a process may have is bounded by its group and by all groups above it.

use std::path::Path;

use thermo_units::Bytes;

use super::Memcg;
use crate::cgroup::{Group, Version};
use crate::file::{self, FileError};

/// A group that has a limit.
#[derive(Debug)]
pub struct Limited {
    group: Group,
    memcg: Memcg,
}

impl Limited {
    /// `group` and the groups above it, as far as they have a limit now, the nearest first.
    ///
    /// # Errors
    /// When a limit cannot be read.
    pub fn all_of(group: &Group) -> Result<Vec<Self>, FileError> {
        let mut limited = Vec::new();
        let mut dir: Option<&Path> = Some(&group.dir);
        while let Some(here) = dir.filter(|dir| dir.join("memory.stat").exists()) {
            let group = Group {
                version: group.version,
                dir: here.to_owned(),
            };
            let memcg = Memcg::new(group.clone());
            let one = Self { group, memcg };
            // The root of version 2 has no limit, hence no file for one.
            match one.limit() {
                Ok(Some(_)) => limited.push(one),
                Ok(None) => {}
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
            dir = here.parent();
        }
        Ok(limited)
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.group.dir
    }

    /// The lower of the hard limit and, on version 2, the one at which the group is slowed down.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn limit(&self) -> Result<Option<Bytes>, FileError> {
        let hard = self.memcg.limit()?;
        let high = match self.group.version {
            Version::V1 => None,
            Version::V2 => file::number(&self.group.dir.join("memory.high")).ok().map(Bytes),
        };
        Ok(hard.into_iter().chain(high).min())
    }

    /// Memory in use, page cache as well.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn usage(&self) -> Result<Bytes, FileError> {
        self.memcg.usage()
    }

    /// Page cache on the LRU lists: in use, but the kernel takes it back by itself.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn evictable(&self) -> Result<Bytes, FileError> {
        let names = match self.group.version {
            Version::V1 => ["total_inactive_file ", "total_active_file "],
            Version::V2 => ["inactive_file ", "active_file "],
        };
        let text = file::text(&self.group.dir.join("memory.stat"))?;
        let value = |line: &str| {
            names
                .iter()
                .find_map(|name| line.strip_prefix(name)?.trim().parse().ok())
        };
        Ok(text.lines().filter_map(value).map(Bytes).sum())
    }
}
