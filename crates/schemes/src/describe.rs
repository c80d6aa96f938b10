//! Describes a scheme in plain words, so that its author sees what it will do.

use thermo_engine::action::Priority;
use thermo_engine::scheme::{
    AccessPattern, Age, AutoAge, Bounds, CoreFilterKind, Destination, Goal, GoalTuner, OpsFilterKind, Quota,
    Rate, SystemMetric, WatermarkMetric, Weights,
};
use thermo_engine::{Action, Scheme};
use thermo_units::{Bytes, Nanos, Permille};

/// One sentence with the action, the memory, the limits and the conditions of a scheme.
#[must_use]
pub fn describe(scheme: &Scheme) -> String {
    let mut clauses = vec![format!("{} {}", verb(scheme), memory(&scheme.pattern))];
    clauses.extend(scheme.auto_age.map(|AutoAge { max_refaults }| {
        format!(
            "the minimum age is chosen each minute: as small as re-accesses within {max_refaults} of the working set \
             allow"
        )
    }));
    clauses.extend(quota(&scheme.quota, scheme.action));
    clauses.extend(
        scheme
            .apply_interval
            .map(|span| format!("applied every {}", every(span))),
    );
    let core = scheme
        .filters
        .core
        .iter()
        .map(|filter| (core_words(&filter.kind), filter.matching, filter.allow));
    let ops = scheme
        .filters
        .ops
        .iter()
        .map(|filter| (ops_words(&filter.kind), filter.matching, filter.allow));
    clauses.extend(core.chain(ops).map(|((is, is_not), matching, allow)| {
        let pages = if matching { is } else { is_not };
        if allow {
            format!("includes {pages}")
        } else {
            format!("skips {pages}")
        }
    }));
    let watermarks = &scheme.watermarks;
    if watermarks.metric == WatermarkMetric::FreeMemRate {
        clauses.push(format!(
            "only while {} to {} of memory is free, starting at {} or less (checked every {})",
            watermarks.low,
            watermarks.high,
            watermarks.mid,
            every(watermarks.interval)
        ));
    }
    match scheme.max_nr_snapshots {
        0 => {}
        1 => clauses.push("ends after 1 snapshot".to_owned()),
        n => clauses.push(format!("ends after {n} snapshots")),
    }
    format!("{}.", clauses.join("; "))
}

fn verb(scheme: &Scheme) -> String {
    let verb = match scheme.action {
        Action::Stat => "Only count",
        Action::Willneed => "Prefetch",
        Action::Cold => "Deactivate",
        Action::Pageout => "Page out",
        Action::Hugepage => "Allow huge pages for",
        Action::Nohugepage => "Forbid huge pages for",
        Action::Collapse => "Collapse into huge pages",
        Action::LruPrio => "Move up on the LRU lists",
        Action::LruDeprio => "Move down on the LRU lists",
        Action::MigrateHot => return format!("Migrate to {}, hottest first,", nodes(&scheme.destinations)),
        Action::MigrateCold => return format!("Migrate to {}, coldest first,", nodes(&scheme.destinations)),
    };
    verb.to_owned()
}

/// `node 1`, or `node 0 (3 of 4 pages) and node 2 (1 of 4 pages)`.
fn nodes(destinations: &[Destination]) -> String {
    let sum: u64 = destinations.iter().map(|node| u64::from(node.weight)).sum();
    let with_weight = |node: &Destination| format!("node {} ({} of {sum} pages)", node.nid, node.weight);
    match destinations {
        [] => "another node".to_owned(),
        [only] => format!("node {}", only.nid),
        several => several.iter().map(with_weight).collect::<Vec<_>>().join(" and "),
    }
}

fn memory(AccessPattern { sz, nr_accesses, age }: &AccessPattern) -> String {
    let mut words = format!("memory regions {}", size(*sz));
    if let Some(rate) = rate(*nr_accesses) {
        words.push_str(", ");
        words.push_str(&rate);
    }
    if let Some(span) = age_words(*age) {
        // Without a rate, the age is the time for which the rate, whatever it is, did not change.
        words.push_str(if rate(*nr_accesses).is_some() {
            " "
        } else {
            ", with an unchanged access rate "
        });
        words.push_str(&span);
    }
    words
}

fn size(Bounds { min, max }: Bounds<Bytes>) -> String {
    match (min, max) {
        (Bytes::ZERO, Bytes::MAX) => "of any size".to_owned(),
        (min, Bytes::MAX) => format!("of {} or more", bytes(min)),
        (Bytes::ZERO, max) => format!("of at most {}", bytes(max)),
        (min, max) if min == max => format!("of exactly {}", bytes(min)),
        (min, max) => format!("of {} to {}", bytes(min), bytes(max)),
    }
}

fn rate(Bounds { min, max }: Bounds<Rate>) -> Option<String> {
    const NONE: [Rate; 2] = [Rate::Permille(Permille(0)), Rate::Samples(0)];
    const ALL: [Rate; 2] = [Rate::Permille(Permille(1000)), Rate::Samples(u32::MAX)];
    let words = |rate| match rate {
        Rate::Permille(share) => (share.to_string(), "of access checks"),
        Rate::Samples(n) => (n.to_string(), "access checks per aggregation"),
    };
    let ((min_text, unit), (max_text, _)) = (words(min), words(max));
    match (NONE.contains(&min), ALL.contains(&max)) {
        (true, true) => None,
        _ if NONE.contains(&max) => Some("not accessed".to_owned()),
        _ if ALL.contains(&min) => Some("accessed in every access check".to_owned()),
        (true, false) => Some(format!("accessed in at most {max_text} {unit}")),
        (false, true) => Some(format!("accessed in at least {min_text} {unit}")),
        _ if min == max => Some(format!("accessed in exactly {min_text} {unit}")),
        _ => Some(format!("accessed in {min_text} to {max_text} {unit}")),
    }
}

fn age_words(Bounds { min, max }: Bounds<Age>) -> Option<String> {
    let words = |age| match age {
        Age::Time(span) => time(span),
        Age::Aggrs(1) => "1 aggregation".to_owned(),
        Age::Aggrs(n) => format!("{n} aggregations"),
    };
    let no_min = matches!(min, Age::Time(Nanos::ZERO) | Age::Aggrs(0));
    let no_max = matches!(max, Age::Time(Nanos::MAX) | Age::Aggrs(u32::MAX));
    match (no_min, no_max) {
        (true, true) => None,
        (false, true) => Some(format!("for at least {}", words(min))),
        (true, false) => Some(format!("for at most {}", words(max))),
        (false, false) => Some(format!("for {} to {}", words(min), words(max))),
    }
}

fn quota(quota: &Quota, action: Action) -> Vec<String> {
    let mut limits = Vec::new();
    if quota.time != Nanos::ZERO {
        limits.push(format!("{} of CPU time", time(quota.time)));
    }
    if quota.sz != Bytes::ZERO {
        limits.push(bytes(quota.sz));
    }
    let limited = !limits.is_empty() || !quota.goals.is_empty();
    let window = match quota.reset_interval {
        Nanos::MAX => "in total".to_owned(),
        span => format!("every {}", every(span)),
    };
    let mut clauses = Vec::new();
    if !limits.is_empty() {
        clauses.push(format!("at most {} {window}", limits.join(" and ")));
    }
    if !quota.goals.is_empty() {
        let how = match quota.tuner {
            GoalTuner::Consist => "tuned to bring",
            GoalTuner::Temporal => "at the full limit until it brings",
        };
        let goals: Vec<String> = quota.goals.iter().map(goal).collect();
        clauses.push(format!("{how} {} (adjusted {window})", goals.join(" and ")));
    }
    let has_weights = quota.weights != Weights::default() && limited;
    match action.priority() {
        Priority::Cold if has_weights => clauses.push("coldest first".to_owned()),
        Priority::Hot if has_weights => clauses.push("hottest first".to_owned()),
        _ => {}
    }
    clauses
}

fn goal(goal: &Goal) -> String {
    let share = |points: u64| format!("{}.{:02} %", points / 100, points % 100).replace(".00 %", " %");
    match goal {
        Goal::UserInput { target, current } => {
            format!("the value given by the user from {current} to {target}")
        }
        Goal::NodeEligibleMem { nid, target } => {
            format!(
                "the part of this memory that is on node {nid} to {}",
                share(*target)
            )
        }
        Goal::Metric { metric, target } => match metric {
            SystemMetric::SomeMemPsiUs => {
                format!(
                    "the memory stall time of the machine to {}",
                    time(Nanos::micros(*target))
                )
            }
            SystemMetric::NodeMemUsedBp { nid } => format!("used memory of node {nid} to {}", share(*target)),
            SystemMetric::NodeMemFreeBp { nid } => format!("free memory of node {nid} to {}", share(*target)),
            SystemMetric::NodeMemcgUsedBp { nid, path } => {
                format!("memory of node {nid} used by {path} to {}", share(*target))
            }
            SystemMetric::NodeMemcgFreeBp { nid, path } => {
                format!("memory of node {nid} not used by {path} to {}", share(*target))
            }
            SystemMetric::ActiveMemBp => format!("active memory to {}", share(*target)),
            SystemMetric::InactiveMemBp => format!("inactive memory to {}", share(*target)),
            SystemMetric::FreeMemRate => format!("free memory to {}", share(*target)),
        },
    }
}

/// The memory that a core filter matches, and the memory that it does not match.
fn core_words(kind: &CoreFilterKind) -> (String, String) {
    match kind {
        CoreFilterKind::Addr(range) => (
            format!("addresses {range}"),
            format!("addresses outside of {range}"),
        ),
        CoreFilterKind::Target(target) => (
            format!("target {}", target.0),
            format!("all targets but {}", target.0),
        ),
    }
}

/// The pages that an ops filter matches, and the pages that it does not match.
fn ops_words(kind: &OpsFilterKind) -> (String, String) {
    let both = |is: &str, is_not: &str| (is.to_owned(), is_not.to_owned());
    match kind {
        OpsFilterKind::Anon => both("anonymous pages", "pages that are not anonymous"),
        OpsFilterKind::Young => both(
            "pages accessed since the last access check",
            "pages not accessed since the last access check",
        ),
        OpsFilterKind::Active => both("pages on active LRU lists", "pages not on active LRU lists"),
        OpsFilterKind::Unmapped => both("pages that no process maps", "pages that a process maps"),
        OpsFilterKind::Memcg(path) => (
            format!("pages of control group {path}"),
            format!("pages not of control group {path}"),
        ),
        OpsFilterKind::HugepageSize { min, max } => {
            let sizes = size(Bounds { min: *min, max: *max });
            (
                format!("huge pages {sizes}"),
                format!("pages other than huge pages {sizes}"),
            )
        }
    }
}

/// `100 MiB` instead of `100.0 MiB` if it is exact.
fn bytes(bytes: Bytes) -> String {
    let exact = crate::exact::damo_bytes_text(bytes);
    if exact.len() <= "1023 KiB".len() {
        exact
    } else {
        bytes.to_string()
    }
}

/// `2 minutes`, `7 seconds`, `100 ms`.
fn time(span: Nanos) -> String {
    match named(span) {
        Some((1, unit)) => format!("1 {unit}"),
        Some((n, unit)) => format!("{n} {unit}s"),
        None => span.to_string(),
    }
}

/// After "every": `second`, `5 seconds`, `10 ms`.
fn every(span: Nanos) -> String {
    match named(span) {
        Some((1, unit)) => unit.to_owned(),
        _ => time(span),
    }
}

fn named(span: Nanos) -> Option<(u64, &'static str)> {
    const UNITS: [(u64, &str); 4] = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let whole = |(secs, unit)| {
        let scale = secs * 1_000_000_000;
        (span.0 != 0 && span != Nanos::MAX && span.0.is_multiple_of(scale)).then_some((span.0 / scale, unit))
    };
    UNITS.into_iter().find_map(whole).or_else(|| {
        let ms = span.0 / 1_000_000;
        (ms != 0 && ms < 1000 && span.0.is_multiple_of(1_000_000)).then_some((ms, "millisecond"))
    })
}
