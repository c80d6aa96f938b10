//! A temporary control group, removed at the end.

use std::fs;
use std::path::{Path, PathBuf};

use super::{CgroupError, Group, Version, below, mount_of};
use crate::file::{self, FileError};

/// A group that we created below the root group of a controller's hierarchy. [`TemporaryGroup::remove`]
/// removes it. Otherwise dropping it removes it, and prints errors to stderr.
#[derive(Debug)]
pub struct TemporaryGroup {
    group: Group,
    parent: PathBuf,
    // Version 2: the controller that we enabled for child groups of the root group.
    enabled_controller: Option<String>,
    removed: bool,
}

impl TemporaryGroup {
    /// Creates the group `name` with `controller`.
    ///
    /// # Errors
    /// Fails if no hierarchy has the controller, the name is taken, or without the right to create groups.
    pub fn create(root: &Path, controller: &str, name: &str) -> Result<Self, CgroupError> {
        let mount = mount_of(root, controller)?;
        let dir = below(&mount.dir, name);
        fs::create_dir(&dir).map_err(|source| FileError::new(&dir, source))?;
        let group = Group {
            version: mount.version,
            dir,
        };
        // From here on a failure drops the guard, which removes the group.
        let mut own = Self {
            group,
            parent: mount.dir,
            enabled_controller: None,
            removed: false,
        };
        if mount.version == Version::V2 {
            own.enabled_controller = enable_controller(&own.parent, controller)?;
        }
        Ok(own)
    }

    /// The group.
    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// Moves the remaining processes to the parent group, and removes the group.
    ///
    /// # Errors
    /// Fails if the group could not be removed; it then still exists.
    pub fn remove(mut self) -> Result<(), FileError> {
        self.removed = true;
        self.try_remove()
    }

    fn try_remove(&self) -> Result<(), FileError> {
        let parent = Group {
            version: self.group.version,
            dir: self.parent.clone(),
        };
        file::while_busy(|| {
            for pid in self.group.procs()? {
                // The process may end at this moment; the removal below fails if it stays.
                let _ = parent.add(pid);
            }
            fs::remove_dir(&self.group.dir).map_err(|source| FileError::new(&self.group.dir, source))
        })?;
        match &self.enabled_controller {
            Some(controller) => file::write(
                &self.parent.join("cgroup.subtree_control"),
                &format!("-{controller}"),
            ),
            None => Ok(()),
        }
    }
}

fn enable_controller(root_group: &Path, controller: &str) -> Result<Option<String>, FileError> {
    let path = root_group.join("cgroup.subtree_control");
    if file::text(&path)?
        .split_ascii_whitespace()
        .any(|one| one == controller)
    {
        return Ok(None);
    }
    file::write(&path, &format!("+{controller}"))?;
    Ok(Some(controller.to_owned()))
}

impl Drop for TemporaryGroup {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        if let Err(err) = self.try_remove() {
            crate::message!(
                "cannot remove the control group {}: {err}. Remove it with rmdir",
                self.group.dir.display()
            );
        }
    }
}
