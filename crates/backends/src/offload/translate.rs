//! Translates schemes and attributes for in-kernel DAMON, and reports what it cannot do.

use thermo_engine::scheme::{
    CoreFilterKind, Goal, GoalTuner, Quota, SystemMetric, WatermarkMetric, Watermarks,
};
use thermo_engine::{Action, Attrs, Scheme, TargetId};
use thermo_kernel::damon::{self, Filter, FilterKind, Setup};
use thermo_kernel::uname::Uname;
use thermo_units::Nanos;

/// The action of the schemes that report regions.
const MONITOR_ACTION: &str = "stat";

/// Why in-kernel DAMON cannot apply `scheme` to address spaces of processes; `None` if it can.
#[must_use]
pub fn obstacle(scheme: &Scheme, kernel: &Uname) -> Option<String> {
    let since = |major, minor, what: &str| {
        let release = &kernel.release;
        let message =
            || format!("this kernel is {release}; in-kernel DAMON can {what} since {major}.{minor}");
        (!kernel.at_least(major, minor)).then(message)
    };
    let of_action = match scheme.action {
        Action::Stat
        | Action::Willneed
        | Action::Cold
        | Action::Pageout
        | Action::Hugepage
        | Action::Nohugepage => None,
        Action::LruPrio | Action::LruDeprio => Some(
            "in-kernel DAMON applies this action to physical memory only, not to address spaces".to_owned(),
        ),
        // Until then, DAMON migrates physical memory only. Several destinations came with it
        // ("mm/damon/vaddr: use damos->migrate_dests in migrate_{hot,cold}").
        Action::MigrateHot | Action::MigrateCold => since(6, 17, "migrate memory of address spaces"),
        Action::Collapse => since(7, 2, "collapse"),
    };
    let filters = || {
        let text = match scheme.action.migrates() {
            // The kernel has them for these two actions since 6.17.
            true => "filters on pages are not handed to in-kernel DAMON",
            false => {
                "in-kernel DAMON does not check single pages of address spaces, so it cannot filter them"
            }
        };
        (!scheme.filters.ops.is_empty()).then(|| text.to_owned())
    };
    let allows = || {
        let any = scheme.filters.core.iter().any(|filter| filter.allow);
        if any {
            since(6, 14, "use allow filters")
        } else {
            None
        }
    };
    let snapshots = || {
        let limited = scheme.max_nr_snapshots > 0;
        // The kernel has it since 7.0.
        limited.then(|| "a limit of the number of snapshots is not handed to in-kernel DAMON".to_owned())
    };
    let temporal = || {
        let tuned = scheme.quota.tuner == GoalTuner::Temporal;
        // The kernel has it since 7.1.
        tuned.then(|| "the temporal goal tuner is not handed to in-kernel DAMON".to_owned())
    };
    let goals = || {
        scheme
            .quota
            .goals
            .iter()
            .find_map(|goal| goal_obstacle(goal, &since))
    };
    let auto_age = || {
        scheme
            .auto_age
            .map(|_| "in-kernel DAMON has no automatic age".to_owned())
    };
    of_action
        .or_else(auto_age)
        .or_else(filters)
        .or_else(allows)
        .or_else(snapshots)
        .or_else(temporal)
        .or_else(goals)
}

fn goal_obstacle(goal: &Goal, since: &dyn Fn(u32, u32, &str) -> Option<String>) -> Option<String> {
    let metric = match goal {
        Goal::UserInput { .. } => return None,
        Goal::NodeEligibleMem { .. } => {
            let message = "in-kernel DAMON has the goal node_eligible_mem_bp for physical memory only, not for \
                           address spaces";
            return Some(message.to_owned());
        }
        Goal::Metric { metric, .. } => metric,
    };
    let what = "use this goal";
    match metric {
        SystemMetric::SomeMemPsiUs => None,
        SystemMetric::NodeMemUsedBp { .. } | SystemMetric::NodeMemFreeBp { .. } => since(6, 16, what),
        SystemMetric::NodeMemcgUsedBp { .. } | SystemMetric::NodeMemcgFreeBp { .. } => since(6, 19, what),
        SystemMetric::ActiveMemBp | SystemMetric::InactiveMemBp => since(7, 0, what),
        SystemMetric::FreeMemRate => Some("in-kernel DAMON has no goal for free memory".to_owned()),
    }
}

/// The setup of a context that monitors `targets` (with their processes) with `attrs` and applies `schemes`.
/// Monitoring schemes come first, one for each target, so that the target of a region is known.
pub(super) fn setup(attrs: &Attrs, targets: &[(TargetId, u32)], schemes: &[Scheme]) -> Setup {
    let ids: Vec<TargetId> = targets.iter().map(|(id, _)| *id).collect();
    let monitoring = (0..targets.len()).map(|nth| monitoring_scheme(attrs, nth, targets.len()));
    let schemes = schemes.iter().map(|scheme| translate_scheme(scheme, attrs, &ids));
    Setup {
        sample_us: micros(attrs.sample),
        aggr_us: micros(attrs.aggr),
        update_us: micros(attrs.update),
        nr_regions: (attrs.min_nr_regions as u64, attrs.max_nr_regions as u64),
        targets: targets.iter().map(|(_, pid)| *pid).collect(),
        schemes: monitoring.chain(schemes).collect(),
    }
}

/// A longer aggregation is not waited for: the moving count of a region can be read at any sample.
const MAX_WAIT: Nanos = Nanos::secs(1);

fn monitoring_scheme(attrs: &Attrs, nth: usize, of: usize) -> damon::Scheme {
    let not_this_target = Filter {
        kind: FilterKind::Target(nth),
        matching: false,
        allow: false,
    };
    damon::Scheme {
        apply_interval_us: if attrs.aggr > MAX_WAIT {
            micros(attrs.sample)
        } else {
            0
        },
        filters: if of > 1 { vec![not_this_target] } else { Vec::new() },
        ..damon::Scheme::new(MONITOR_ACTION)
    }
}

fn translate_scheme(scheme: &Scheme, attrs: &Attrs, targets: &[TargetId]) -> damon::Scheme {
    let pattern = &scheme.pattern;
    let filter = |filter: &thermo_engine::scheme::CoreFilter| Filter {
        kind: match filter.kind {
            CoreFilterKind::Addr(range) => FilterKind::Addr(range),
            // A target that does not exist: use an index that matches none.
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
        dests: scheme
            .destinations
            .iter()
            .map(|dest| (dest.nid, dest.weight))
            .collect(),
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
        // A limit below 1 ms becomes 1 ms, not unlimited.
        ms: quota.time.0.div_ceil(1_000_000),
        bytes: quota.sz.0,
        reset_interval_ms: quota.reset_interval.0 / 1_000_000,
        weights: (quota.weights.sz, quota.weights.nr_accesses, quota.weights.age),
        goals: quota.goals.iter().map(goal).collect(),
    }
}

fn goal(goal: &Goal) -> damon::Goal {
    let base = |metric, target_value| damon::Goal {
        metric,
        target_value,
        current_value: 0,
        nid: None,
        path: None,
    };
    let of_node = |metric, target, nid: u32| damon::Goal {
        nid: Some(nid),
        ..base(metric, target)
    };
    let of_group = |metric, target, nid, path: &String| damon::Goal {
        path: Some(path.clone()),
        ..of_node(metric, target, nid)
    };
    match goal {
        Goal::UserInput { target, current } => damon::Goal {
            current_value: *current,
            ..base("user_input", *target)
        },
        Goal::NodeEligibleMem { nid, target } => of_node("node_eligible_mem_bp", *target, *nid),
        Goal::Metric { metric, target } => match metric {
            SystemMetric::SomeMemPsiUs => base("some_mem_psi_us", *target),
            SystemMetric::NodeMemUsedBp { nid } => of_node("node_mem_used_bp", *target, *nid),
            SystemMetric::NodeMemFreeBp { nid } => of_node("node_mem_free_bp", *target, *nid),
            SystemMetric::NodeMemcgUsedBp { nid, path } => {
                of_group("node_memcg_used_bp", *target, *nid, path)
            }
            SystemMetric::NodeMemcgFreeBp { nid, path } => {
                of_group("node_memcg_free_bp", *target, *nid, path)
            }
            SystemMetric::ActiveMemBp => base("active_mem_bp", *target),
            // `FreeMemRate` is refused by `goal_obstacle()`.
            SystemMetric::InactiveMemBp | SystemMetric::FreeMemRate => base("inactive_mem_bp", *target),
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
    use thermo_engine::scheme::{Age, AutoAge, Bounds, Destination, OpsFilter, OpsFilterKind, Rate};
    use thermo_units::Permille;

    fn kernel(release: &str) -> Uname {
        Uname {
            release: release.to_owned(),
            machine: "x86_64".to_owned(),
        }
    }

    #[test]
    fn setup_has_one_monitoring_scheme_per_target() {
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
            "skips memory of other targets"
        );
    }

    #[test]
    fn setup_converts_bounds_to_samples_and_aggregations() {
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
        let scheme = &setup.schemes[1];
        assert_eq!(scheme.nr_accesses, (2, 7));
        assert_eq!(scheme.age, (20, u64::from(u32::MAX)));
        assert_eq!(scheme.quota.ms, 1, "a limit stays a limit");
    }

    #[test]
    fn migration_is_handed_over_with_its_nodes() {
        let mut scheme = Scheme::new(Action::MigrateHot);
        scheme.destinations = vec![
            Destination { nid: 0, weight: 3 },
            Destination { nid: 2, weight: 1 },
        ];
        assert_eq!(obstacle(&scheme, &kernel("6.17.0")), None);
        let setup = setup(&Attrs::default(), &[(TargetId(0), 1)], &[scheme]);
        assert_eq!(
            (setup.schemes[1].action, &setup.schemes[1].dests),
            ("migrate_hot", &vec![(0, 3), (2, 1)])
        );
    }

    #[test]
    fn obstacle_names_unsupported_action_or_filter() {
        let here = kernel("6.12.1");
        for action in [Action::Stat, Action::Pageout, Action::Nohugepage] {
            assert_eq!(obstacle(&Scheme::new(action), &here), None, "{action}");
        }
        for (action, expected) in [
            (Action::LruPrio, "physical memory only"),
            (Action::Collapse, "since 7.2"),
            (Action::MigrateCold, "since 6.17"),
        ] {
            let message = obstacle(&Scheme::new(action), &here).unwrap_or_default();
            assert!(message.contains(expected), "{action}: {message}");
        }
        let mut filtered = Scheme::new(Action::Pageout);
        filtered.filters.ops.push(OpsFilter {
            kind: OpsFilterKind::Anon,
            matching: true,
            allow: false,
        });
        assert!(obstacle(&filtered, &here).is_some_and(|message| message.contains("filter")));
        let mut eligible = Scheme::new(Action::Stat);
        eligible.quota.goals = vec![Goal::NodeEligibleMem { nid: 0, target: 1 }];
        let message = obstacle(&eligible, &kernel("7.2.0")).unwrap_or_default();
        assert!(message.contains("physical memory only"), "{message}");
        let auto = Scheme {
            auto_age: Some(AutoAge::default()),
            ..Scheme::new(Action::Pageout)
        };
        assert!(obstacle(&auto, &here).is_some_and(|message| message.contains("automatic age")));
    }
}
