//! NUMA nodes: `/sys/devices/system/node/nodeN/meminfo`.

use std::path::Path;

use thermo_units::Bytes;

use crate::file::{self, FileError};

/// Memory of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeMemory {
    /// Total memory.
    pub total: Bytes,
    /// Free memory.
    pub free: Bytes,
}

/// The ids of all nodes, ascending. A machine without NUMA has node 0 or none.
#[must_use]
pub fn ids(root: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(root.join("sys/devices/system/node")) else {
        return Vec::new();
    };
    let number = |name: &str| name.strip_prefix("node")?.parse().ok();
    let mut nodes: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| number(entry.file_name().to_str()?))
        .collect();
    nodes.sort_unstable();
    nodes
}

/// The memory of node `nid`.
///
/// # Errors
/// Fails if there is no such node.
pub fn memory(root: &Path, nid: u32) -> Result<NodeMemory, FileError> {
    let path = root.join(format!("sys/devices/system/node/node{nid}/meminfo"));
    let text = file::text(&path)?;
    let mut memory = NodeMemory::default();
    for (name, bytes) in file::sizes(&text) {
        // Lines read `Node 0 MemTotal:  123 kB`.
        match name.rsplit(' ').next() {
            Some("MemTotal") => memory.total = bytes,
            Some("MemFree") => memory.free = bytes,
            _ => {}
        }
    }
    Ok(memory)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn nodes_are_listed_and_their_memory_read() {
        let root = tempfile::tempdir().unwrap();
        for nid in [1, 0, 10] {
            let dir = root.path().join(format!("sys/devices/system/node/node{nid}"));
            std::fs::create_dir_all(&dir).unwrap();
            let text = format!(
                "Node {nid} MemTotal:  {nid}00 kB\nNode {nid} MemFree:   5 kB\nNode {nid} MemUsed: 1 kB\n"
            );
            std::fs::write(dir.join("meminfo"), text).unwrap();
        }
        std::fs::create_dir_all(root.path().join("sys/devices/system/node/power")).unwrap();
        assert_eq!(ids(root.path()), [0, 1, 10]);
        assert_eq!(
            memory(root.path(), 1).unwrap(),
            NodeMemory {
                total: Bytes::kib(100),
                free: Bytes::kib(5)
            }
        );
        assert!(memory(root.path(), 2).unwrap_err().is_missing());
    }
}
