//! Checks that the goals and filters of schemes can be evaluated on this machine, before anything starts. A
//! limit that turns out to be unreadable later would be no limit.

use std::path::Path;

use anyhow::{anyhow, bail};
use thermo_actions::{check_destinations, check_goal_node};
use thermo_engine::Scheme;
use thermo_engine::scheme::{Goal, OpsFilterKind};
use thermo_kernel::cgroup::Group;
use thermo_targets::metric;

/// Checks every goal and filter of `schemes`. `reads_page_tables`: the tracker can evaluate page filters.
///
/// # Errors
/// The first goal or filter that cannot be evaluated, with the index of its scheme.
pub fn check(schemes: &[Scheme], reads_page_tables: bool) -> anyhow::Result<()> {
    let root = Path::new("/");
    for (index, scheme) in schemes.iter().enumerate() {
        let error_in = |why: String| anyhow!("scheme {index} ({}): {why}", scheme.action);
        check_destinations(root, &scheme.destinations).map_err(|error| error_in(error.to_string()))?;
        for goal in &scheme.quota.goals {
            let readable = match goal {
                Goal::UserInput { .. } => Ok(()),
                Goal::Metric { metric, .. } => metric::read(root, metric).map(|_| ()),
                Goal::NodeEligibleMem { nid, .. } => check_goal_node(root, *nid),
            };
            readable.map_err(|error| error_in(format!("its goal cannot be read: {error}")))?;
        }
        for filter in &scheme.filters.ops {
            match &filter.kind {
                OpsFilterKind::Memcg(path) => {
                    let found = Group::find_in(root, "memory", path);
                    found.map_err(|error| error_in(format!("its filter names no group: {error}")))?;
                }
                OpsFilterKind::Young | OpsFilterKind::HugepageSize { .. } if !reads_page_tables => {
                    bail!(error_in(
                        "its filter needs page tables: use --tracker pte".to_owned()
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(())
}
