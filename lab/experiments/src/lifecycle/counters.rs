//! The kernel's counters, of the machine and of the cgroup.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Counters by name.
pub(super) type Counters = BTreeMap<String, f64>;

/// Prefixes of the `/proc/vmstat` counters in the table: reclaim, compaction, faults and swap.
const OF_MACHINE: [&str; 17] = [
    "allocstall",
    "compact",
    "kswapd",
    "pageoutrun",
    "pgactivate",
    "pgalloc",
    "pgdeactivate",
    "pgfault",
    "pgfree",
    "pgmajfault",
    "pgrefill",
    "pgscan",
    "pgsteal",
    "pswp",
    "workingset",
    "slabs_scanned",
    "pginodesteal",
];

/// Reads all counters. The names of the cgroup's counters begin with `memcg.`.
pub(super) fn read(group: &Path) -> Counters {
    let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let mut counters: Counters = numbers(&vmstat)
        .filter(|(name, _)| OF_MACHINE.iter().any(|one| name.starts_with(one)))
        .map(|(name, number)| (name.to_owned(), number))
        .collect();
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    for (name, number) in numbers(&stat) {
        let name = name.strip_prefix("total_").unwrap_or(name);
        if ["pgmajfault", "pgfault", "pgpgin", "pgpgout"].contains(&name) || name.starts_with("workingset") {
            counters.insert(format!("memcg.{name}"), number);
        }
    }
    // Version 1 counts hits of the limit in memory.failcnt, version 2 in memory.events.
    let hits = fs::read_to_string(group.join("memory.failcnt"))
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let events = fs::read_to_string(group.join("memory.events")).unwrap_or_default();
    let of_events = numbers(&events).find_map(|(name, number)| (name == "max").then_some(number));
    counters.extend(
        hits.or(of_events)
            .map(|number| ("memcg.limit_hits".to_owned(), number)),
    );
    let total = |prefix: &str| {
        counters
            .iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .map(|(_, n)| n)
            .sum()
    };
    let allocstall: f64 = total("allocstall_");
    counters.insert("allocstall_total".to_owned(), allocstall);
    counters
}

fn numbers(text: &str) -> impl Iterator<Item = (&str, f64)> {
    text.lines().filter_map(|line| {
        let (name, number) = line.split_once(' ')?;
        Some((name, number.trim().parse().ok()?))
    })
}

/// Differences between two readings.
pub(super) fn between(before: &Counters, after: &Counters) -> Counters {
    let difference = |(name, after): (&String, &f64)| Some((name.clone(), after - before.get(name)?));
    after.iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn counters_of_both_cgroup_versions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name, text| fs::write(folder.path().join(name), text).unwrap();
        put("memory.stat", "pgmajfault 1\ntotal_pgmajfault 7\nrss 9\n");
        put("memory.failcnt", "5\n");
        let v1 = read(folder.path());
        assert_eq!((v1["memcg.pgmajfault"], v1["memcg.limit_hits"]), (7.0, 5.0));
        fs::remove_file(folder.path().join("memory.failcnt")).unwrap();
        put("memory.events", "low 0\nmax 9\noom 1\n");
        put("memory.stat", "pgmajfault 9\n");
        let v2 = read(folder.path());
        assert_eq!((v2["memcg.pgmajfault"], v2["memcg.limit_hits"]), (9.0, 9.0));
        assert_eq!(between(&v1, &v2)["memcg.limit_hits"], 4.0);
    }
}
