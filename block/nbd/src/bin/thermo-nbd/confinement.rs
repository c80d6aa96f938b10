//! The privileges of the server once its files and sockets are open: none.
//!
//! The server parses what clients and virtual machines send. So it gives up what it does not need for that:
//! the user, if one is named, all capabilities, system calls (seccomp), and files, TCP sockets and processes
//! (Landlock). SECURITY.md lists what stays.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use thermo_kernel::capabilities::{self, Capabilities};
use thermo_kernel::cgroup::Group;
use thermo_kernel::landlock;
use thermo_kernel::no_new_privs;
use thermo_kernel::syscall_filter::{AllowedCalls, RUNTIME};
use thermo_kernel::user::User;

/// Calls on the files of exports, and on memory of virtual machines.
const EXPORT_IO: &[i64] = &[
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fdatasync,
    libc::SYS_fsync,
];

/// Options about privileges.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Privileges")]
pub struct Confinement {
    /// Run as this user once files and sockets are open (as root only)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Keep the capabilities, and allow every system call and file. For debugging
    #[arg(long)]
    unconfined: bool,
}

impl Confinement {
    /// The user to run as.
    ///
    /// # Errors
    /// There is no such user, or we may not run as another one.
    pub fn user(&self) -> anyhow::Result<Option<User>> {
        Ok(self.user.as_deref().map(User::to_run_as).transpose()?)
    }

    /// Gives up all privileges of this thread and of the threads that it starts later. Sockets in `folders`
    /// can still be removed.
    ///
    /// # Errors
    /// The kernel refuses it: nothing is served then.
    pub fn apply(&self, user: Option<User>, folders: Vec<PathBuf>) -> anyhow::Result<()> {
        let none = Capabilities::default();
        if let Some(user) = user {
            user.switch_to(none)
                .with_context(|| format!("cannot run as the user {}", user.name))?;
        }
        if self.unconfined {
            return Ok(());
        }
        capabilities::keep_only(none).context("cannot drop capabilities")?;
        no_new_privs::set().context("cannot set no_new_privs")?;
        let access = landlock::Access {
            read: pressure_files(),
            remove: folders,
        };
        let restricted = landlock::restrict(&access).context("cannot restrict access to files (Landlock)")?;
        if !restricted.is_enforced {
            thermo_kernel::message!(
                "confinement: this kernel has no Landlock, so only the user's permissions protect other files"
            );
        }
        for (folder, error) in restricted.skipped {
            thermo_kernel::message!(
                "confinement: cannot open {}: {error}. So its files cannot be used: a socket in it stays at the end, \
                 memory pressure in it is not seen",
                folder.display()
            );
        }
        filter_calls().context("cannot restrict system calls (seccomp); --unconfined does without")
    }
}

/// Folders with the files that show memory pressure. They are read again and again.
fn pressure_files() -> Vec<PathBuf> {
    let root = Path::new("/");
    let groups = ["", "memory"].map(|controller| Group::of_process(root, None, controller));
    let groups = groups.into_iter().flatten().map(|group| group.dir);
    ["/proc", "/sys"]
        .map(PathBuf::from)
        .into_iter()
        .chain(groups)
        .collect()
}

fn filter_calls() -> io::Result<()> {
    let allowed = AllowedCalls::default().any(RUNTIME).any(EXPORT_IO);
    allowed
        .reading_files()?
        .removing_files()
        .serving_sockets()?
        .enforce()
}
