//! From staged values to schemes.
//!
//! The kernel takes much that means nothing (bounds the wrong way round, marks out of order) and then never acts;
//! so does this, by saying "never" in the engine's words. What the kernel cannot make a scheme of, it calls ENOMEM.

use std::path::Path;

use rustix::io::Errno;
use thermo_engine::scheme::{
    AccessPattern, Age, Bounds, CoreFilter, CoreFilterKind, Filters, Goal, OpsFilter, OpsFilterKind, Quota,
    Rate, SystemMetric, WatermarkMetric, Watermarks, Weights,
};
use thermo_engine::{Action, Scheme, TargetId};
use thermo_kernel::cgroup::Group;
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE, Permille};

use crate::staged::Staged;

/// All schemes of a context.
pub fn all(root: &Path, schemes: Staged<'_>) -> Result<Vec<Scheme>, Errno> {
    schemes
        .numbered()
        .into_iter()
        .map(|scheme| one(root, scheme))
        .collect()
}

/// The goals of each scheme, in their order.
pub fn goals_of_all(schemes: Staged<'_>) -> Vec<Vec<Goal>> {
    let goals = |scheme: Staged<'_>| goals(scheme.dir("quotas/goals"));
    schemes.numbered().into_iter().map(goals).collect()
}

fn one(root: &Path, staged: Staged<'_>) -> Result<Scheme, Errno> {
    let interval = staged.number("apply_interval_us");
    let action: Action = staged.word("action").parse().map_err(|_| Errno::INVAL)?;
    Ok(Scheme {
        pattern: staged_pattern(staged.dir("access_pattern")),
        apply_interval: (interval > 0).then(|| Nanos::micros(interval)),
        quota: quota(staged.dir("quotas")),
        watermarks: watermarks(staged.dir("watermarks")),
        filters: filters(root, staged)?,
        ..Scheme::new(action)
    })
}

fn staged_pattern(staged: Staged<'_>) -> AccessPattern {
    let bounds = |name| {
        let dir = staged.dir(name);
        (dir.number("min"), dir.number("max"))
    };
    pattern(bounds("sz"), bounds("nr_accesses"), bounds("age"))
}

/// The pattern of these bounds, each from and to.
pub fn pattern(sz: (u64, u64), rate: (u64, u64), age: (u64, u64)) -> AccessPattern {
    let possible = [sz, rate, age].iter().all(|(min, max)| min <= max);
    if !possible {
        return never();
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

/// No region is as large as all addresses.
fn never() -> AccessPattern {
    AccessPattern {
        sz: Bounds {
            min: Bytes::MAX,
            max: Bytes::MAX,
        },
        ..AccessPattern::default()
    }
}

/// A weight of a quota.
pub fn weight(number: u64) -> u32 {
    clamped(number)
}

fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A time in milliseconds.
pub fn millis(number: u64) -> Nanos {
    Nanos(number.saturating_mul(1_000_000))
}

fn quota(staged: Staged<'_>) -> Quota {
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

/// Goals without a value to reach are left out.
fn goals(staged: Staged<'_>) -> Vec<Goal> {
    let goals = staged.numbered().into_iter().map(goal);
    goals.filter(|goal| goal.target() > 0).collect()
}

fn goal(staged: Staged<'_>) -> Goal {
    let target = staged.number("target_value");
    // There is no node of a negative number, and none of this one: the goal is left out with a warning.
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

fn watermarks(staged: Staged<'_>) -> Watermarks {
    if staged.word("metric") == "none" {
        return Watermarks::default();
    }
    let interval = Nanos::micros(staged.number("interval_us"));
    let marks = ["high", "mid", "low"].map(|name| staged.number(name));
    free_memory_marks(interval, marks)
}

/// Marks on free memory in thousandths: high, mid and low.
pub fn free_memory_marks(interval: Nanos, marks: [u64; 3]) -> Watermarks {
    let [high, mid, low] = marks.map(|mark| clamped(mark).min(1000));
    // Between marks out of order no amount lies; at 0 free memory nothing runs any more.
    let (high, low) = if low > high { (0, 0) } else { (high, low) };
    Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval: interval.max(Nanos::micros(1)),
        high: Permille(high),
        mid: Permille(mid.clamp(low, high)),
        low: Permille(low),
    }
}

/// Of the three directories; each filter belongs to the group of its type, wherever it lies.
fn filters(root: &Path, staged: Staged<'_>) -> Result<Filters, Errno> {
    let mut filters = Filters::default();
    for dir in ["core_filters", "ops_filters", "filters"] {
        for filter in staged.dir(dir).numbered() {
            let (matching, allow) = (filter.yes("matching"), filter.yes("allow"));
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

fn core_kind(staged: Staged<'_>) -> Result<CoreFilterKind, Errno> {
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
        nowhere()
    } else {
        range
    }))
}

/// The last page of all addresses, where nothing is ever mapped.
const fn nowhere() -> AddrRange {
    AddrRange::new(
        u64::MAX / PAGE_SIZE * PAGE_SIZE - PAGE_SIZE,
        u64::MAX / PAGE_SIZE * PAGE_SIZE,
    )
}

fn ops_kind(root: &Path, staged: Staged<'_>) -> Result<OpsFilterKind, Errno> {
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
