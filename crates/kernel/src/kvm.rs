//! KVM virtual machines, as far as `/proc` shows them (Documentation/virt/kvm/api.rst).

use std::fs;
use std::io;
use std::path::Path;

/// Maximum number of open files that are inspected. Descriptors get the lowest free number, and a virtual
/// machine is created before a process has many.
const MAX_FDS: usize = 4096;

/// Whether the kernel of the machine at `root` (`/`) can run virtual machines now. The device is listed once
/// a KVM module for this processor is loaded; `/dev/kvm` may exist earlier, and may be missing in a
/// container.
#[must_use]
pub fn is_available(root: &Path) -> bool {
    let devices = fs::read_to_string(root.join("proc/misc")).unwrap_or_default();
    // "232 kvm"
    let mut names = devices
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(1));
    names.any(|name| name == "kvm")
}

/// Whether process `pid` of the machine at `root` (`/`) has a virtual machine open, or a virtual CPU, which
/// keeps the machine alive.
///
/// # Errors
/// `ENOENT` if the process has ended, `EACCES` without the right to inspect it.
pub fn has_vm_open(root: &Path, pid: u32) -> io::Result<bool> {
    for entry in fs::read_dir(root.join(format!("proc/{pid}/fd")))?.take(MAX_FDS) {
        // The file may be closed meanwhile.
        let name = fs::read_link(entry?.path()).unwrap_or_default();
        if name.to_str().is_some_and(is_vm_file) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// These names are set by `kvm_dev_ioctl_create_vm()` and `create_vcpu_fd()` (`virt/kvm/kvm_main.c`).
fn is_vm_file(name: &str) -> bool {
    name == "anon_inode:kvm-vm" || name.starts_with("anon_inode:kvm-vcpu")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn kvm_is_available_when_device_is_listed() {
        let root = tempfile::tempdir().unwrap();
        assert!(!is_available(root.path()));
        fs::create_dir(root.path().join("proc")).unwrap();
        for (misc, expected) in [
            ("234 btrfs-control\n 60 kvm_stats\n", false),
            ("200 tun\n232 kvm\n", true),
        ] {
            fs::write(root.path().join("proc/misc"), misc).unwrap();
            assert_eq!(is_available(root.path()), expected, "{misc}");
        }
    }

    #[test]
    fn has_vm_open_ignores_dev_kvm_alone() {
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
            assert_eq!(has_vm_open(root.path(), pid).unwrap(), expected, "{names:?}");
        }
        let gone = has_vm_open(root.path(), 10).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
