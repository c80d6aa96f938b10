//! Builds schemes from staged values.
//!
//! The kernel accepts some contradictory values (a minimum above the maximum, watermarks out of order) and
//! then never acts. Here they become a scheme that never matches. Values from which the kernel cannot build a
//! scheme are ENOMEM.

use std::path::Path;

use rustix::io::Errno;
use thermo_engine::scheme::{
    AccessPattern, Age, Bounds, CoreFilter, CoreFilterKind, Destination, Filters, Goal, OpsFilter,
    OpsFilterKind, Quota, Rate, SystemMetric, WatermarkMetric, Watermarks, Weights,
};
use thermo_engine::{Action, Scheme, TargetId};
use thermo_kernel::cgroup::Group;
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE, Permille};

use crate::staged::StagedDir;

/// All schemes of a context.
pub fn all(root: &Path, schemes: StagedDir<'_>) -> Result<Vec<Scheme>, Errno> {
    schemes
        .numbered()
        .into_iter()
        .map(|staged| scheme(root, staged))
        .collect()
}

/// The quota goals of each scheme, in the order of schemes.
pub fn all_goals(schemes: StagedDir<'_>) -> Vec<Vec<Goal>> {
    let goals = |scheme: StagedDir<'_>| goals(scheme.dir("quotas/goals"));
    schemes.numbered().into_iter().map(goals).collect()
}

fn scheme(root: &Path, staged: StagedDir<'_>) -> Result<Scheme, Errno> {
    let interval = staged.number("apply_interval_us");
    let (action, destinations) = action(staged)?;
    Ok(Scheme {
        destinations,
        pattern: staged_pattern(staged.dir("access_pattern")),
        apply_interval: (interval > 0).then(|| Nanos::micros(interval)),
        quota: quota(staged.dir("quotas")),
        watermarks: watermarks(staged.dir("watermarks")),
        filters: filters(root, staged)?,
        ..Scheme::new(action)
    })
}

/// The action, and the nodes it migrates to. Without a node the kernel migrates nothing and counts the memory
/// as tried, which is what `stat` does.
fn action(staged: StagedDir<'_>) -> Result<(Action, Vec<Destination>), Errno> {
    let action: Action = staged.word("action").parse().map_err(|_| Errno::INVAL)?;
    if !action.migrates() {
        return Ok((action, Vec::new()));
    }
    let destinations = destinations(staged);
    Ok(match destinations.is_empty() {
        true => (Action::Stat, Vec::new()),
        false => (action, destinations),
    })
}

/// The nodes of `dests`, or without any that of `target_nid`. As in the kernel, a node that is given twice
/// has the sum of its weights, and a negative number is no node.
fn destinations(staged: StagedDir<'_>) -> Vec<Destination> {
    let dests = staged.dir("dests").numbered();
    if dests.is_empty() {
        let nid = u32::try_from(staged.signed("target_nid"));
        return nid.map(Destination::only).into_iter().collect();
    }
    let mut nodes: Vec<Destination> = Vec::new();
    for dest in dests {
        let (nid, weight) = (clamped(dest.number("id")), clamped(dest.number("weight")));
        match nodes.iter_mut().find(|node| node.nid == nid) {
            Some(node) => node.weight = node.weight.saturating_add(weight),
            None => nodes.push(Destination { nid, weight }),
        }
    }
    nodes.retain(|node| node.weight > 0);
    nodes
}

fn staged_pattern(staged: StagedDir<'_>) -> AccessPattern {
    let bounds = |name| {
        let dir = staged.dir(name);
        (dir.number("min"), dir.number("max"))
    };
    pattern(bounds("sz"), bounds("nr_accesses"), bounds("age"))
}

/// An access pattern from pairs of minimum and maximum.
pub fn pattern(sz: (u64, u64), rate: (u64, u64), age: (u64, u64)) -> AccessPattern {
    let can_match = [sz, rate, age].iter().all(|(min, max)| min <= max);
    if !can_match {
        return match_nothing();
    }
    AccessPattern {
        sz: Bounds {
            min: Bytes(sz.0),
            max: Bytes(sz.1),
        },
        nr_accesses: Bounds {
            min: Rate::Samples(clamped(rate.0)),
            max: Rate::Samples(clamped(rate.1)),
        },
        age: Bounds {
            min: Age::Aggrs(clamped(age.0)),
            max: Age::Aggrs(clamped(age.1)),
        },
    }
}

/// A pattern that matches no region: no region is as large as the address space.
fn match_nothing() -> AccessPattern {
    AccessPattern {
        sz: Bounds {
            min: Bytes::MAX,
            max: Bytes::MAX,
        },
        ..AccessPattern::default()
    }
}

/// A quota weight. Larger values are clamped.
pub fn weight(number: u64) -> u32 {
    clamped(number)
}

fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A duration in milliseconds. Larger values are clamped.
pub fn millis(number: u64) -> Nanos {
    Nanos(number.saturating_mul(1_000_000))
}

fn quota(staged: StagedDir<'_>) -> Quota {
    let weights = staged.dir("weights");
    let weight = |name| weight(weights.number(name));
    Quota {
        time: millis(staged.number("ms")),
        sz: Bytes(staged.number("bytes")),
        reset_interval: millis(staged.number("reset_interval_ms")),
        weights: Weights {
            sz: weight("sz_permil"),
            nr_accesses: weight("nr_accesses_permil"),
            age: weight("age_permil"),
        },
        goals: goals(staged.dir("goals")),
        ..Quota::default()
    }
}

/// Quota goals. A goal with target value 0 is ignored.
fn goals(staged: StagedDir<'_>) -> Vec<Goal> {
    let goals = staged.numbered().into_iter().map(goal);
    goals.filter(|goal| goal.target() > 0).collect()
}

fn goal(staged: StagedDir<'_>) -> Goal {
    let target = staged.number("target_value");
    // A negative number becomes a node that does not exist. Such a goal is ignored with a warning.
    let nid = u32::try_from(staged.signed("nid")).unwrap_or(u32::MAX);
    let metric = match staged.word("target_metric") {
        "some_mem_psi_us" => SystemMetric::SomeMemPsiUs,
        "node_mem_used_bp" => SystemMetric::NodeMemUsedBp { nid },
        "node_mem_free_bp" => SystemMetric::NodeMemFreeBp { nid },
        _ => {
            let current = staged.number("current_value");
            return Goal::UserInput { target, current };
        }
    };
    Goal::Metric { metric, target }
}

fn watermarks(staged: StagedDir<'_>) -> Watermarks {
    if staged.word("metric") == "none" {
        return Watermarks::default();
    }
    let interval = Nanos::micros(staged.number("interval_us"));
    let levels = ["high", "mid", "low"].map(|name| staged.number(name));
    free_memory_watermarks(interval, levels)
}

/// Watermarks on the free memory rate, in permille: high, mid and low.
pub fn free_memory_watermarks(interval: Nanos, levels: [u64; 3]) -> Watermarks {
    let [high, mid, low] = levels.map(|level| clamped(level).min(1000));
    // With watermarks out of order the scheme must never be active. 0 permille of free memory does not occur.
    let (high, low) = if low > high { (0, 0) } else { (high, low) };
    Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval: interval.max(Nanos::micros(1)),
        high: Permille(high),
        mid: Permille(mid.clamp(low, high)),
        low: Permille(low),
    }
}

/// Filters of the three filter directories. The type of a filter decides its group, not its directory.
fn filters(root: &Path, staged: StagedDir<'_>) -> Result<Filters, Errno> {
    let mut filters = Filters::default();
    for dir in ["core_filters", "ops_filters", "filters"] {
        for filter in staged.dir(dir).numbered() {
            let (matching, allow) = (filter.flag("matching"), filter.flag("allow"));
            match filter.word("type") {
                "addr" | "target" => filters.core.push(CoreFilter {
                    kind: core_kind(filter)?,
                    matching,
                    allow,
                }),
                _ => filters.ops.push(OpsFilter {
                    kind: ops_kind(root, filter)?,
                    matching,
                    allow,
                }),
            }
        }
    }
    Ok(filters)
}

fn core_kind(staged: StagedDir<'_>) -> Result<CoreFilterKind, Errno> {
    if staged.word("type") == "target" {
        let nth = u32::try_from(staged.signed("damon_target_idx")).unwrap_or(u32::MAX);
        return Ok(CoreFilterKind::Target(TargetId(nth)));
    }
    let (start, end) = (staged.number("addr_start"), staged.number("addr_end"));
    if end < start {
        return Err(Errno::NOMEM);
    }
    let range = AddrRange {
        start: Addr(start),
        end: Addr(end),
    };
    Ok(CoreFilterKind::Addr(if range.is_empty() {
        unused_range()
    } else {
        range
    }))
}

/// The last page of the address space, where nothing is ever mapped.
const fn unused_range() -> AddrRange {
    AddrRange::new(
        u64::MAX / PAGE_SIZE * PAGE_SIZE - PAGE_SIZE,
        u64::MAX / PAGE_SIZE * PAGE_SIZE,
    )
}

fn ops_kind(root: &Path, staged: StagedDir<'_>) -> Result<OpsFilterKind, Errno> {
    Ok(match staged.word("type") {
        "active" => OpsFilterKind::Active,
        "young" => OpsFilterKind::Young,
        "unmapped" => OpsFilterKind::Unmapped,
        "memcg" => {
            let path = staged.text("memcg_path");
            Group::find(root, path).map_err(|_| Errno::NOMEM)?;
            OpsFilterKind::Memcg(path.to_owned())
        }
        "hugepage_size" => {
            let (min, max) = (Bytes(staged.number("min")), Bytes(staged.number("max")));
            if min > max {
                return Err(Errno::NOMEM);
            }
            OpsFilterKind::HugepageSize { min, max }
        }
        _ => OpsFilterKind::Anon,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::table::Layout;
    use crate::tree::Tree;

    const SCHEME: &str = "admin/kdamonds/0/contexts/0/schemes/0";

    /// The action and the nodes of a scheme after these writes to its files.
    fn staged(writes: &[(&str, &str)]) -> (Action, Vec<(u32, u32)>) {
        let mut tree = Tree::new(Layout::Sysfs.root());
        let mut write = |path: &str, text: &str| {
            let ino = tree.find(path).unwrap();
            tree.store(ino, text.as_bytes()).unwrap();
        };
        write("admin/kdamonds/nr_kdamonds", "1");
        write("admin/kdamonds/0/contexts/nr_contexts", "1");
        write("admin/kdamonds/0/contexts/0/schemes/nr_schemes", "1");
        for (file, text) in writes {
            write(&format!("{SCHEME}/{file}"), text);
        }
        let schemes = tree.find("admin/kdamonds/0/contexts/0/schemes").unwrap();
        let scheme = all(Path::new("/"), StagedDir::at(&tree, schemes))
            .unwrap()
            .remove(0);
        let nodes = scheme.destinations.iter().map(|node| (node.nid, node.weight));
        (scheme.action, nodes.collect())
    }

    #[test]
    fn target_nid_is_the_node_to_migrate_to() {
        let to = |nid| staged(&[("action", "migrate_cold"), ("target_nid", nid)]);
        assert_eq!(to("2"), (Action::MigrateCold, vec![(2, 1)]));
        assert_eq!(to("-1"), (Action::Stat, Vec::new()), "counts, and moves nothing");
        assert_eq!(
            staged(&[("action", "migrate_hot")]).0,
            Action::Stat,
            "the default is -1"
        );
        let other = staged(&[("action", "cold"), ("target_nid", "2")]);
        assert_eq!(other, (Action::Cold, Vec::new()));
    }

    #[test]
    fn dests_replace_target_nid() {
        let to = |weights: [&str; 3]| {
            staged(&[
                ("action", "migrate_hot"),
                ("target_nid", "5"),
                ("dests/nr_dests", "3"),
                ("dests/0/id", "1"),
                ("dests/0/weight", weights[0]),
                ("dests/1/weight", weights[1]),
                ("dests/2/id", "1"),
                ("dests/2/weight", weights[2]),
            ])
        };
        assert_eq!(to(["3", "1", "0"]), (Action::MigrateHot, vec![(1, 3), (0, 1)]));
        assert_eq!(to(["3", "1", "2"]), (Action::MigrateHot, vec![(1, 5), (0, 1)]));
        assert_eq!(to(["0", "7", "0"]), (Action::MigrateHot, vec![(0, 7)]));
        assert_eq!(to(["0", "0", "0"]), (Action::Stat, Vec::new()));
    }
}
