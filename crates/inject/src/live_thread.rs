//! A live thread of a process, through which its memory is inspected.

use std::fs;
use std::path::Path;

use thermo_kernel::status;

/// A thread of process `pid` with an address space: the main thread, unless it ended before the others. For a
/// main thread that ended, the kernel shows no mappings, program or memory. `None` if no thread is left.
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
    fn live_thread_finds_thread_after_main_ended() {
        let root = tempfile::tempdir().unwrap();
        let write = |tid: u32, memory: &str| {
            fs::create_dir_all(root.path().join(format!("proc/7/task/{tid}"))).unwrap();
            let folder = root.path().join(format!("proc/{tid}"));
            fs::create_dir_all(&folder).unwrap();
            let text = format!("Name:\tx\nTgid:\t7\nUid:\t0\t0\t0\t0\n{memory}CapEff:\t0000000000000000\n");
            fs::write(folder.join("status"), text).unwrap();
        };
        write(7, "");
        assert_eq!(live_thread(root.path(), 7), None, "all threads have ended");
        write(9, "VmRSS:\t  100 kB\n");
        assert_eq!(live_thread(root.path(), 7), Some(9));
        write(7, "VmRSS:\t  100 kB\n");
        assert_eq!(live_thread(root.path(), 7), Some(7));
        assert_eq!(live_thread(root.path(), 8), None);
    }

    #[test]
    fn live_thread_of_own_process_is_main() {
        let us = std::process::id();
        assert_eq!(live_thread(Path::new("/"), us), Some(us));
    }
}
