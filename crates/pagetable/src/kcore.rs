//! The kernel's own account of its direct map: the program headers of `/proc/kcore`
//! (include/uapi/linux/elf.h, fs/proc/kcore.c) have virtual and physical address of each range of memory.
//! Only the headers are read.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// The headers take a few KiB: a range of memory each.
const MAX_LEN: u64 = 1 << 20;
/// Sizes and offsets in the 64-bit ELF header and its program headers.
const HEADER: usize = 64;
const PHOFF: usize = 32;
const PHNUM: usize = 56;
const PROGRAM_HEADER: usize = 56;
const VADDR: usize = 16;
const PADDR: usize = 24;
const MEMSZ: usize = 40;
const PT_LOAD: u32 = 1;

/// The base of the direct map in which `addr` lies; `None` where the kernel does not show it: without root,
/// or without `CONFIG_PROC_KCORE`.
pub(crate) fn direct_map(root: &Path, addr: u64) -> Option<u64> {
    let mut file = File::open(root.join("proc/kcore")).ok()?;
    let mut bytes = Vec::new();
    (&mut file).take(HEADER as u64).read_to_end(&mut bytes).ok()?;
    let rest = headers_len(&bytes)?.saturating_sub(HEADER as u64);
    file.take(rest).read_to_end(&mut bytes).ok()?;
    base_of(&bytes, addr)
}

/// Length of the file up to the end of its program headers.
fn headers_len(header: &[u8]) -> Option<u64> {
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let len = u64::from(number_of_headers(header)?) * PROGRAM_HEADER as u64;
    word(header, PHOFF)?
        .checked_add(len)
        .filter(|len| *len <= MAX_LEN)
}

fn number_of_headers(header: &[u8]) -> Option<u16> {
    let bytes = header.get(PHNUM..PHNUM + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn base_of(bytes: &[u8], addr: u64) -> Option<u64> {
    let start = usize::try_from(word(bytes, PHOFF)?).ok()?;
    let headers = bytes.get(start..)?.chunks_exact(PROGRAM_HEADER);
    headers
        .filter(|header| header.starts_with(&PT_LOAD.to_le_bytes()))
        .find_map(|header| {
            let (vaddr, paddr, size) = (word(header, VADDR)?, word(header, PADDR)?, word(header, MEMSZ)?);
            // Ranges that are not memory have the physical address -1.
            let is_range = paddr != u64::MAX && (vaddr..vaddr.checked_add(size)?).contains(&addr);
            is_range.then(|| vaddr.checked_sub(paddr)).flatten()
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const BASE: u64 = 0xffff_9c40_0000_0000;

    /// A file with ranges of (virtual address, physical address, size).
    fn kcore(ranges: &[(u64, u64, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[PHOFF] = HEADER as u8;
        bytes[PHNUM] = ranges.len() as u8;
        for (vaddr, paddr, size) in ranges {
            let mut header = vec![0; PROGRAM_HEADER];
            header[0] = 1;
            header[VADDR..][..8].copy_from_slice(&vaddr.to_le_bytes());
            header[PADDR..][..8].copy_from_slice(&paddr.to_le_bytes());
            header[MEMSZ..][..8].copy_from_slice(&size.to_le_bytes());
            bytes.extend(header);
        }
        bytes
    }

    #[test]
    fn base_is_that_of_the_range_with_the_address() {
        let root = std::env::temp_dir().join(format!("thermo-kcore-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc")).unwrap();
        let ranges = [
            (0xffff_ffff_8100_0000, 0x100_0000, 32 << 20),
            (0xffff_c900_0000_0000, u64::MAX, 1 << 45),
            (BASE + 0x1000, 0x1000, 0x9_e000),
            (BASE + (4 << 30), 4 << 30, 12 << 30),
        ];
        std::fs::write(root.join("proc/kcore"), kcore(&ranges)).unwrap();
        let base = |addr| direct_map(&root, addr);
        assert_eq!(base(BASE + (5 << 30)), Some(BASE));
        assert_eq!(base(BASE + 0x2000), Some(BASE));
        // A hole, the modules, and no kernel address.
        assert_eq!([BASE + (2 << 30), 0xffff_c900_0000_1000, 7].map(base), [None; 3]);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(base(BASE + 0x2000), None);
    }

    #[test]
    fn other_files_have_no_base() {
        let mut long = kcore(&[]);
        long[PHNUM..PHNUM + 2].copy_from_slice(&[0xff; 2]);
        long[PHOFF..PHOFF + 8].copy_from_slice(&[0xff; 8]);
        assert_eq!(headers_len(&long), None);
        assert_eq!(headers_len(b"text"), None);
    }
}
