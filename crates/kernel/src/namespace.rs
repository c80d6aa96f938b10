//! A mount namespace of our own (unshare(2), mount_namespaces(7)), and children that do not outlive us.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread, and the threads and children it starts from now on, mounts of their own: what is mounted
/// from now on is seen by nobody else, and is gone with the last of them. What others mount or unmount is not seen
/// either.
///
/// # Errors
/// EPERM without `CAP_SYS_ADMIN`.
pub fn private_mounts() -> io::Result<()> {
    // SAFETY: mounts only. Tables of file descriptors stay shared, which is what safe code relies on.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Most systems share mounts between namespaces until told otherwise.
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", all)?)
}

/// Makes the process that `command` starts get SIGHUP, as if its terminal went, when the thread that starts it ends,
/// however that comes about.
pub fn hang_up_with_us(command: &mut Command) {
    let ask = || {
        let signal = Some(rustix::process::Signal::HUP);
        Ok(rustix::process::set_parent_process_death_signal(signal)?)
    };
    // SAFETY: between fork and exec; one system call, no memory is allocated and no lock taken.
    unsafe { command.pre_exec(ask) };
}
