//! Schemes and attributes in the kernel's words; what it cannot do is refused by name.

use thermo_engine::scheme::{
    CoreFilterKind, Goal, GoalTuner, Quota, SystemMetric, WatermarkMetric, Watermarks,
};
use thermo_engine::{Action, Attrs, Scheme, TargetId};
use thermo_kernel::damon::{self, Filter, FilterKind, Setup};
use thermo_kernel::uname::Uname;
use thermo_units::Nanos;

/// What every region is told by.
const LOOK: &str = "stat";

/// Why the kernel cannot carry `scheme` out on address spaces of processes; none when it can.
#[must_use]
pub fn obstacle(scheme: &Scheme, kernel: &Uname) -> Option<String> {
    let since = |major, minor, what: &str| {
        let release = &kernel.release;
        let told = || format!("the kernel is {release}; its DAMON can {what} since {major}.{minor}");
        (!kernel.at_least(major, minor)).then(told)
    };
    let of_action = match scheme.action {
        Action::Stat
        | Action::Willneed
        | Action::Cold
        | Action::Pageout
        | Action::Hugepage
        | Action::Nohugepage => None,
        Action::LruPrio | Action::LruDeprio => {
            Some("in-kernel DAMON does it to physical memory only, not to address spaces".to_owned())
        }
        Action::MigrateHot | Action::MigrateCold => Some("a node to migrate to cannot be said".to_owned()),
        Action::Collapse => since(7, 2, "collapse"),
    };
    let filters = || {
        let ops = !scheme.filters.ops.is_empty();
        ops.then(|| {
            "in-kernel DAMON looks at no single pages of address spaces, so it cannot filter them".to_owned()
        })
    };
    let allows = || {
        let any = scheme.filters.core.iter().any(|filter| filter.allow);
        if any {
            since(6, 14, "filter by what to take")
        } else {
            None
        }
    };
    let snapshots = || {
        let limited = scheme.max_nr_snapshots > 0;
        limited.then(|| "in-kernel DAMON does not end a scheme after so many snapshots".to_owned())
    };
    let temporal = || {
        let tuned = scheme.quota.tuner == GoalTuner::Temporal;
        tuned.then(|| "in-kernel DAMON has no temporal tuner of goals".to_owned())
    };
    let goals = || {
        scheme
            .quota
            .goals
            .iter()
            .find_map(|goal| goal_obstacle(goal, &since))
    };
    of_action
        .or_else(filters)
        .or_else(allows)
        .or_else(snapshots)
        .or_else(temporal)
        .or_else(goals)
}

fn goal_obstacle(goal: &Goal, since: &dyn Fn(u32, u32, &str) -> Option<String>) -> Option<String> {
    let Goal::Metric { metric, .. } = goal else {
        return None;
    };
    let what = "go by this goal";
    match metric {
        SystemMetric::SomeMemPsiUs => None,
        SystemMetric::NodeMemUsedBp { .. } | SystemMetric::NodeMemFreeBp { .. } => since(6, 16, what),
        SystemMetric::NodeMemcgUsedBp { .. } | SystemMetric::NodeMemcgFreeBp { .. } => since(6, 19, what),
        SystemMetric::ActiveMemBp | SystemMetric::InactiveMemBp => since(7, 0, what),
        SystemMetric::FreeMemRate => Some("free memory is no goal of in-kernel DAMON".to_owned()),
    }
}

/// A context that looks at `targets` (and their processes) with `attrs` and carries out `schemes`. Before these come
/// schemes that only look: one a target, so that it is plain whose a region is.
pub(super) fn setup(attrs: &Attrs, targets: &[(TargetId, u32)], schemes: &[Scheme]) -> Setup {
    let ids: Vec<TargetId> = targets.iter().map(|(id, _)| *id).collect();
    let looks = (0..targets.len()).map(|nth| look(attrs, nth, targets.len()));
    let schemes = schemes.iter().map(|scheme| translated(scheme, attrs, &ids));
    Setup {
        sample_us: micros(attrs.sample),
        aggr_us: micros(attrs.aggr),
        update_us: micros(attrs.update),
        nr_regions: (attrs.min_nr_regions as u64, attrs.max_nr_regions as u64),
        targets: targets.iter().map(|(_, pid)| *pid).collect(),
        schemes: looks.chain(schemes).collect(),
    }
}

/// Long aggregations are not waited for: the moving count tells of one that ends at any sample.
const LONGEST_WAIT: Nanos = Nanos::secs(1);

fn look(attrs: &Attrs, nth: usize, of: usize) -> damon::Scheme {
    let others = Filter {
        kind: FilterKind::Target(nth),
        matching: false,
        allow: false,
    };
    damon::Scheme {
        apply_interval_us: if attrs.aggr > LONGEST_WAIT {
            micros(attrs.sample)
        } else {
            0
        },
        filters: if of > 1 { vec![others] } else { Vec::new() },
        ..damon::Scheme::new(LOOK)
    }
}

fn translated(scheme: &Scheme, attrs: &Attrs, targets: &[TargetId]) -> damon::Scheme {
    let pattern = &scheme.pattern;
    let filter = |filter: &thermo_engine::scheme::CoreFilter| Filter {
        kind: match filter.kind {
            CoreFilterKind::Addr(range) => FilterKind::Addr(range),
            // Of a target that is not there: no place of the list is it.
            CoreFilterKind::Target(id) => FilterKind::Target(
                targets
                    .iter()
                    .position(|target| *target == id)
                    .unwrap_or(targets.len()),
            ),
        },
        matching: filter.matching,
        allow: filter.allow,
    };
    damon::Scheme {
        action: scheme.action.name(),
        apply_interval_us: scheme.apply_interval.map_or(0, micros),
        sz: (pattern.sz.min.0, pattern.sz.max.0),
        nr_accesses: (
            u64::from(pattern.nr_accesses.min.samples(attrs)),
            u64::from(pattern.nr_accesses.max.samples(attrs)),
        ),
        age: (
            u64::from(pattern.age.min.aggrs(attrs)),
            u64::from(pattern.age.max.aggrs(attrs)),
        ),
        quota: quota(&scheme.quota),
        watermarks: watermarks(&scheme.watermarks),
        filters: scheme.filters.core.iter().map(filter).collect(),
    }
}

fn quota(quota: &Quota) -> damon::Quota {
    if quota.time == Nanos::ZERO && quota.sz.0 == 0 && quota.goals.is_empty() {
        return damon::Quota::default();
    }
    damon::Quota {
        // A limit below what the kernel can say is its least, not none.
        ms: quota.time.0.div_ceil(1_000_000),
        bytes: quota.sz.0,
        reset_interval_ms: quota.reset_interval.0 / 1_000_000,
        weights: (quota.weights.sz, quota.weights.nr_accesses, quota.weights.age),
        goals: quota.goals.iter().map(goal).collect(),
    }
}

fn goal(goal: &Goal) -> damon::Goal {
    let plain = |metric, target_value| damon::Goal {
        metric,
        target_value,
        current_value: 0,
        nid: None,
        path: None,
    };
    let of_node = |metric, target, nid: u32| damon::Goal {
        nid: Some(nid),
        ..plain(metric, target)
    };
    let of_group = |metric, target, nid, path: &String| damon::Goal {
        path: Some(path.clone()),
        ..of_node(metric, target, nid)
    };
    match goal {
        Goal::UserInput { target, current } => damon::Goal {
            current_value: *current,
            ..plain("user_input", *target)
        },
        Goal::Metric { metric, target } => match metric {
            SystemMetric::SomeMemPsiUs => plain("some_mem_psi_us", *target),
            SystemMetric::NodeMemUsedBp { nid } => of_node("node_mem_used_bp", *target, *nid),
            SystemMetric::NodeMemFreeBp { nid } => of_node("node_mem_free_bp", *target, *nid),
            SystemMetric::NodeMemcgUsedBp { nid, path } => {
                of_group("node_memcg_used_bp", *target, *nid, path)
            }
            SystemMetric::NodeMemcgFreeBp { nid, path } => {
                of_group("node_memcg_free_bp", *target, *nid, path)
            }
            SystemMetric::ActiveMemBp => plain("active_mem_bp", *target),
            // The last is refused before.
            SystemMetric::InactiveMemBp | SystemMetric::FreeMemRate => plain("inactive_mem_bp", *target),
        },
    }
}

fn watermarks(watermarks: &Watermarks) -> Option<damon::Watermarks> {
    (watermarks.metric == WatermarkMetric::FreeMemRate).then(|| damon::Watermarks {
        interval_us: micros(watermarks.interval),
        high: watermarks.high.0,
        mid: watermarks.mid.0,
        low: watermarks.low.0,
    })
}

const fn micros(span: Nanos) -> u64 {
    span.0 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_engine::scheme::{Age, Bounds, OpsFilter, OpsFilterKind, Rate};
    use thermo_units::Permille;

    fn kernel(release: &str) -> Uname {
        Uname {
            release: release.to_owned(),
            machine: "x86_64".to_owned(),
        }
    }

    #[test]
    fn one_target_needs_one_look_and_several_one_each() {
        let attrs = Attrs::default();
        let one = setup(&attrs, &[(TargetId(4), 77)], &[Scheme::new(Action::Pageout)]);
        assert_eq!(
            (one.sample_us, one.aggr_us, one.nr_regions),
            (5000, 100_000, (10, 1000))
        );
        let actions: Vec<&str> = one.schemes.iter().map(|scheme| scheme.action).collect();
        assert_eq!(actions, ["stat", "pageout"]);
        assert!(one.schemes[0].filters.is_empty());
        let two = setup(&attrs, &[(TargetId(4), 77), (TargetId(6), 78)], &[]);
        let filters: Vec<&Filter> = two.schemes.iter().flat_map(|scheme| &scheme.filters).collect();
        assert_eq!(filters.len(), 2);
        assert_eq!(filters[1].kind, FilterKind::Target(1));
        assert!(
            !filters[1].matching && !filters[1].allow,
            "leaves alone what is not of it"
        );
    }

    #[test]
    fn bounds_become_samples_and_aggregations() {
        let mut scheme = Scheme::new(Action::Cold);
        scheme.pattern.nr_accesses = Bounds {
            min: Rate::Permille(Permille(100)),
            max: Rate::Samples(7),
        };
        scheme.pattern.age = Bounds {
            min: Age::Time(Nanos::secs(2)),
            max: Age::Time(Nanos::MAX),
        };
        scheme.quota.time = Nanos::micros(100);
        let setup = setup(&Attrs::default(), &[(TargetId(0), 1)], &[scheme]);
        let told = &setup.schemes[1];
        assert_eq!(told.nr_accesses, (2, 7));
        assert_eq!(told.age, (20, u64::from(u32::MAX)));
        assert_eq!(told.quota.ms, 1, "a limit stays one");
    }

    #[test]
    fn what_the_kernel_cannot_do_is_named() {
        let here = kernel("6.12.1");
        for action in [Action::Stat, Action::Pageout, Action::Nohugepage] {
            assert_eq!(obstacle(&Scheme::new(action), &here), None, "{action}");
        }
        for (action, says) in [
            (Action::LruPrio, "physical memory only"),
            (Action::Collapse, "since 7.2"),
            (Action::MigrateCold, "node"),
        ] {
            let told = obstacle(&Scheme::new(action), &here).unwrap_or_default();
            assert!(told.contains(says), "{action}: {told}");
        }
        let mut filtered = Scheme::new(Action::Pageout);
        filtered.filters.ops.push(OpsFilter {
            kind: OpsFilterKind::Anon,
            matching: true,
            allow: false,
        });
        assert!(obstacle(&filtered, &here).is_some_and(|told| told.contains("filter")));
    }
}
