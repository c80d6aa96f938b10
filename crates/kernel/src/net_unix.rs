//! Abstract Unix sockets (`/proc/net/unix`, unix(7)): names without a file, which vanish with the process
//! that bound them.

use std::path::Path;

use crate::file::{self, FileError};

/// The abstract names that begin with `prefix`, without the leading NUL. Only those of our network namespace
/// are listed.
///
/// # Errors
/// Fails if the list cannot be read.
pub fn abstract_names(root: &Path, prefix: &str) -> Result<Vec<String>, FileError> {
    let text = file::text(&root.join("proc/net/unix"))?;
    // "address: RefCount Protocol Flags Type St Inode Path"; each NUL of a name is shown as "@".
    let name = |line: &str| {
        let name = line.split_ascii_whitespace().nth(7)?.strip_prefix('@')?;
        name.starts_with(prefix).then(|| name.to_owned())
    };
    Ok(text.lines().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn abstract_names_are_filtered_by_prefix() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/net")).unwrap();
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    0000: 00000002 00000000 00010000 0001 01 16 /run/ours/1\n\
                    0000: 00000002 00000000 00000000 0002 01 17 @ours/2\n\
                    0000: 00000002 00000000 00000000 0002 01 18 @other/2\n\
                    0000: 00000002 00000000 00000000 0002 01 19\n";
        std::fs::write(root.path().join("proc/net/unix"), text).unwrap();
        assert_eq!(abstract_names(root.path(), "ours/").unwrap(), ["ours/2"]);
        assert!(abstract_names(Path::new("/nowhere"), "").is_err());
    }
}
