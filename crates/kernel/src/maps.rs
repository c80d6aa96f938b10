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
    /// The path of the file, or a name in brackets (`[heap]`); empty if it has none. The middle of a long
    /// name is replaced by `…`: see [`read`].
    pub name: String,
}

/// Maximum bytes of a name. A path has up to 4096 bytes, and up to four times as many in `maps`.
const MAX_NAME: usize = 256;
/// Bytes of names of one process after which names are cut to [`SHORT_NAME`].
const MAX_NAMES: usize = 4 << 20;
/// Maximum bytes of a name of a process with very many long names.
const SHORT_NAME: usize = 48;
/// Stands for the middle of a long name.
const CUT: &str = "…";
/// Bytes at the beginning of a cut name. They tell devices, shared memory and mappings of the kernel.
const NAME_START: usize = 12;

impl Mapping {
    /// True for special mappings that the kernel adds to every process (vdso, vvar, vsyscall). Nothing can be
    /// monitored or done there.
    #[must_use]
    pub fn is_special(&self) -> bool {
        ["[vdso]", "[vsyscall]"].contains(&self.name.as_str()) || self.name.starts_with("[vvar")
    }

    /// Whether its pages may belong to hugetlbfs, by its name: a mount for it, anonymous memory, System V and
    /// memfd.
    #[must_use]
    pub fn may_be_hugetlb(&self) -> bool {
        self.name.contains("huge") || self.name.starts_with("/SYSV") || self.name.starts_with("/memfd:")
    }

    /// True for device memory. `/dev/shm` and `/dev/zero` are ordinary memory.
    #[must_use]
    pub fn is_device(&self) -> bool {
        let is_memory = self.name.starts_with("/dev/shm/") || self.name.starts_with("/dev/zero");
        self.name.starts_with("/dev/") && !is_memory
    }

    /// True for the state of a virtual CPU of KVM. A program maps it to run the CPU. `create_vcpu_fd()`
    /// (virt/kvm/kvm_main.c) gives the name.
    #[must_use]
    pub fn is_virtual_cpu(&self) -> bool {
        self.name.starts_with("anon_inode:kvm-vcpu")
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
            name: cut(name.trim_start(), MAX_NAME),
        })
    }
}

/// Bounds the memory that the names of one process take. A process chooses its paths, and how often it maps
/// them.
#[derive(Debug, Default)]
pub(crate) struct NameBudget(usize);

impl NameBudget {
    /// Charges the name of `mapping`, and cuts it further once the names of the process are too many.
    pub(crate) fn charge(&mut self, mapping: &mut Mapping) {
        if self.0 >= MAX_NAMES && mapping.name.len() > SHORT_NAME {
            mapping.name = cut(&mapping.name, SHORT_NAME);
        }
        self.0 = self.0.saturating_add(mapping.name.len());
    }
}

/// `name` in at most `max` bytes: a little of its beginning, and its end, which tells more about a path.
fn cut(name: &str, max: usize) -> String {
    if name.len() <= max {
        return name.to_owned();
    }
    let (start, rest) = name.split_at(name.floor_char_boundary(NAME_START));
    let skipped = rest.len() + start.len() + CUT.len() - max;
    let (_, end) = rest.split_at(rest.ceil_char_boundary(skipped));
    [start, CUT, end].concat()
}

/// The mappings of process `pid`, ascending. Empty for a kernel thread and for a process that has just ended.
///
/// Memory is bounded, because the process may be hostile: a name has at most 256 bytes, and at most 48 after
/// the first 4 MiB of names.
///
/// # Errors
/// [`ProcError::Gone`] when the process has ended.
pub fn read(root: &Path, pid: u32) -> Result<Vec<Mapping>, ProcError> {
    let (mut mappings, mut names) = (Vec::new(), NameBudget::default());
    proc::for_each_line(root, pid, "maps", |line| {
        let path = || proc::dir(root, pid).join("maps");
        let mut mapping =
            Mapping::parse(line).ok_or_else(|| FileError::malformed(&path(), line, "a mapping"))?;
        names.charge(&mut mapping);
        mappings.push(mapping);
        Ok(())
    })?;
    Ok(mappings)
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
    fn long_names_keep_beginning_and_end() {
        let line = |name: &str| format!("1000-2000 rw-s 00000000 00:01 9 {name}");
        let name = |name: &str| Mapping::parse(&line(name)).unwrap().name;
        let longest = format!("/{}", "x".repeat(MAX_NAME - 1));
        assert_eq!(name(&longest), longest);
        let cut = name(&format!("/dev/shm/{}/heap (deleted)", "é".repeat(2000)));
        assert!(cut.len() <= MAX_NAME && cut.len() > MAX_NAME - 4, "{}", cut.len());
        assert!(
            cut.starts_with("/dev/shm/é…") && cut.ends_with("é/heap (deleted)"),
            "{cut}"
        );
        let device = Mapping::parse(&line(&format!("/dev/{}", "d".repeat(3000)))).unwrap();
        assert!(device.is_device());
    }

    #[test]
    fn memory_of_names_is_bounded_for_hostile_process() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/5")).unwrap();
        let folder = "directory/".repeat(380);
        let lines = (1..=20_000_u64).map(|nth| {
            let (start, end) = (nth << 13, (nth << 13) + 4096);
            format!("{start:x}-{end:x} r--s 00000000 fe:01 {nth} /{folder}{nth}\n")
        });
        std::fs::write(root.path().join("proc/5/maps"), lines.collect::<String>()).unwrap();
        let maps = read(root.path(), 5).unwrap();
        let bytes: usize = maps.iter().map(|mapping| mapping.name.capacity()).sum();
        assert_eq!(maps.len(), 20_000);
        assert!(
            bytes <= MAX_NAMES + MAX_NAME + maps.len() * SHORT_NAME,
            "{bytes} bytes"
        );
        assert!(
            maps[19_999].name.ends_with("directory/20000"),
            "{}",
            maps[19_999].name
        );
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
