//! Users of the machine (passwd(5), group(5)), and running as one of them (credentials(7)).

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::capabilities::{self, Capabilities, Capability};

/// A user of the machine, with the groups of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The user ID.
    pub uid: u32,
    /// The group ID of the user.
    pub gid: u32,
    /// All groups of the user.
    pub groups: Vec<Gid>,
    /// The home directory.
    pub home: PathBuf,
}

/// Why another user cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// No user has the name.
    #[error("there is no user {0:?}: give a name that `getent passwd` lists")]
    Unknown(String),
    /// The users cannot be read.
    #[error("cannot look up the user {name:?}: {source}")]
    LookUp {
        /// The name.
        name: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Only root may act for others.
    #[error(
        "only root can run programs as another user, and we lack {0}: run it with sudo, or leave --user out"
    )]
    NotRoot(String),
}

impl User {
    /// Looks up the user called `name`, to run as. Nothing is changed.
    ///
    /// # Errors
    /// There is no such user, or we may not act as another user.
    pub fn to_run_as(name: &str) -> Result<Self, UserError> {
        let look_up_error = |source| UserError::LookUp {
            name: name.to_owned(),
            source,
        };
        let user = Self::named(name).map_err(look_up_error)?;
        let user = user.ok_or_else(|| UserError::Unknown(name.to_owned()))?;
        let own = Capabilities::effective(Path::new("/"), std::process::id())
            .map_err(|error| look_up_error(io::Error::other(error)))?;
        match own.missing(&[Capability::Setuid, Capability::Setgid]).as_slice() {
            [] => Ok(user),
            missing => {
                let names: Vec<&str> = missing.iter().map(|one| one.name()).collect();
                Err(UserError::NotRoot(names.join(" and ")))
            }
        }
    }

    fn named(name: &str) -> io::Result<Option<Self>> {
        let Ok(c_name) = CString::new(name) else {
            return Ok(None);
        };
        let mut buffer = vec![0; 1 << 16];
        // SAFETY: all zeroes is a valid passwd: integers, and null pointers.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: the name ends with 0, the length is that of the buffer, and all four live through the call.
        let error = unsafe {
            libc::getpwnam_r(
                c_name.as_ptr(),
                &raw mut entry,
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            )
        };
        match error {
            0 if found.is_null() => return Ok(None),
            0 => {}
            // What C libraries return without an entry.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        // SAFETY: the entry was found, so its home is a string in the buffer, which still lives.
        let home = unsafe { CStr::from_ptr(entry.pw_dir) };
        Ok(Some(Self {
            name: name.to_owned(),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            groups: groups(&c_name, entry.pw_gid)?,
            home: PathBuf::from(OsStr::from_bytes(home.to_bytes())),
        }))
    }

    /// Makes the calling thread run as this user and as its groups, with the capabilities `kept` of those it
    /// has. Threads that it starts later run alike; other threads are not affected.
    ///
    /// # Errors
    /// EPERM without `CAP_SETUID` and `CAP_SETGID`.
    pub fn switch_to(&self, kept: Capabilities) -> io::Result<()> {
        // Only root can change the bounding set.
        capabilities::limit_bounding_set(kept)?;
        rustix::thread::set_keep_capabilities(true)?;
        self.set_ids()?;
        rustix::thread::set_keep_capabilities(false)?;
        capabilities::keep_only(kept)
    }

    /// Makes the process that `command` starts run as this user and its groups, without capabilities, with
    /// HOME, USER and LOGNAME of the user.
    pub fn run_as(&self, command: &mut Command) {
        command
            .env("HOME", &self.home)
            .env("USER", &self.name)
            .env("LOGNAME", &self.name);
        let user = self.clone();
        let switch = move || {
            user.set_ids()?;
            // Without root the kernel has dropped them already, but not those of a caller that never was
            // root.
            rustix::thread::clear_ambient_capability_set()?;
            let none = CapabilitySet::empty();
            let sets = CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            };
            Ok(rustix::thread::set_capabilities(None, sets)?)
        };
        // SAFETY: runs between fork and exec; it makes system calls on memory that was filled before,
        // allocates no memory and takes no lock.
        unsafe { command.pre_exec(switch) };
    }

    // Of this thread: there is only one, in a child, and before others are started.
    fn set_ids(&self) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&self.groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    }
}

/// All groups of the user called `name`, whose own group is `gid`.
fn groups(name: &CStr, gid: u32) -> io::Result<Vec<Gid>> {
    let mut count: libc::c_int = 64;
    loop {
        let mut groups = vec![0; usize::try_from(count).unwrap_or_default()];
        // SAFETY: the name ends with 0, and `count` is the length of the list; all live through the call.
        let found = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let length = usize::try_from(count).unwrap_or_default();
        if found >= 0 {
            return Ok(groups.into_iter().take(length).map(Gid::from_raw).collect());
        }
        // Without enough room, the call asks for more.
        if length <= groups.len() {
            return Err(io::Error::other("the groups cannot be read"));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let root = User::named("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&Gid::from_raw(0)));
        for unknown in ["no-such-user-here", "", "a\0b"] {
            assert_eq!(User::named(unknown).unwrap(), None, "{unknown:?}");
        }
        let error = User::to_run_as("no-such-user-here").unwrap_err().to_string();
        assert!(error.contains("no-such-user-here"), "{error}");
    }

    #[test]
    fn thread_of_another_user_keeps_only_named_capabilities() {
        let Ok(nobody) = User::to_run_as("nobody") else {
            return eprintln!("SKIP: only root can run as another user");
        };
        let switched = std::thread::spawn(move || {
            nobody
                .switch_to(Capabilities::of(&[Capability::SysNice]))
                .unwrap();
            let sets = rustix::thread::capabilities(None).unwrap();
            assert_eq!(
                (sets.effective, sets.permitted),
                (CapabilitySet::SYS_NICE, CapabilitySet::SYS_NICE)
            );
            let of_setuid = rustix::thread::capability_is_in_bounding_set(CapabilitySet::SETUID);
            assert!(!of_setuid.unwrap());
            // Threads have their own IDs, and /proc/thread-self shows them.
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(
                status.contains(&format!("Uid:\t{0}\t{0}\t{0}\t{0}\n", nobody.uid)),
                "{status}"
            );
        });
        switched.join().unwrap();
    }

    #[test]
    fn command_of_another_user_has_no_capabilities() {
        let Ok(nobody) = User::to_run_as("nobody") else {
            return eprintln!("SKIP: only root can run as another user");
        };
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "grep -E 'CapPrm|CapEff|CapInh|CapAmb' /proc/self/status; id -un; echo $HOME $USER",
        ]);
        nobody.run_as(&mut command);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(output.matches("\t0000000000000000\n").count(), 4, "{output}");
        let home = nobody.home.display();
        assert!(output.ends_with(&format!("nobody\n{home} nobody\n")), "{output}");
    }
}
