//! What schemes ask of the machine besides their action, looked for before anything starts: a limit that cannot be
//! kept, found out later, would be no limit.

use std::path::Path;

use anyhow::{anyhow, bail};
use thermo_engine::Scheme;
use thermo_engine::scheme::{Goal, OpsFilterKind};
use thermo_kernel::cgroup::Group;
use thermo_targets::metric;

/// Whether every goal of `schemes` can be read and every filter answered, with page tables to read or not.
///
/// # Errors
/// The first that cannot, by its scheme.
pub fn check(schemes: &[Scheme], has_tables: bool) -> anyhow::Result<()> {
    let root = Path::new("/");
    for (nth, scheme) in schemes.iter().enumerate() {
        let of = |what: String| anyhow!("scheme {nth} ({}): {what}", scheme.action);
        for goal in &scheme.quota.goals {
            if let Goal::Metric { metric, .. } = goal {
                metric::read(root, metric)
                    .map_err(|error| of(format!("its goal cannot be read: {error}")))?;
            }
        }
        for filter in &scheme.filters.ops {
            match &filter.kind {
                OpsFilterKind::Memcg(path) => {
                    let found = Group::find_in(root, "memory", path);
                    found.map_err(|error| of(format!("its filter names no group: {error}")))?;
                }
                OpsFilterKind::Young | OpsFilterKind::HugepageSize { .. } if !has_tables => {
                    bail!(of(
                        "its filter is answered from page tables: use --tracker pte".to_owned()
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(())
}
