//! The thread by which a process is looked at.

use std::fs;
use std::path::Path;

use thermo_kernel::status;

/// A thread of process `pid` that has its memory: the first one, unless it ended before the others. Of a first thread
/// that ended, the kernel shows no mappings, no program and no memory. Nothing when none is left.
#[must_use]
pub fn live_thread(root: &Path, pid: u32) -> Option<u32> {
    let has_memory = |tid: u32| status::read(root, tid).is_ok_and(|status| status.vm_rss.is_some());
    if has_memory(pid) {
        return Some(pid);
    }
    let threads = fs::read_dir(root.join(format!("proc/{pid}/task"))).ok()?;
    let mut tids = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    tids.find(|tid| *tid != pid && has_memory(*tid))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn threads_that_outlive_the_first_are_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |tid: u32, memory: &str| {
            fs::create_dir_all(root.path().join(format!("proc/7/task/{tid}"))).unwrap();
            let folder = root.path().join(format!("proc/{tid}"));
            fs::create_dir_all(&folder).unwrap();
            let text = format!("Name:\tx\nTgid:\t7\nUid:\t0\t0\t0\t0\n{memory}CapEff:\t0000000000000000\n");
            fs::write(folder.join("status"), text).unwrap();
        };
        write(7, "");
        assert_eq!(live_thread(root.path(), 7), None, "all have ended");
        write(9, "VmRSS:\t  100 kB\n");
        assert_eq!(live_thread(root.path(), 7), Some(9));
        write(7, "VmRSS:\t  100 kB\n");
        assert_eq!(live_thread(root.path(), 7), Some(7));
        assert_eq!(live_thread(root.path(), 8), None);
    }

    #[test]
    fn we_have_our_own_memory() {
        let us = std::process::id();
        assert_eq!(live_thread(Path::new("/"), us), Some(us));
    }
}
