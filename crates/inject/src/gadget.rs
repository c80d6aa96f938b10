//! Two places in the target's own code: one that makes a system call and returns, and the one its C library returns
//! from signals by.

use thermo_kernel::maps::Mapping;
use thermo_kernel::process_vm;
use thermo_units::{Addr, AddrRange};

/// `syscall; ret`
const CALL: &[u8] = &[0x0f, 0x05, 0xc3];
/// `mov $15, %rax; syscall` and `mov $15, %eax; syscall`: 15 is `rt_sigreturn`.
const RESTORERS: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],
];

/// The two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gadgets {
    pub call: Addr,
    pub restorer: Addr,
}

impl Gadgets {
    /// Looks for them in the code of process `pid`, in its C library first.
    pub(super) fn find(pid: u32, mappings: &[Mapping]) -> Option<Self> {
        let mut code: Vec<&Mapping> = mappings.iter().filter(|mapping| is_lasting(mapping)).collect();
        // Program files are of any size, the C library is small.
        code.sort_by_key(|mapping| (!is_libc(&mapping.name), mapping.range.len()));
        let (mut call, mut restorer) = (None, None);
        for mapping in code {
            call = call.or_else(|| search(pid, mapping.range, &[CALL]));
            restorer = restorer.or_else(|| search(pid, mapping.range, &RESTORERS));
            if let (Some(call), Some(restorer)) = (call, restorer) {
                return Some(Self { call, restorer });
            }
        }
        None
    }

    /// Whether they are still there, as thread `tid` sees it: code can be unmapped, and replaced by exec.
    pub(super) fn hold(&self, tid: u32) -> bool {
        stands(tid, self.call, CALL) && RESTORERS.iter().any(|code| stands(tid, self.restorer, code))
    }
}

/// Whether it is code of a file that nobody writes to: what a program makes for itself may change at any time.
fn is_lasting(mapping: &Mapping) -> bool {
    let perms = mapping.perms;
    perms.exec && perms.read && !perms.write && (mapping.inode != 0 || mapping.name == "[vdso]")
}

fn is_libc(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.starts_with("libc.so") || name.starts_with("libc-") || name.starts_with("ld-musl")
}

fn stands(pid: u32, at: Addr, code: &[u8]) -> bool {
    let mut there = [0; 16];
    let there = &mut there[..code.len()];
    process_vm::read(pid, at, there).is_ok_and(|read| read == code.len()) && there == code
}

/// The first place in `range` where one of `patterns` stands.
fn search(pid: u32, range: AddrRange, patterns: &[&[u8]]) -> Option<Addr> {
    const PIECE: usize = 1 << 20;
    const LONGEST: u64 = 16;
    let mut piece = vec![0; PIECE];
    let mut at = range.start.0;
    while at < range.end.0 {
        let wanted = piece.len().min((range.end.0 - at) as usize);
        let read = process_vm::read(pid, Addr(at), &mut piece[..wanted]).ok()?;
        let first = |pattern: &&[u8]| {
            piece[..read]
                .windows(pattern.len())
                .position(|bytes| bytes == *pattern)
        };
        if let Some(found) = patterns.iter().filter_map(first).min() {
            return Some(Addr(at + found as u64));
        }
        if read < PIECE {
            return None;
        }
        at += read as u64 - LONGEST;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::path::Path;

    use thermo_kernel::maps;

    use super::*;

    #[test]
    fn our_own_c_library_has_them() {
        let us = std::process::id();
        let found = Gadgets::find(us, &maps::read(Path::new("/"), us).unwrap());
        assert!(found.is_some_and(|gadgets| gadgets.hold(us)), "{found:x?}");
        let elsewhere = Gadgets {
            call: Addr(0x1000),
            restorer: Addr(0x1000),
        };
        assert!(!elsewhere.hold(us));
    }

    #[test]
    fn code_that_may_change_is_not_looked_at() {
        let line = |perms: maps::Perms, inode, name: &str| Mapping {
            range: AddrRange::new(0x1000, 0x2000),
            perms,
            inode,
            name: name.to_owned(),
        };
        let code = maps::Perms {
            read: true,
            exec: true,
            ..maps::Perms::default()
        };
        assert!(is_lasting(&line(code, 7, "/lib/libc.so.6")) && is_lasting(&line(code, 0, "[vdso]")));
        let written = maps::Perms { write: true, ..code };
        assert!(!is_lasting(&line(written, 7, "/lib/libc.so.6")));
        assert!(!is_lasting(&line(code, 0, "")) && !is_lasting(&line(code, 0, "[vsyscall]")));
    }

    #[test]
    fn a_c_library_is_known_by_its_name() {
        assert!(is_libc("/usr/lib/x86_64-linux-gnu/libc.so.6") && is_libc("/lib/ld-musl-x86_64.so.1"));
        assert!(!is_libc("/usr/lib/libcrypto.so.3") && !is_libc(""));
    }
}
