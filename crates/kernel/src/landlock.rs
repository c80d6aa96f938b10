//! Landlock: a thread gives up access to files, sockets and processes, without any privilege (landlock(7)).
//!
//! A restricted thread cannot inspect processes outside: `/proc/PID/maps` and `process_madvise(2)` fail. So
//! Landlock is for servers, and not for commands that monitor processes.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, Scope,
};

/// The newest version whose restrictions are used, where the kernel has them (Linux 6.12).
const NEWEST: ABI = ABI::V6;

/// The files that stay accessible. Open files are not affected.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Folders whose files may be read.
    pub read: Vec<PathBuf>,
    /// Folders whose files may be removed.
    pub remove: Vec<PathBuf>,
}

/// Restricts the calling thread, and the threads and processes that it starts later, to `access`. It can
/// neither bind nor connect TCP sockets, nor send signals to other processes or connect to their abstract
/// Unix sockets. Paths that do not exist are left out. Returns false if this kernel has no Landlock, or not
/// enabled; an older one may know a part of the restrictions.
///
/// # Errors
/// The kernel refuses the rules.
pub fn restrict(access: &Access) -> io::Result<bool> {
    let status = apply(access).map_err(io::Error::other)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

fn apply(access: &Access) -> Result<RestrictionStatus, RulesetError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let rules = allow(rules, &access.read, AccessFs::ReadFile | AccessFs::ReadDir)?;
    let rules = allow(rules, &access.remove, AccessFs::RemoveFile.into())?;
    rules.restrict_self()
}

fn allow(
    rules: RulesetCreated,
    folders: &[impl AsRef<Path>],
    rights: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    folders
        .iter()
        .filter_map(|folder| PathFd::new(folder).ok())
        .try_fold(rules, |rules, folder| {
            rules.add_rule(PathBeneath::new(folder, rights))
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::fs;

    use super::*;

    #[test]
    fn thread_reads_and_removes_only_where_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["read", "remove", "other"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("file"), "text").unwrap();
        }
        let access = Access {
            read: vec![path("read"), path("missing")],
            remove: vec![path("remove")],
        };
        let (read, removed, other) = (path("read/file"), path("remove/file"), path("other/file"));
        let restricted = std::thread::spawn(move || {
            if !restrict(&access).unwrap() {
                return eprintln!("SKIP: this kernel has no Landlock");
            }
            assert_eq!(fs::read_to_string(&read).unwrap(), "text");
            assert!(fs::write(&read, "new").is_err() && fs::remove_file(&read).is_err());
            fs::remove_file(&removed).unwrap();
            assert!(fs::read(&other).is_err() && fs::remove_file(&other).is_err());
            assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err());
        });
        restricted.join().unwrap();
        assert!(path("other/file").exists() && !path("remove/file").exists());
    }
}
