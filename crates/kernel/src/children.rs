//! The children of a process: from `/proc/PID/task/TID/children`, or by a search for its pid as parent where
//! the kernel lacks this file (built without `CONFIG_PROC_CHILDREN`).

use std::path::Path;

use crate::proc::{self, ProcError};
use crate::stat;

/// The children of all threads of `pid`, ascending: any thread can fork.
///
/// # Errors
/// [`ProcError::Gone`] if the process has ended.
pub fn read(root: &Path, pid: u32) -> Result<Vec<u32>, ProcError> {
    let dir = proc::dir(root, pid).join("task");
    let Ok(threads) = std::fs::read_dir(&dir) else {
        return Err(ProcError::Gone { pid });
    };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        let path = thread.path().join("children");
        match std::fs::read_to_string(&path) {
            Ok(text) => children.extend(
                text.split_ascii_whitespace()
                    .filter_map(|word| word.parse::<u32>().ok()),
            ),
            Err(_) if thread.path().exists() && !path.exists() => return find_by_parent(root, pid),
            // A thread that ended meanwhile; its children pass to another thread.
            Err(_) => {}
        }
    }
    children.sort_unstable();
    children.dedup();
    Ok(children)
}

fn find_by_parent(root: &Path, pid: u32) -> Result<Vec<u32>, ProcError> {
    let all = proc::pids(root)?;
    Ok(all
        .into_iter()
        .filter(|&child| stat::read(root, child).is_ok_and(|stat| stat.ppid == pid))
        .collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    fn process(root: &Path, pid: u32, ppid: u32) {
        fs::create_dir_all(root.join(format!("proc/{pid}/task/{pid}"))).unwrap();
        let line = format!("{pid} (x) S {ppid} 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0");
        fs::write(root.join(format!("proc/{pid}/stat")), line).unwrap();
    }

    #[test]
    fn children_of_all_threads_are_listed() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 5, 1);
        fs::create_dir_all(root.path().join("proc/5/task/6")).unwrap();
        fs::write(root.path().join("proc/5/task/5/children"), "9 8 ").unwrap();
        fs::write(root.path().join("proc/5/task/6/children"), "7 ").unwrap();
        assert_eq!(read(root.path(), 5).unwrap(), [7, 8, 9]);
    }

    #[test]
    fn children_are_found_by_parent_without_children_file() {
        let root = tempfile::tempdir().unwrap();
        [(5, 1), (7, 5), (8, 7), (9, 5)]
            .into_iter()
            .for_each(|(pid, ppid)| process(root.path(), pid, ppid));
        assert_eq!(read(root.path(), 5).unwrap(), [7, 9]);
    }

    #[test]
    fn ended_parent_is_reported_gone() {
        let root = tempfile::tempdir().unwrap();
        assert!(read(root.path(), 5).unwrap_err().is_gone());
    }
}
