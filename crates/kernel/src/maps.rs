//! `/proc/PID/maps`: the mappings of a process (proc_pid_maps(5)).

use std::path::Path;

use thermo_units::AddrRange;

use crate::file::FileError;
use crate::proc::{self, ProcError};

/// The permissions of a mapping, and whether it is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Perms {
    /// Readable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub exec: bool,
    /// Writes are visible to others (`MAP_SHARED`).
    pub shared: bool,
}

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: AddrRange,
    /// Its permissions.
    pub perms: Perms,
    /// The position in the file at which the mapping starts, in bytes.
    pub offset: u64,
    /// The inode of the file; 0 if there is no file.
    pub inode: u64,
    /// The path of the file, or a name in brackets (`[heap]`); empty if it has none.
    pub name: String,
}

impl Mapping {
    /// True for special mappings that the kernel adds to every process (vdso, vvar, vsyscall). Nothing can be
    /// monitored or done there.
    #[must_use]
    pub fn is_special(&self) -> bool {
        ["[vdso]", "[vsyscall]"].contains(&self.name.as_str()) || self.name.starts_with("[vvar")
    }

    /// True for device memory. `/dev/shm` and `/dev/zero` are ordinary memory.
    #[must_use]
    pub fn is_device(&self) -> bool {
        let is_memory = self.name.starts_with("/dev/shm/") || self.name.starts_with("/dev/zero");
        self.name.starts_with("/dev/") && !is_memory
    }

    /// Parses one line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (perms, rest) = rest.split_once(' ')?;
        let (offset, rest) = rest.split_once(' ')?;
        let (_dev, rest) = rest.split_once(' ')?;
        let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
        let (start, end) = range.split_once('-')?;
        let range = AddrRange::new(
            u64::from_str_radix(start, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        );
        let [read, write, exec, shared]: [u8; 4] = perms.as_bytes().try_into().ok()?;
        Some(Self {
            range,
            perms: Perms {
                read: read == b'r',
                write: write == b'w',
                exec: exec == b'x',
                shared: shared == b's',
            },
            offset: u64::from_str_radix(offset, 16).ok()?,
            inode: inode.parse().ok()?,
            name: name.trim_start().to_owned(),
        })
    }
}

/// The mappings of process `pid`, ascending. Empty for a kernel thread and for a process that has just ended.
///
/// # Errors
/// [`ProcError::Gone`] when the process has ended.
pub fn read(root: &Path, pid: u32) -> Result<Vec<Mapping>, ProcError> {
    let text = proc::text(root, pid, "maps")?;
    let mapping = |line: &str| {
        let path = proc::dir(root, pid).join("maps");
        Mapping::parse(line).ok_or_else(|| FileError::malformed(&path, line, "a mapping").into())
    };
    text.lines().map(mapping).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const TEXT: &str = "\
55d0c0a00000-55d0c0a02000 r--p 00001000 fe:01 1234                       /usr/bin/my program
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rw-s 00000000 00:01 9                          /dev/shm/x (deleted)
7f0000001000-7f0000002000 rw-s 00000000 00:06 3                          /dev/dri/card0
7f0000002000-7f0000003000 rw-p 00000000 00:00 0 
7ffd00000000-7ffd00004000 r--p 00000000 00:00 0                          [vvar_vclock]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn maps_parses_every_kind_of_line() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/5")).unwrap();
        std::fs::write(root.path().join("proc/5/maps"), TEXT).unwrap();
        let maps = read(root.path(), 5).unwrap();
        assert_eq!(maps.len(), 7);
        assert_eq!(maps[0].name, "/usr/bin/my program");
        assert_eq!((maps[0].inode, maps[0].perms.write), (1234, false));
        assert_eq!(maps[1].range, AddrRange::new(0x55d0_c100_0000, 0x55d0_c102_1000));
        assert!(maps[2].perms.shared && !maps[2].is_device() && maps[3].is_device());
        assert!(maps[4].name.is_empty());
        assert!(maps[5].is_special() && maps[6].is_special() && !maps[1].is_special());
    }

    #[test]
    fn malformed_line_is_shown_in_error() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/5")).unwrap();
        std::fs::write(root.path().join("proc/5/maps"), "hello\n").unwrap();
        assert!(
            read(root.path(), 5)
                .unwrap_err()
                .to_string()
                .contains("\"hello\" is not a mapping")
        );
    }

    #[test]
    fn maps_contains_own_stack() {
        let local = 0_u8;
        let addr = thermo_units::Addr(std::ptr::from_ref(&local) as u64);
        let maps = read(Path::new("/"), std::process::id()).unwrap();
        assert!(
            maps.iter()
                .any(|mapping| mapping.range.contains(addr) && mapping.perms.write)
        );
    }
}
