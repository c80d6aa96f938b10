//! The physical addresses of memory (`/proc/iomem`). Only root sees the addresses.

use std::path::Path;

use thermo_units::{AddrRange, PAGE_SIZE};

use crate::file::{self, FileError};

/// The ranges of system RAM: ascending, disjoint, whole pages.
///
/// # Errors
/// Fails if the file cannot be read, or hides the addresses.
pub fn system_ram(root: &Path) -> Result<Vec<AddrRange>, FileError> {
    let path = root.join("proc/iomem");
    let text = file::text(&path)?;
    // Sub-ranges are indented.
    let ranges: Vec<AddrRange> = text.lines().filter_map(parse_line).collect();
    if !ranges.is_sorted_by(|one, next| one.end <= next.start) {
        let expected = "a list with ascending addresses of System RAM";
        return Err(FileError::malformed(&path, &text, expected));
    }
    if ranges.is_empty() {
        let found = text.lines().next().unwrap_or_default();
        return Err(FileError::malformed(
            &path,
            found,
            "a list with addresses of System RAM (only root sees them)",
        ));
    }
    Ok(ranges)
}

/// `00001000-0009fbff : System RAM`.
fn parse_line(line: &str) -> Option<AddrRange> {
    let span = line.strip_suffix(" : System RAM")?;
    let (first, last) = span.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (first, last) = (number(first)?, number(last)?);
    let start = first.div_ceil(PAGE_SIZE) * PAGE_SIZE;
    let end = last.checked_add(1)? / PAGE_SIZE * PAGE_SIZE;
    (start < end).then(|| AddrRange::new(start, end))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn system_ram_lists_whole_pages_and_refuses_hidden_addresses() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let write = |text: &str| std::fs::write(root.path().join("proc/iomem"), text).unwrap();
        write(
            "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n  00002000-00002fff : System RAM\n\
             100000000-13fffffff : System RAM\n",
        );
        let expected = [
            AddrRange::new(0x1000, 0x9f000),
            AddrRange::new(0x1_0000_0000, 0x1_4000_0000),
        ];
        assert_eq!(system_ram(root.path()).unwrap(), expected);
        write("00000000-0009fbff : System RAM\n00001000-13fffffff : System RAM\n");
        let error = system_ram(root.path()).unwrap_err().to_string();
        assert!(error.contains("ascending"), "{error}");
        write("00000000-00000000 : Reserved\n00000000-00000000 : System RAM\n");
        let error = system_ram(root.path()).unwrap_err().to_string();
        assert!(error.contains("iomem") && error.contains("System RAM"), "{error}");
    }
}
