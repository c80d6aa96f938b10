//! The memory nodes of the machine: which node a page frame is on, and how much memory a node can take.

use std::path::Path;

use thermo_engine::ops::OpsError;
use thermo_engine::scheme::Destination;
use thermo_kernel::node::{self, NodeSet, Zone};
use thermo_units::Bytes;

/// Zones of all nodes. They change only when memory is added or removed.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    zones: Vec<Zone>,
}

impl Nodes {
    /// Reads the zones. Without them, no frame has a known node, and the kernel is asked for each page.
    pub(super) fn read(root: &Path) -> Self {
        Self {
            zones: node::zones(root).unwrap_or_default(),
        }
    }

    /// The node of page frame `pfn`; `None` if that is not known. Zones of several nodes may overlap: they
    /// have holes where the other's memory is.
    pub(super) fn of_frame(&self, pfn: u64) -> Option<u32> {
        let holds = |zone: &&Zone| {
            pfn.checked_sub(zone.start_pfn)
                .is_some_and(|nth| nth < zone.spanned)
        };
        let mut nodes = self.zones.iter().filter(holds).map(|zone| zone.nid);
        let first = nodes.next()?;
        nodes.all(|nid| nid == first).then_some(first)
    }

    /// The memory that node `nid` can take before the kernel begins to reclaim there, which would page out
    /// memory of others to make room.
    pub(super) fn room(&self, root: &Path, nid: u32) -> Bytes {
        let free = node::memory(root, nid).map_or(Bytes::ZERO, |memory| memory.free);
        let of_node = self.zones.iter().filter(|zone| zone.nid == nid);
        free.saturating_sub(of_node.map(|zone| zone.high).sum())
    }
}

/// Checks that this machine has all of the nodes, with memory.
///
/// # Errors
/// [`OpsError::Unsupported`] with the first node that it lacks, and those that it has.
pub fn check_destinations(root: &Path, destinations: &[Destination]) -> Result<(), OpsError> {
    destinations
        .iter()
        .try_for_each(|node| check_node(root, node.nid, "migration to"))
}

/// Checks that this machine has the node of a goal for memory on a node, with memory.
///
/// # Errors
/// [`OpsError::Unsupported`] with the nodes that it has.
pub fn check_goal_node(root: &Path, nid: u32) -> Result<(), OpsError> {
    check_node(root, nid, "a goal for memory on")
}

fn check_node(root: &Path, nid: u32, what: &str) -> Result<(), OpsError> {
    let nodes = node::members(root, NodeSet::HasMemory).unwrap_or_else(|_| node::ids(root));
    if nodes.contains(&nid) {
        return Ok(());
    }
    let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
    let why = match node::memory(root, nid) {
        Ok(_) => format!("node {nid} has no memory"),
        Err(_) => format!("this machine has no node {nid}"),
    };
    Err(OpsError::Unsupported {
        what: format!("{what} node {nid}"),
        why: format!("{why}; its nodes with memory are: {}", nodes.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    /// A machine whose nodes 0 and 2 have memory; node 1 has none.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let nodes = root.path().join("sys/devices/system/node");
        for (nid, total) in [(0, 1000), (1, 0), (2, 4000)] {
            let dir = nodes.join(format!("node{nid}"));
            fs::create_dir_all(&dir).unwrap();
            let text = format!(
                "Node {nid} MemTotal: {total} kB\nNode {nid} MemFree: {} kB\n",
                total / 2
            );
            fs::write(dir.join("meminfo"), text).unwrap();
        }
        fs::write(nodes.join("has_memory"), "0,2\n").unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        let zone = |nid, high, start, spanned| {
            format!("Node {nid}, zone Normal\n high {high}\n spanned {spanned}\n start_pfn: {start}\n")
        };
        let zones = [zone(0, 25, 0, 250), zone(2, 50, 250, 1000), zone(0, 0, 1200, 100)];
        fs::write(root.path().join("proc/zoneinfo"), zones.concat()).unwrap();
        root
    }

    #[test]
    fn frames_in_overlapping_zones_have_no_known_node() {
        let root = machine();
        let nodes = Nodes::read(root.path());
        let of = |pfn| nodes.of_frame(pfn);
        assert_eq!(
            (of(0), of(249), of(250), of(1199)),
            (Some(0), Some(0), Some(2), Some(2))
        );
        assert_eq!(
            (of(1200), of(1249), of(1250), of(1300)),
            (None, None, Some(0), None)
        );
        assert_eq!(Nodes::read(Path::new("/nowhere")).of_frame(0), None);
    }

    #[test]
    fn room_ends_at_high_watermark() {
        let root = machine();
        let nodes = Nodes::read(root.path());
        assert_eq!(nodes.room(root.path(), 0), Bytes::kib(400));
        assert_eq!(nodes.room(root.path(), 2), Bytes::kib(1800));
        assert_eq!(nodes.room(root.path(), 7), Bytes::ZERO);
    }

    #[test]
    fn missing_node_and_node_without_memory_are_refused() {
        let root = machine();
        let check = |nid| check_destinations(root.path(), &[Destination::only(2), Destination::only(nid)]);
        assert_eq!(check(0), Ok(()));
        let error = |nid| check(nid).unwrap_err().to_string();
        assert!(
            error(1).contains("node 1 has no memory; its nodes with memory are: 0, 2"),
            "{}",
            error(1)
        );
        assert!(error(7).contains("has no node 7"), "{}", error(7));
    }
}
