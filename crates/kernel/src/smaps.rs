//! `/proc/PID/smaps` and `smaps_rollup`: resident and referenced memory of each mapping (proc_pid_smaps(5)).
//!
//! For each read the kernel walks the page tables under the mmap read lock: 12–39 ms a GiB were measured.

use std::path::Path;

use thermo_units::Bytes;

use crate::file::{self, FileError};
use crate::maps::{Mapping, NameBudget};
use crate::proc::{self, ProcError};

/// The counters of a mapping or of a whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Resident memory.
    pub rss: Bytes,
    /// Resident memory, with shared pages divided among the processes that map them (proportional set size).
    pub pss: Bytes,
    /// Resident memory whose accessed bits were set since they were last cleared.
    pub referenced: Bytes,
    /// Anonymous huge pages.
    pub anon_huge_pages: Bytes,
}

impl Counts {
    fn set(&mut self, name: &str, bytes: Bytes) {
        match name {
            "Rss" => self.rss = bytes,
            "Pss" => self.pss = bytes,
            "Referenced" => self.referenced = bytes,
            "AnonHugePages" => self.anon_huge_pages = bytes,
            _ => {}
        }
    }
}

/// One mapping with its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vma {
    /// The mapping.
    pub mapping: Mapping,
    /// Its counters.
    pub counts: Counts,
    /// The two-letter flags of the kernel (`rd wr mr mw me ac lo hg nh ht io pf …`), as one text.
    pub vm_flags: String,
}

impl Vma {
    /// True if the flag is set: `lo` locked, `ht` hugetlb, `hg`/`nh` huge pages requested/refused, `pf` pure
    /// PFN mapping, `io` device.
    #[must_use]
    pub fn has_flag(&self, flag: &str) -> bool {
        self.vm_flags.split_ascii_whitespace().any(|one| one == flag)
    }

    /// True if a program handles page faults of the mapping (`userfaultfd`): of absent pages (`um`), of
    /// write-protected ones (`uw`), or of pages that only the file has (`ui`).
    #[must_use]
    pub fn has_userfaultfd(&self) -> bool {
        ["um", "uw", "ui"].into_iter().any(|flag| self.has_flag(flag))
    }

    /// True if [`Counts::referenced`] covers the pages of the mapping. The kernel does not count pages of
    /// hugetlb (`ht`) and of devices (`pf`, `io`), and not all pages that a driver inserted one by one
    /// (`mm`).
    #[must_use]
    pub fn has_referenced_count(&self) -> bool {
        !["ht", "pf", "io", "mm"]
            .into_iter()
            .any(|flag| self.has_flag(flag))
    }
}

/// All mappings of process `pid` with their counters, ascending.
///
/// # Errors
/// [`ProcError::Gone`] if the process has ended.
pub fn read(root: &Path, pid: u32) -> Result<Vec<Vma>, ProcError> {
    let mut vmas: Vec<Vma> = Vec::new();
    let mut names = NameBudget::default();
    proc::for_each_line(root, pid, "smaps", |line| {
        if let Some(mut mapping) = is_mapping_line(line).then(|| Mapping::parse(line)).flatten() {
            names.charge(&mut mapping);
            vmas.push(Vma {
                mapping,
                counts: Counts::default(),
                vm_flags: String::new(),
            });
            return Ok(());
        }
        let Some(vma) = vmas.last_mut() else {
            return Err(FileError::malformed(&proc::dir(root, pid).join("smaps"), line, "a mapping").into());
        };
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            flags.trim().clone_into(&mut vma.vm_flags);
        }
        file::sizes(line).for_each(|(name, bytes)| vma.counts.set(name, bytes));
        Ok(())
    })?;
    Ok(vmas)
}

/// The sums over all mappings of process `pid`.
///
/// # Errors
/// [`ProcError::Gone`] if the process has ended.
pub fn rollup(root: &Path, pid: u32) -> Result<Counts, ProcError> {
    let text = proc::text(root, pid, "smaps_rollup")?;
    let mut counts = Counts::default();
    file::sizes(&text).for_each(|(name, bytes)| counts.set(name, bytes));
    Ok(counts)
}

// The name of a counter ends in a colon; the line of a mapping begins with hexadecimal digits and a dash.
fn is_mapping_line(line: &str) -> bool {
    line.split_once(' ')
        .is_some_and(|(first, _)| first.contains('-') && !first.ends_with(':'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const TEXT: &str = "\
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 
Size:               1024 kB
KernelPageSize:        4 kB
Rss:                 512 kB
Pss:                 256 kB
Referenced:          128 kB
Anonymous:           512 kB
AnonHugePages:         0 kB
Swap:                 64 kB
Locked:               32 kB
THPeligible:           1
ProtectionKey:         0
VmFlags: rd wr mr mw me ac lo sd 
7f0000200000-7f0000201000 r--p 00000000 fe:01 7 /lib/x.so
Rss:                   4 kB
Referenced:            4 kB
VmFlags: rd mr
";

    #[test]
    fn smaps_assigns_counters_to_mapping_above() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/5")).unwrap();
        std::fs::write(root.path().join("proc/5/smaps"), TEXT).unwrap();
        let vmas = read(root.path(), 5).unwrap();
        assert_eq!(vmas.len(), 2);
        assert_eq!(vmas[0].counts.rss, Bytes::kib(512));
        assert_eq!(vmas[0].counts.referenced, Bytes::kib(128));
        assert!(vmas[0].has_flag("lo") && !vmas[1].has_flag("lo"));
        assert_eq!(vmas[1].mapping.name, "/lib/x.so");
        assert_eq!(vmas[1].counts.referenced, Bytes::kib(4));
    }

    #[test]
    fn has_referenced_count_follows_vm_flags() {
        for (vm_flags, counted) in [
            ("", true),
            ("rd wr mr mw me ac lo sd", true),
            ("rd wr sh mr mw me ms de ht sd", false),
            ("rd mr pf io de dd sd", false),
            ("rd wr sh mr mw me ms io dc de dd", false),
            ("rd wr sh mr mw me ms mm hg", false),
        ] {
            let vma = Vma {
                mapping: Mapping::parse("1000-2000 rw-p 00000000 00:00 0 ").unwrap(),
                counts: Counts::default(),
                vm_flags: vm_flags.to_owned(),
            };
            assert_eq!(vma.has_referenced_count(), counted, "{vm_flags}");
        }
    }

    #[test]
    fn rollup_reads_sums() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/5")).unwrap();
        let text = "0-7fff00 ---p 00000000 00:00 0 [rollup]\nRss:  44 kB\nPss:  8 kB\n";
        std::fs::write(root.path().join("proc/5/smaps_rollup"), text).unwrap();
        let counts = rollup(root.path(), 5).unwrap();
        assert_eq!((counts.rss, counts.pss), (Bytes::kib(44), Bytes::kib(8)));
    }

    #[test]
    fn own_process_is_resident() {
        assert!(rollup(Path::new("/"), std::process::id()).unwrap().rss > Bytes::ZERO);
        assert!(!read(Path::new("/"), std::process::id()).unwrap().is_empty());
    }
}
