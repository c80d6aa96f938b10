//! A private mount namespace (unshare(2), mount_namespaces(7)), and children that end with their parent.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves the calling thread to a new mount namespace, which the threads and children that it starts later
/// inherit. Later mounts are visible only inside, and vanish with the last process inside. Later mounts and
/// unmounts outside are not visible inside.
///
/// # Errors
/// EPERM without `CAP_SYS_ADMIN`.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: only the mount namespace is unshared. File descriptor tables stay shared, as safe code
    // requires.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Most systems propagate mounts between namespaces by default.
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", all)?)
}

/// Makes the process that `command` starts receive SIGHUP, as if its terminal closed, when the thread that
/// starts it ends for any reason.
pub fn sighup_on_parent_exit(command: &mut Command) {
    let set_signal = || {
        let signal = Some(rustix::process::Signal::HUP);
        Ok(rustix::process::set_parent_process_death_signal(signal)?)
    };
    // SAFETY: runs between fork and exec; it makes one system call, allocates no memory and takes no lock.
    unsafe { command.pre_exec(set_signal) };
}
