//! NUMA nodes: `/sys/devices/system/node` and the zones of `/proc/zoneinfo`.

use std::path::Path;

use thermo_units::{Bytes, PAGE_SIZE};

use crate::file::{self, FileError};

/// Memory of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeMemory {
    /// Total memory.
    pub total: Bytes,
    /// Free memory.
    pub free: Bytes,
    /// Memory that cannot leave the node: unevictable, kernel stacks, page tables and slabs that cannot be
    /// reclaimed.
    pub fixed: Bytes,
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

/// A set of nodes that the kernel lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeSet {
    /// Nodes that are online.
    Online,
    /// Nodes with memory.
    HasMemory,
    /// Nodes with CPUs.
    HasCpu,
}

/// The ids of the nodes of `set`, ascending.
///
/// # Errors
/// Fails if the file is missing (kernels without NUMA) or malformed.
pub fn members(root: &Path, set: NodeSet) -> Result<Vec<u32>, FileError> {
    let name = match set {
        NodeSet::Online => "online",
        NodeSet::HasMemory => "has_memory",
        NodeSet::HasCpu => "has_cpu",
    };
    let path = root.join("sys/devices/system/node").join(name);
    let text = file::text(&path)?;
    parse_list(&text).ok_or_else(|| FileError::malformed(&path, &text, "a list of nodes like 0-1,3"))
}

/// The numbers of a kernel list like `0-1,3`; an empty list has none. `None` if the text is none.
pub(crate) fn parse_list(text: &str) -> Option<Vec<u32>> {
    /// The kernel's limit is 1024 nodes (`CONFIG_NODES_SHIFT`).
    const MAX: u32 = 1 << 16;
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Page frames of one zone of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// The node.
    pub nid: u32,
    /// The first page frame.
    pub start_pfn: u64,
    /// The number of page frames up to the end of the zone, holes included.
    pub spanned: u64,
    /// Free memory below which the kernel's reclaim works on the zone (the high watermark).
    pub high: Bytes,
}

/// The zones with memory of all nodes, by their first page frame.
///
/// # Errors
/// Fails if `/proc/zoneinfo` cannot be read.
pub fn zones(root: &Path) -> Result<Vec<Zone>, FileError> {
    let text = file::text(&root.join("proc/zoneinfo"))?;
    let mut zones: Vec<Zone> = Vec::new();
    let number = |line: &str, name: &str| line.strip_prefix(name)?.trim().parse::<u64>().ok();
    let mut in_pagesets = false;
    for line in text.lines() {
        if let Some(nid) = line.strip_prefix("Node ").and_then(|rest| rest.split(',').next()) {
            let Ok(nid) = nid.parse() else { continue };
            in_pagesets = false;
            zones.push(Zone {
                nid,
                start_pfn: 0,
                spanned: 0,
                high: Bytes::ZERO,
            });
            continue;
        }
        let (Some(zone), line) = (zones.last_mut(), line.trim()) else {
            continue;
        };
        // Each CPU has a line `high:` too, in newer kernels with other names beside it.
        in_pagesets |= line == "pagesets";
        if let Some(pages) = number(line, "spanned") {
            zone.spanned = pages;
        } else if let Some(pfn) = number(line, "start_pfn:") {
            zone.start_pfn = pfn;
        } else if let Some(pages) = number(line, "high ").filter(|_| !in_pagesets) {
            zone.high = Bytes(pages.saturating_mul(PAGE_SIZE));
        }
    }
    zones.retain(|zone| zone.spanned > 0);
    zones.sort_by_key(|zone| zone.start_pfn);
    Ok(zones)
}

/// Whether the kernel's NUMA balancing moves pages by itself (`kernel.numa_balancing`). False on kernels
/// without it.
#[must_use]
pub fn has_balancing(root: &Path) -> bool {
    let text = file::text(&root.join("proc/sys/kernel/numa_balancing"));
    text.is_ok_and(|text| text.trim() != "0")
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
            Some("Unevictable" | "KernelStack" | "PageTables" | "SUnreclaim") => memory.fixed += bytes,
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
                "Node {nid} MemTotal:  {nid}00 kB\nNode {nid} MemFree:   5 kB\nNode {nid} MemUsed: 1 kB\n\
                 Node {nid} Unevictable: 2 kB\nNode {nid} SUnreclaim: 3 kB\n"
            );
            std::fs::write(dir.join("meminfo"), text).unwrap();
        }
        std::fs::create_dir_all(root.path().join("sys/devices/system/node/power")).unwrap();
        assert_eq!(ids(root.path()), [0, 1, 10]);
        assert_eq!(
            memory(root.path(), 1).unwrap(),
            NodeMemory {
                total: Bytes::kib(100),
                free: Bytes::kib(5),
                fixed: Bytes::kib(5),
            }
        );
        assert!(memory(root.path(), 2).unwrap_err().is_missing());
    }
    #[test]
    fn lists_of_nodes_are_parsed() {
        for (text, nodes) in [
            ("0\n", Some(vec![0])),
            ("0-1,3\n", Some(vec![0, 1, 3])),
            ("\n", Some(vec![])),
            ("1-0\n", None),
            ("0-4000000000\n", None),
            ("0,x\n", None),
        ] {
            assert_eq!(parse_list(text), nodes, "{text:?}");
        }
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/devices/system/node");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("online"), "0-1\n").unwrap();
        std::fs::write(dir.join("has_cpu"), "0\n").unwrap();
        std::fs::write(dir.join("has_memory"), "zero\n").unwrap();
        assert_eq!(members(root.path(), NodeSet::Online).unwrap(), [0, 1]);
        assert_eq!(members(root.path(), NodeSet::HasCpu).unwrap(), [0]);
        assert!(
            members(root.path(), NodeSet::HasMemory)
                .unwrap_err()
                .to_string()
                .contains("list of nodes")
        );
    }

    #[test]
    fn zones_have_node_frames_and_watermark() {
        let text = "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 5\n  pages free     3952\n        \
                    min      67\n        low      83\n        high     99\n        spanned  4095\n        present  \
                    3998\n  pagesets\n    cpu: 0\n              count:    0\n              high:     0\n  \
                    start_pfn:           1\nNode 0, zone  Movable\n  pages free     0\n        high     32\n        \
                    spanned  0\nNode 1, zone   Normal\n  pages free     7\n        high     10\n        spanned  \
                    262144\n  start_pfn:           262144\n";
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/zoneinfo"), text).unwrap();
        let zone = |nid, start_pfn, spanned, high| Zone {
            nid,
            start_pfn,
            spanned,
            high: Bytes(high * PAGE_SIZE),
        };
        assert_eq!(
            zones(root.path()).unwrap(),
            [zone(0, 1, 4095, 99), zone(1, 262_144, 262_144, 10)]
        );
    }
    #[test]
    fn balancing_is_on_in_each_of_its_modes() {
        let root = tempfile::tempdir().unwrap();
        assert!(!has_balancing(root.path()));
        let dir = root.path().join("proc/sys/kernel");
        std::fs::create_dir_all(&dir).unwrap();
        for (mode, is_on) in [("0\n", false), ("1\n", true), ("2\n", true)] {
            std::fs::write(dir.join("numa_balancing"), mode).unwrap();
            assert_eq!(has_balancing(root.path()), is_on, "{mode:?}");
        }
    }
}
