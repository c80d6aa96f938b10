//! Memory totals of the machine or of a control group, from the kernel's own counters. The monitored
//! processes have a part of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thermo_kernel::cgroup::Group;
use thermo_kernel::memcg::Memcg;
use thermo_kernel::{clock, meminfo, proc, smaps, statm};
use thermo_recording::model::{Record, Totals};
use thermo_units::{Bytes, Nanos};

use crate::args::Targets;

/// How often the memory of excluded processes is read: the kernel walks their page tables for it.
const EXCLUDED_EVERY: Nanos = Nanos::secs(60);

/// Reads the totals.
#[derive(Debug)]
pub struct TotalsReader {
    root: PathBuf,
    scope: Scope,
}

#[derive(Debug)]
enum Scope {
    /// The machine, with the memory that excluded processes map and the time when it was read.
    Machine(Option<(Nanos, Bytes)>),
    Group(String, Memcg),
}

impl TotalsReader {
    /// A reader for the monitored machine or group; `None` when single processes are monitored, or the group
    /// has no memory controller.
    pub fn new(root: &Path, targets: &Targets) -> Option<Self> {
        let scope = match &targets.cgroup {
            _ if targets.system => Scope::Machine(None),
            Some(path) => {
                let group = Group::find_in(root, "memory", path).ok()?;
                Scope::Group(path.clone(), Memcg::new(group))
            }
            None => return None,
        };
        Some(Self {
            root: root.to_owned(),
            scope,
        })
    }

    /// The current totals, split by `monitored` processes and others; `None` when they cannot be read.
    pub fn read(&mut self, monitored: &[u32]) -> Option<Record> {
        let now = clock::monotonic();
        let (scope, rows) = match &mut self.scope {
            Scope::Machine(excluded) => {
                let is_old = |(at, _): &(Nanos, Bytes)| now >= at.saturating_add(EXCLUDED_EVERY);
                if excluded.as_ref().is_none_or(is_old) {
                    *excluded = Some((now, mapped_by_others(&self.root, monitored)));
                }
                let excluded = excluded.map_or(Bytes::ZERO, |(_, bytes)| bytes);
                let info = meminfo::read(&self.root).ok()?;
                ("machine".to_owned(), machine_rows(&info, excluded).to_vec())
            }
            Scope::Group(path, memcg) => {
                let anon = monitored
                    .iter()
                    .filter_map(|pid| anonymous(&self.root, *pid))
                    .sum();
                (path.clone(), group_rows(memcg, anon)?.to_vec())
            }
        };
        let rows = rows.into_iter().map(|(name, bytes)| (name.to_owned(), bytes.0));
        Some(Record::Totals(Totals {
            time_ns: now.0,
            scope,
            rows: rows.collect(),
        }))
    }
}

/// Every page of the machine once: the rows add up to its memory.
fn machine_rows(info: &meminfo::MemInfo, excluded: Bytes) -> [(&'static str, Bytes); 5] {
    let mapped = info.anon_pages + info.mapped;
    let excluded = excluded.min(mapped);
    let cache = (info.cached + info.buffers).saturating_sub(info.mapped);
    let kernel = info.total.saturating_sub(mapped + cache + info.free);
    [
        ("mapped, monitored", mapped - excluded),
        ("mapped, excluded", excluded),
        ("page cache, not mapped", cache),
        ("kernel", kernel),
        ("free", info.free),
    ]
}

/// Proportional set size (PSS) of all processes that are not `monitored`.
fn mapped_by_others(root: &Path, monitored: &[u32]) -> Bytes {
    let monitored: BTreeSet<u32> = monitored.iter().copied().collect();
    let others = proc::pids(root).unwrap_or_default().into_iter();
    others
        .filter(|pid| !monitored.contains(pid))
        .filter_map(|pid| smaps::rollup(root, pid).ok())
        .map(|counts| counts.pss)
        .sum()
}

/// Every page charged to the group once. `anon`: anonymous memory of the monitored processes.
fn group_rows(memcg: &Memcg, anon: Bytes) -> Option<[(&'static str, Bytes); 4]> {
    let (stat, usage) = (memcg.stat().ok()?, memcg.usage().ok()?);
    let anon = anon.min(stat.anon);
    let cache = stat.file.saturating_sub(stat.file_mapped);
    Some([
        ("mapped, monitored", anon + stat.file_mapped),
        ("mapped, new or ended", stat.anon - anon),
        ("page cache, not mapped", cache),
        ("kernel", usage.saturating_sub(stat.anon + stat.file)),
    ])
}

fn anonymous(root: &Path, pid: u32) -> Option<Bytes> {
    let statm = statm::read(root, pid).ok()?;
    Some(statm.resident.saturating_sub(statm.shared))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;
    use thermo_kernel::cgroup::Version;

    #[test]
    fn machine_rows_sum_up_to_all_memory() {
        let info = meminfo::MemInfo {
            total: Bytes::mib(1000),
            free: Bytes::mib(300),
            anon_pages: Bytes::mib(200),
            mapped: Bytes::mib(50),
            cached: Bytes::mib(350),
            buffers: Bytes::mib(10),
            ..meminfo::MemInfo::default()
        };
        let rows = machine_rows(&info, Bytes::mib(40));
        let mib = rows.map(|(_, bytes)| bytes.0 >> 20);
        assert_eq!(mib, [210, 40, 310, 140, 300]);
        assert_eq!(rows.iter().map(|(_, bytes)| *bytes).sum::<Bytes>(), info.total);
        let rows = machine_rows(&info, Bytes::mib(999));
        assert_eq!(rows[0].1, Bytes::ZERO, "PSS is read at another time than meminfo");
    }

    #[test]
    fn group_rows_sum_up_to_its_charge() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/fs/cgroup/svc");
        fs::create_dir_all(&dir).unwrap();
        fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let put = |path: PathBuf, text: &str| fs::write(path, text).unwrap();
        put(
            root.path().join("proc/mounts"),
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        );
        put(root.path().join("proc/7/statm"), "9000 3000 1000 0 0 0 0\n");
        put(dir.join("memory.current"), "40960000\n");
        put(
            dir.join("memory.stat"),
            "anon 16384000\nfile 8192000\nfile_mapped 4096000\npgmajfault 0\n",
        );
        let memcg = Memcg::new(Group {
            version: Version::V2,
            dir,
        });
        let scope = Scope::Group("svc".to_owned(), memcg);
        let mut reader = TotalsReader {
            root: root.path().to_owned(),
            scope,
        };
        let Some(Record::Totals(totals)) = reader.read(&[7]) else {
            panic!("there are totals")
        };
        let bytes: Vec<u64> = totals.rows.iter().map(|(_, bytes)| *bytes).collect();
        // The monitored process has 2000 of the 4000 anonymous pages.
        assert_eq!(bytes, [12_288_000, 8_192_000, 4_096_000, 16_384_000]);
        assert_eq!(bytes.iter().sum::<u64>(), 40_960_000);
        assert_eq!(totals.scope, "svc");
    }
}
