//! The privileges of the daemon once its socket is open. Strangers send it requests, so it gives up what it
//! does not need: the user, if one is named, capabilities, and system calls.
//!
//! Landlock is not used: it would forbid to inspect and advise processes outside (see
//! [`thermo_kernel::landlock`]). The filter of system calls lets the daemon open existing files only.

use std::io;

use anyhow::Context as _;
use thermo_kernel::capabilities::Capabilities;
use thermo_kernel::pagemap::PAGEMAP_SCAN;
use thermo_kernel::syscall_filter::{AllowedCalls, RUNTIME};
use thermo_kernel::user::User;

use crate::privileges;

/// Calls on other processes.
const PROCESSES: &[i64] = &[
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
];

/// Calls of libbpf, which loads the programs anew for each access check, and of the announcement to other
/// monitors (a name in the abstract namespace of Unix sockets).
const ACCESS_CHECKS: &[i64] = &[
    libc::SYS_bpf,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_bind,
];

/// Flags about privileges.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Privileges")]
pub(super) struct Confinement {
    /// Run as this user once the socket is open, with the capabilities that the daemon needs (as root only)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Keep all capabilities, and allow every system call. For debugging
    #[arg(long, conflicts_with = "user")]
    unconfined: bool,
}

impl Confinement {
    /// The user to run as.
    ///
    /// # Errors
    /// There is no such user, or we may not run as another one.
    pub(super) fn user(&self) -> anyhow::Result<Option<User>> {
        Ok(self.user.as_deref().map(User::to_run_as).transpose()?)
    }

    /// Gives up all other privileges of this thread and of the threads that it starts later.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn apply(&self, user: Option<User>) -> anyhow::Result<()> {
        if self.unconfined {
            return Ok(());
        }
        if let Some(user) = user {
            user.switch_to(Capabilities::of(privileges::LIFECYCLE))
                .with_context(|| format!("cannot run as the user {}", user.name))?;
        }
        privileges::keep_only(privileges::LIFECYCLE)?;
        filter_calls().context("cannot restrict system calls (seccomp); --unconfined does without")
    }
}

fn filter_calls() -> io::Result<()> {
    let allowed = AllowedCalls::default()
        .any(RUNTIME)
        .any(PROCESSES)
        .any(ACCESS_CHECKS);
    allowed
        .with_bits(libc::SYS_ioctl, 1, (u32::MAX, PAGEMAP_SCAN))?
        .opening_existing_files()?
        .removing_files()
        .serving_sockets()?
        .enforce()
}
