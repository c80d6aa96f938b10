//! Addresses of kernel symbols (`/proc/kallsyms`).

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

/// The address of the kernel symbol `name`; `None` if the kernel has no such symbol, or hides its address: it
/// shows addresses to CAP_SYSLOG only, and to nobody with `kernel.kptr_restrict=2`. Variables have symbols in
/// kernels with `CONFIG_KALLSYMS_ALL`. Reads up to some 10 MB of text.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn address(root: &Path, name: &str) -> io::Result<Option<u64>> {
    let mut file = BufReader::new(File::open(root.join("proc/kallsyms"))?);
    let mut line = Vec::new();
    // Symbols of modules are no UTF-8 if the module's are not.
    while file.read_until(b'\n', &mut line)? > 0 {
        if let Some(address) = address_in(&line, name) {
            return Ok(Some(address).filter(|address| *address != 0));
        }
        line.clear();
    }
    Ok(None)
}

/// The address in a line `ADDRESS TYPE NAME`, if it is that of `name`. Symbols of modules have a fourth word.
fn address_in(line: &[u8], name: &str) -> Option<u64> {
    let line = line.trim_ascii_end().strip_suffix(name.as_bytes())?;
    let mut words = str::from_utf8(line).ok()?.split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(address), Some(_), Some(""), None) => u64::from_str_radix(address, 16).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn address_is_that_of_whole_name() {
        let root = tempfile::tempdir().unwrap();
        let find = |name| address(root.path(), name);
        find("page_offset_base").unwrap_err();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let text = b"ffffffff81000000 T my_page_offset_base\nffffffffc0000000 d page_offset_base\t[module]\n\
            ffffffff826d1300 D page_offset_base\nffffffffc0000008 t \xff\n0000000000000000 A hidden\n";
        std::fs::write(root.path().join("proc/kallsyms"), text).unwrap();
        assert_eq!(find("page_offset_base").unwrap(), Some(0xffff_ffff_826d_1300));
        assert_eq!(find("hidden").unwrap(), None);
        assert_eq!(find("offset_base").unwrap(), None);
        assert_eq!(find("").unwrap(), None);
    }
}
