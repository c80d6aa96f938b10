//! Two code addresses in the target: one that makes a system call and returns (the gadget), and the restorer,
//! with which its C library returns from signal handlers.

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

/// The addresses of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gadgets {
    pub call: Addr,
    pub restorer: Addr,
}

impl Gadgets {
    /// Searches the code of process `pid`, its C library first.
    pub(super) fn find(pid: u32, mappings: &[Mapping]) -> Option<Self> {
        let mut code: Vec<&Mapping> = mappings
            .iter()
            .filter(|mapping| is_immutable_code(mapping))
            .collect();
        // The program can be of any size; the C library is small.
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

    /// Whether both are unchanged, as thread `tid` sees them: code can be unmapped, and replaced by exec.
    pub(super) fn are_valid(&self, tid: u32) -> bool {
        has_code(tid, self.call, CALL) && RESTORERS.iter().any(|code| has_code(tid, self.restorer, code))
    }
}

/// True for code of a file that is not writable. Code that a program generates itself may change at any time.
fn is_immutable_code(mapping: &Mapping) -> bool {
    let perms = mapping.perms;
    perms.exec && perms.read && !perms.write && (mapping.inode != 0 || mapping.name == "[vdso]")
}

fn is_libc(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.starts_with("libc.so") || name.starts_with("libc-") || name.starts_with("ld-musl")
}

fn has_code(pid: u32, addr: Addr, code: &[u8]) -> bool {
    let mut bytes = vec![0; code.len()];
    process_vm::read(pid, addr, &mut bytes).is_ok_and(|read| read == code.len()) && bytes == code
}

/// The first address in `range` with one of `patterns`.
fn search(pid: u32, range: AddrRange, patterns: &[&[u8]]) -> Option<Addr> {
    const CHUNK: usize = 1 << 20;
    const OVERLAP: u64 = 16;
    let mut chunk = vec![0; CHUNK];
    let mut at = range.start.0;
    while at < range.end.0 {
        let wanted = chunk.len().min((range.end.0 - at) as usize);
        let read = process_vm::read(pid, Addr(at), chunk.get_mut(..wanted)?).ok()?;
        let bytes = chunk.get(..read)?;
        let first = |pattern: &&[u8]| bytes.windows(pattern.len()).position(|bytes| bytes == *pattern);
        if let Some(found) = patterns.iter().filter_map(first).min() {
            return Some(Addr(at + found as u64));
        }
        if read < CHUNK {
            return None;
        }
        at += read as u64 - OVERLAP;
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
    fn gadgets_are_found_in_own_c_library() {
        let us = std::process::id();
        let found = Gadgets::find(us, &maps::read(Path::new("/"), us).unwrap());
        assert!(found.is_some_and(|gadgets| gadgets.are_valid(us)), "{found:x?}");
        let wrong = Gadgets {
            call: Addr(0x1000),
            restorer: Addr(0x1000),
        };
        assert!(!wrong.are_valid(us));
    }

    #[test]
    fn writable_and_anonymous_code_is_skipped() {
        let line = |perms: maps::Perms, inode, name: &str| Mapping {
            range: AddrRange::new(0x1000, 0x2000),
            perms,
            offset: 0,
            inode,
            name: name.to_owned(),
        };
        let code = maps::Perms {
            read: true,
            exec: true,
            ..maps::Perms::default()
        };
        assert!(
            is_immutable_code(&line(code, 7, "/lib/libc.so.6"))
                && is_immutable_code(&line(code, 0, "[vdso]"))
        );
        let written = maps::Perms { write: true, ..code };
        assert!(!is_immutable_code(&line(written, 7, "/lib/libc.so.6")));
        assert!(!is_immutable_code(&line(code, 0, "")) && !is_immutable_code(&line(code, 0, "[vsyscall]")));
    }

    #[test]
    fn c_library_is_detected_by_name() {
        assert!(is_libc("/usr/lib/x86_64-linux-gnu/libc.so.6") && is_libc("/lib/ld-musl-x86_64.so.1"));
        assert!(!is_libc("/usr/lib/libcrypto.so.3") && !is_libc(""));
    }
}
