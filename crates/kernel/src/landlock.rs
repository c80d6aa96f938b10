//! Landlock: a thread gives up access to files, sockets and processes, without any privilege (landlock(7)).
//!
//! A restricted thread cannot inspect processes outside: `/proc/PID/maps` and `process_madvise(2)` fail. So
//! Landlock is for servers, and not for commands that monitor processes.

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd, PathFdError,
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

/// What was restricted.
#[derive(Debug)]
pub struct Restricted {
    /// False if this kernel has no Landlock, or not enabled. An older one may know a part of the
    /// restrictions.
    pub is_enforced: bool,
    /// Folders that exist, but could not be opened: nothing is allowed in them.
    pub skipped: Vec<(PathBuf, io::Error)>,
}

/// Restricts the calling thread, and the threads and processes that it starts later, to `access`. It can
/// neither bind nor connect TCP sockets, nor send signals to other processes or connect to their abstract
/// Unix sockets. Paths that do not exist are left out.
///
/// # Errors
/// The kernel refuses the rules.
pub fn restrict(access: &Access) -> io::Result<Restricted> {
    let mut skipped = Vec::new();
    let status = apply(access, &mut skipped).map_err(io::Error::other)?;
    Ok(Restricted {
        is_enforced: status.ruleset != RulesetStatus::NotEnforced,
        skipped,
    })
}

fn apply(
    access: &Access,
    skipped: &mut Vec<(PathBuf, io::Error)>,
) -> Result<RestrictionStatus, RulesetError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let rules = allow(
        rules,
        open(&access.read, skipped),
        AccessFs::ReadFile | AccessFs::ReadDir,
    )?;
    let rules = allow(rules, open(&access.remove, skipped), AccessFs::RemoveFile.into())?;
    rules.restrict_self()
}

fn allow(
    rules: RulesetCreated,
    folders: Vec<PathFd>,
    rights: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    folders.into_iter().try_fold(rules, |rules, folder| {
        rules.add_rule(PathBeneath::new(folder, rights))
    })
}

/// Opens `folders`. Those that exist but cannot be opened are added to `skipped`.
fn open(folders: &[PathBuf], skipped: &mut Vec<(PathBuf, io::Error)>) -> Vec<PathFd> {
    let mut opened = Vec::new();
    for folder in folders {
        match PathFd::new(folder) {
            Ok(descriptor) => opened.push(descriptor),
            Err(PathFdError::OpenCall { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(PathFdError::OpenCall { source, .. }) => skipped.push((folder.clone(), source)),
            Err(error) => skipped.push((folder.clone(), io::Error::other(error))),
        }
    }
    opened
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
            // The last one is below a file, so no folder.
            remove: vec![path("remove"), path("read/file/folder")],
        };
        let (read, removed, other) = (path("read/file"), path("remove/file"), path("other/file"));
        let restricted = std::thread::spawn(move || {
            let restricted = restrict(&access).unwrap();
            let skipped: Vec<_> = restricted.skipped.iter().map(|(folder, _)| folder).collect();
            assert_eq!(skipped, [&access.remove[1]], "{:?}", restricted.skipped);
            if !restricted.is_enforced {
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
