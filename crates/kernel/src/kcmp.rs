//! Whether two processes share a kernel object: kcmp(2).

use std::io;

use crate::stalled_call::{self, NotAnswering, Wait};

/// `KCMP_VM` of include/uapi/linux/kcmp.h.
const KCMP_VM: libc::c_int = 1;

/// Whether two processes have one address space, as after `vfork()` and `clone(CLONE_VM)`. False also where
/// the kernel does not say: without the right to trace both, or without this system call.
///
/// # Errors
/// [`NotAnswering`]: `pid` stands still while it executes a program.
pub fn share_memory(pid: u32, other: u32) -> Result<bool, NotAnswering> {
    stalled_call::run(pid, Wait::Killable, move || {
        kcmp(pid, other, KCMP_VM).is_ok_and(|order| order == 0)
    })
}

fn kcmp(pid: u32, other: u32, object: libc::c_int) -> io::Result<libc::c_long> {
    // SAFETY: the call takes numbers only and changes nothing.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, other, object, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn forked_process_has_its_own_memory() {
        let ourselves = std::process::id();
        if let Err(why) = kcmp(ourselves, ourselves, KCMP_VM) {
            eprintln!("SKIP: this kernel or its rules have no kcmp: {why}");
            return;
        }
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(share_memory(ourselves, ourselves).unwrap());
        assert!(!share_memory(cat.id(), ourselves).unwrap());
        drop(cat.stdin.take());
        cat.wait().unwrap();
        assert!(!share_memory(cat.id(), ourselves).unwrap(), "it has ended");
    }
}
