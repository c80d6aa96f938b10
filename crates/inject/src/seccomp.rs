//! Checks whether a thread's seccomp filters allow the injected calls: they are read and evaluated, never
//! tried.

use std::fs;
use std::io;
use std::path::Path;

use thermo_kernel::ptrace::Tracee;

use crate::call::Call;
use crate::cbpf::{Syscall, allows};
use crate::gadget::Gadgets;

/// System call numbers on x86-64.
pub(super) const NR_MADVISE: u64 = 28;
const NR_RT_SIGRETURN: u32 = 15;

/// The seccomp mode of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Off,
    /// Only read, write, exit and sigreturn.
    Strict,
    Filtered,
}

/// The mode of thread `tid`, `Off` on kernels without seccomp; `None` if it cannot be read.
pub(super) fn mode(root: &Path, pid: u32, tid: u32) -> Option<Mode> {
    let text = fs::read_to_string(root.join(format!("proc/{pid}/task/{tid}/status"))).ok()?;
    let field = text.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    match field.map(str::trim) {
        None | Some("0") => Some(Mode::Off),
        Some("1") => Some(Mode::Strict),
        Some("2") => Some(Mode::Filtered),
        Some(_) => None,
    }
}

/// The reason why the filters of the stopped `tracee`, which has some, forbid `call`; `None` if they allow
/// it.
pub(super) fn refusal_reason(tracee: &Tracee, call: Call, gadgets: &Gadgets) -> io::Result<Option<String>> {
    let filters = match tracee.seccomp_filters() {
        // The thread has filters, so an empty list means that the kernel hides them.
        Ok(filters) if filters.is_empty() => {
            return Ok(Some("it has seccomp filters that cannot be read".into()));
        }
        Ok(filters) => filters,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(error),
        Err(error) => {
            return Ok(Some(format!(
                "it has seccomp filters that cannot be read ({error})"
            )));
        }
    };
    let madvise = Syscall {
        nr: NR_MADVISE as u32,
        ip: gadgets.call.0 + 2,
        args: [
            call.range.start.0,
            call.range.len().0,
            call.flag.advice().unsigned_abs().into(),
            0,
            0,
            0,
        ],
    };
    // The end of the system call instruction depends on the form of the restorer. Filters on the instruction
    // pointer are not known to exist.
    let sigreturn = Syscall {
        nr: NR_RT_SIGRETURN,
        ip: gadgets.restorer.0 + 9,
        args: [0; 6],
    };
    let forbidden = match () {
        () if !allows(&filters, &madvise) => "madvise",
        () if !allows(&filters, &sigreturn) => "rt_sigreturn",
        () => return Ok(None),
    };
    Ok(Some(format!("its seccomp filters do not allow {forbidden}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_is_read_from_thread_status() {
        let root = tempfile::tempdir().map(|dir| dir.keep()).unwrap_or_default();
        for (text, expected) in [
            ("Name: x\n", Some(Mode::Off)),
            ("Seccomp:\t0\n", Some(Mode::Off)),
            ("Seccomp:\t1\n", Some(Mode::Strict)),
            (
                "Name: x\nSeccomp:\t2\nSeccomp_filters:\t1\n",
                Some(Mode::Filtered),
            ),
            ("Seccomp:\t3\n", None),
        ] {
            let folder = root.join("proc/7/task/8");
            assert!(fs::create_dir_all(&folder).is_ok());
            assert!(fs::write(folder.join("status"), text).is_ok());
            assert_eq!(mode(&root, 7, 8), expected);
        }
        assert_eq!(mode(&root, 7, 9), None, "the thread has ended");
        drop(fs::remove_dir_all(root));
    }
}
