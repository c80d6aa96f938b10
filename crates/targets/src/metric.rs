//! Metrics of the machine for quota goals and watermarks, computed as in the kernel
//! (`damos_get_goal_metric()`, `damos_wmark_metric_value()`).

use std::path::Path;

use thermo_engine::OpsError;
use thermo_engine::scheme::SystemMetric;
use thermo_kernel::cgroup::Group;
use thermo_kernel::memcg::Memcg;
use thermo_kernel::node::{self, NodeMemory};
use thermo_kernel::psi;
use thermo_kernel::{FileError, meminfo, vmstat};

/// The current value of `metric`.
///
/// # Errors
/// `Unsupported` if this machine does not have the metric; `Failed` if the metric cannot be read.
pub fn read(root: &Path, metric: &SystemMetric) -> Result<u64, OpsError> {
    match metric {
        SystemMetric::SomeMemPsiUs => {
            let total = psi::system_stall(root).map_err(|err| unsupported("some_mem_psi_us", &err))?;
            Ok(total.as_micros())
        }
        SystemMetric::NodeMemUsedBp { nid } => {
            node_memory(root, *nid).map(|node| basis_points(used(&node), node.total.0))
        }
        SystemMetric::NodeMemFreeBp { nid } => {
            node_memory(root, *nid).map(|node| basis_points(node.free.0, node.total.0))
        }
        SystemMetric::NodeMemcgUsedBp { nid, path } => memcg_share(root, *nid, path, |group, _| group),
        SystemMetric::NodeMemcgFreeBp { nid, path } => {
            memcg_share(root, *nid, path, |group, node| node.saturating_sub(group))
        }
        SystemMetric::ActiveMemBp => {
            lru_pages(root).map(|(active, inactive)| basis_points(active, active.saturating_add(inactive)))
        }
        SystemMetric::InactiveMemBp => {
            lru_pages(root).map(|(active, inactive)| basis_points(inactive, active.saturating_add(inactive)))
        }
        SystemMetric::FreeMemRate => {
            let info = meminfo::read(root).map_err(|err| OpsError::Failed(err.to_string()))?;
            Ok(share(info.free.0, info.total.0, 1000))
        }
    }
}

fn node_memory(root: &Path, nid: u32) -> Result<NodeMemory, OpsError> {
    let memory = node::memory(root, nid);
    memory.map_err(|err| match err {
        FileError::Missing(_) => {
            let ids: Vec<String> = node::ids(root).iter().map(u32::to_string).collect();
            let ids = if ids.is_empty() {
                "none".to_owned()
            } else {
                ids.join(", ")
            };
            let why = format!("this machine has no such node; its nodes are: {ids}");
            OpsError::Unsupported {
                what: format!("a metric of memory node {nid}"),
                why,
            }
        }
        err => OpsError::Failed(err.to_string()),
    })
}

/// `part` of (memory of the group on the node, memory of the node), as a share of the node.
fn memcg_share(root: &Path, nid: u32, path: &str, part: impl Fn(u64, u64) -> u64) -> Result<u64, OpsError> {
    let node = node_memory(root, nid)?;
    let what = format!("the memory of control group {path:?}");
    let group = Group::find_in(root, "memory", path);
    let group = group.map_err(|err| OpsError::Unsupported {
        what: what.clone(),
        why: err.to_string(),
    })?;
    let on_node = Memcg::new(group).node_usage(nid);
    let on_node = on_node.map_err(|err| OpsError::Unsupported {
        what,
        why: err.to_string(),
    })?;
    Ok(basis_points(part(on_node.0, node.total.0), node.total.0))
}

/// Active and inactive pages.
fn lru_pages(root: &Path) -> Result<(u64, u64), OpsError> {
    let vmstat = vmstat::read(root).map_err(|err| OpsError::Failed(err.to_string()))?;
    Ok((vmstat.active_pages(), vmstat.inactive_pages()))
}

const fn used(node: &NodeMemory) -> u64 {
    node.total.0.saturating_sub(node.free.0)
}

fn basis_points(part: u64, whole: u64) -> u64 {
    share(part, whole, 10_000)
}

/// `part / whole * of`, rounded down; 0 if `whole` is 0.
fn share(part: u64, whole: u64, of: u64) -> u64 {
    let share = u128::from(part) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

fn unsupported(what: &str, err: &FileError) -> OpsError {
    let why = format!("{err}. If the kernel was built with PSI, boot it with psi=1 to enable PSI");
    OpsError::Unsupported {
        what: what.to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn shares_are_rounded_down() {
        let root = machine(&[
            ("proc/meminfo", "MemTotal: 3000 kB\nMemFree: 1000 kB\n"),
            (
                "proc/vmstat",
                "nr_active_anon 1\nnr_inactive_anon 1\nnr_active_file 0\nnr_inactive_file 1\n",
            ),
            (
                "proc/pressure/memory",
                "some avg10=0 total=77\nfull avg10=0 total=5\n",
            ),
            (
                "sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal: 4000 kB\nNode 0 MemFree: 1000 kB\n",
            ),
        ]);
        let value = |metric| read(root.path(), &metric).unwrap();
        assert_eq!(value(SystemMetric::FreeMemRate), 333);
        assert_eq!(
            (
                value(SystemMetric::ActiveMemBp),
                value(SystemMetric::InactiveMemBp)
            ),
            (3333, 6666)
        );
        assert_eq!(value(SystemMetric::SomeMemPsiUs), 77);
        assert_eq!(value(SystemMetric::NodeMemUsedBp { nid: 0 }), 7500);
        assert_eq!(value(SystemMetric::NodeMemFreeBp { nid: 0 }), 2500);
    }

    #[test]
    fn memcg_metrics_are_shares_of_the_node() {
        let stat = "active_anon N0=1024000\ninactive_anon N0=0\nactive_file N0=0\ninactive_file N0=1024000\n";
        let root = machine(&[
            ("proc/mounts", "cgroup2 /cg cgroup2 rw 0 0\n"),
            ("cg/cgroup.controllers", "memory\n"),
            ("cg/app/cgroup.procs", ""),
            ("cg/app/memory.numa_stat", stat),
            (
                "sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal: 4000 kB\nNode 0 MemFree: 1000 kB\n",
            ),
        ]);
        let path = || "/app".to_owned();
        let value = |metric| read(root.path(), &metric).unwrap();
        assert_eq!(
            value(SystemMetric::NodeMemcgUsedBp { nid: 0, path: path() }),
            5000
        );
        assert_eq!(
            value(SystemMetric::NodeMemcgFreeBp { nid: 0, path: path() }),
            5000
        );
    }

    #[test]
    fn missing_metric_is_unsupported_with_reason() {
        let root = machine(&[
            ("proc/mounts", ""),
            ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1 kB\n"),
        ]);
        let error = |metric| read(root.path(), &metric).unwrap_err().to_string();
        assert!(error(SystemMetric::NodeMemFreeBp { nid: 3 }).contains("nodes are: 0"));
        assert!(error(SystemMetric::SomeMemPsiUs).contains("psi=1"));
        let memcg = error(SystemMetric::NodeMemcgUsedBp {
            nid: 0,
            path: "/x".to_owned(),
        });
        assert!(memcg.contains("memory controller"), "{memcg}");
    }
}
