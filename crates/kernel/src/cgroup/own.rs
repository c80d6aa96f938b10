//! A group of our own, given back.

use std::fs;
use std::path::{Path, PathBuf};

use super::{CgroupError, Group, Version, below, mount_of};
use crate::file::{self, FileError};

/// A group we made, at the top of a controller's hierarchy. It is given back by [`OwnGroup::remove`]; when that was
/// not called, dropping it tries and complains on stderr.
#[derive(Debug)]
pub struct OwnGroup {
    group: Group,
    parent: PathBuf,
    // Version 2: we handed the controller down to the groups below the root, which did not have it.
    handed_down: Option<String>,
    removed: bool,
}

impl OwnGroup {
    /// Makes the group `name` with `controller`.
    ///
    /// # Errors
    /// When the controller is mounted nowhere, the name is taken, or we may not.
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
            handed_down: None,
            removed: false,
        };
        if mount.version == Version::V2 {
            own.handed_down = hand_down(&own.parent, controller)?;
        }
        Ok(own)
    }

    /// The group.
    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// Moves whoever is still in it up, and removes it.
    ///
    /// # Errors
    /// When it could not be removed; it is still there then.
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
                // It may end at this moment; whether the folder goes away tells.
                let _ = parent.add(pid);
            }
            fs::remove_dir(&self.group.dir).map_err(|source| FileError::new(&self.group.dir, source))
        })?;
        match &self.handed_down {
            Some(controller) => file::write(
                &self.parent.join("cgroup.subtree_control"),
                &format!("-{controller}"),
            ),
            None => Ok(()),
        }
    }
}

fn hand_down(root_group: &Path, controller: &str) -> Result<Option<String>, FileError> {
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

impl Drop for OwnGroup {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        if let Err(err) = self.try_remove() {
            eprintln!(
                "the control group {} is left behind: {err}. Remove it with rmdir",
                self.group.dir.display()
            );
        }
    }
}
