//! Where memory is in physical addresses (`/proc/iomem`). Only root is told the addresses.

use std::path::Path;

use thermo_units::{AddrRange, PAGE_SIZE};

use crate::file::{self, FileError};

/// The ranges of the machine's memory: ascending, disjoint, whole pages.
///
/// # Errors
/// When the file cannot be read, or hides where memory is.
pub fn system_ram(root: &Path) -> Result<Vec<AddrRange>, FileError> {
    let path = root.join("proc/iomem");
    let text = file::text(&path)?;
    // What lies within a range is indented below it.
    let ranges: Vec<AddrRange> = text.lines().filter_map(range_of).collect();
    if ranges.is_empty() {
        let found = text.lines().next().unwrap_or_default();
        return Err(FileError::malformed(
            &path,
            found,
            "a list that shows root where System RAM is",
        ));
    }
    Ok(ranges)
}

/// `00001000-0009fbff : System RAM`.
fn range_of(line: &str) -> Option<AddrRange> {
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
    fn whole_pages_of_memory_are_told_and_hidden_addresses_are_an_error() {
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
        write("00000000-00000000 : Reserved\n00000000-00000000 : System RAM\n");
        let error = system_ram(root.path()).unwrap_err().to_string();
        assert!(error.contains("iomem") && error.contains("System RAM"), "{error}");
    }
}
