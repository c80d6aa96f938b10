//! Virtual machines that KVM runs (Documentation/virt/kvm/api.rst), by what `/proc` shows of them.

use std::fs;
use std::io;
use std::path::Path;

/// Of no more open files it is asked what they are. Files get the lowest number that is free, and a machine is made before
/// a process has many.
const MOST: usize = 4096;

/// Whether the kernel of the machine at `root` (`/`) can run any now. Its device is listed once a module for this processor
/// is there; `/dev/kvm` may exist before, and be missing in a container.
#[must_use]
pub fn exists(root: &Path) -> bool {
    let devices = fs::read_to_string(root.join("proc/misc")).unwrap_or_default();
    // "232 kvm"
    let mut names = devices
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(1));
    names.any(|name| name == "kvm")
}

/// Whether process `pid` of the machine at `root` (`/`) has a machine open, or a processor of one, which keeps it there.
///
/// # Errors
/// `ENOENT` when the process is gone, `EACCES` without the right to look into it.
pub fn is_held_by(root: &Path, pid: u32) -> io::Result<bool> {
    for entry in fs::read_dir(root.join(format!("proc/{pid}/fd")))?.take(MOST) {
        // A file may be closed before it is asked.
        let name = fs::read_link(entry?.path()).unwrap_or_default();
        if name.to_str().is_some_and(is_of_machine) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `kvm_dev_ioctl_create_vm()` and `create_vcpu_fd()` name them so (`virt/kvm/kvm_main.c`).
fn is_of_machine(name: &str) -> bool {
    name == "anon_inode:kvm-vm" || name.starts_with("anon_inode:kvm-vcpu")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_kernel_that_runs_machines_lists_the_device() {
        let root = tempfile::tempdir().unwrap();
        assert!(!exists(root.path()));
        fs::create_dir(root.path().join("proc")).unwrap();
        for (misc, expected) in [
            ("234 btrfs-control\n 60 kvm_stats\n", false),
            ("200 tun\n232 kvm\n", true),
        ] {
            fs::write(root.path().join("proc/misc"), misc).unwrap();
            assert_eq!(exists(root.path()), expected, "{misc}");
        }
    }

    #[test]
    fn who_has_a_machine_open_is_told_from_who_could_make_one() {
        let root = tempfile::tempdir().unwrap();
        for (pid, names, expected) in [
            (7, vec!["/dev/null", "/dev/kvm", "anon_inode:[eventfd]"], false),
            (8, vec!["/dev/kvm", "anon_inode:kvm-vm"], true),
            (9, vec!["socket:[77]", "anon_inode:kvm-vcpu:0"], true),
        ] {
            let fds = root.path().join(format!("proc/{pid}/fd"));
            fs::create_dir_all(&fds).unwrap();
            for (fd, name) in names.iter().enumerate() {
                symlink(name, fds.join(fd.to_string())).unwrap();
            }
            assert_eq!(is_held_by(root.path(), pid).unwrap(), expected, "{names:?}");
        }
        let gone = is_held_by(root.path(), 10).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
