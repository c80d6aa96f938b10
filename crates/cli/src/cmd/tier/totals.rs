//! The result of `thermo tier`: what moved, and how full both nodes are.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use thermo_actions::Moved;
use thermo_actions::preset::Tier as Preset;
use thermo_engine::Action;
use thermo_engine::ops::Skip;
use thermo_kernel::node::NodeMemory;
use thermo_units::Bytes;

use crate::session::{DistinctBytes, SchemeTotal, skipped_json, skipped_text};

/// The actions that promote and demote.
const DIRECTIONS: [Action; 2] = [Action::MigrateHot, Action::MigrateCold];

/// The sum of the schemes that move memory the same way.
#[derive(Default)]
struct Direction {
    nr_tried: u64,
    sz_tried: Bytes,
    sz_changed: Bytes,
    qt_exceeds: u64,
    skipped: BTreeMap<Skip, Bytes>,
    distinct: DistinctBytes,
    /// Bytes verified as moved; in dry runs those that would have moved.
    moved: Bytes,
}

impl Direction {
    fn json(&self) -> Value {
        json!({
            "nr_tried": self.nr_tried,
            "sz_tried": self.sz_tried.0,
            "sz_changed": self.sz_changed.0,
            "qt_exceeds": self.qt_exceeds,
            "skipped": skipped_json(&self.skipped),
        })
    }
}

/// What a session of tiering did.
pub(super) struct Totals<'a> {
    pub(super) preset: Preset,
    /// True if nothing moved.
    pub(super) is_dry: bool,
    /// What the kernel was seen to move.
    pub(super) moved: Moved,
    /// The totals of the schemes that promote and demote.
    pub(super) schemes: &'a [SchemeTotal],
    /// The fast and the slow node at the end.
    pub(super) nodes: [NodeMemory; 2],
}

impl Totals<'_> {
    /// What the schemes with this action did together.
    fn direction(&self, action: Action) -> Direction {
        let mut sum = Direction::default();
        for total in self.schemes.iter().filter(|total| total.action == action) {
            let stats = &total.stats;
            sum.nr_tried += stats.nr_tried;
            sum.sz_tried += stats.sz_tried;
            sum.sz_changed += stats.sz_changed;
            sum.qt_exceeds += stats.qt_exceeds;
            for (why, bytes) in &total.skipped {
                *sum.skipped.entry(*why).or_default() += *bytes;
            }
            // The same memory may match both schemes, and stays where it is in a dry run.
            if let Some(distinct) = &total.distinct {
                sum.distinct.add(distinct);
            }
        }
        if self.is_dry {
            sum.moved = sum.distinct.bytes();
        } else {
            sum.moved = sum.sz_changed;
        }
        sum
    }

    fn nids(&self) -> [u32; 2] {
        [self.preset.fast, self.preset.slow]
    }

    pub(super) fn json(&self) -> Value {
        let node = |(nid, memory): (u32, NodeMemory)| {
            json!({
                "nid": nid,
                "total_bytes": memory.total.0,
                "used_bytes": memory.total.saturating_sub(memory.free).0,
            })
        };
        let [fast, slow] = [0, 1].map(|nth| node((self.nids()[nth], self.nodes[nth])));
        let [promote, demote] = DIRECTIONS.map(|action| self.direction(action));
        json!({
            "schema": 1,
            "dry_run": self.is_dry,
            "promoted_bytes": promote.moved.0,
            "demoted_bytes": demote.moved.0,
            "moved_back_bytes": self.moved.back.0,
            "fast": fast,
            "slow": slow,
            "promote": promote.json(),
            "demote": demote.json(),
        })
    }

    pub(super) fn text(&self) -> String {
        let [fast, slow] = self.nids();
        let [promote, demote] = DIRECTIONS.map(|action| self.direction(action));
        let would = match self.is_dry {
            true => "would have moved to",
            false => "moved to",
        };
        let used = |memory: &NodeMemory| {
            let used = memory.total.saturating_sub(memory.free);
            let percent = 100.0 * used.0 as f64 / memory.total.0.max(1) as f64;
            format!("{used} of {} used ({percent:.1} %)", memory.total)
        };
        format!(
            "promoted   {} {would} node {fast}\n\
             demoted    {} {would} node {slow}\n\
             back       {} of this had been moved the other way before\n\
             fast       node {fast}: {}, wanted {}\n\
             slow       node {slow}: {}\n{}{}",
            promote.moved,
            demote.moved,
            self.moved.back,
            used(&self.nodes[0]),
            self.preset.fast_used,
            used(&self.nodes[1]),
            skipped_text(&promote.skipped, "skipped    "),
            skipped_text(&demote.skipped, "skipped    "),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_have_a_row_for_each_direction() {
        let mut schemes: Vec<SchemeTotal> =
            Preset::default().schemes().iter().map(SchemeTotal::new).collect();
        // Of two schemes for each direction.
        schemes[0].stats.sz_changed = Bytes::mib(2);
        schemes[2].stats.sz_changed = Bytes::mib(1);
        schemes[1].skipped.insert(Skip::CoolDown, Bytes::mib(1));
        schemes[3].skipped.insert(Skip::CoolDown, Bytes::mib(1));
        let totals = Totals {
            preset: Preset::default(),
            is_dry: false,
            moved: Moved {
                bytes: Bytes::mib(3),
                back: Bytes::mib(1),
            },
            schemes: &schemes,
            nodes: [NodeMemory {
                total: Bytes::mib(100),
                free: Bytes::mib(5),
                ..NodeMemory::default()
            }; 2],
        };
        let text = totals.text();
        for row in [
            "promoted   3.00 MiB moved to node 0",
            "demoted    0 B moved to node 1",
            "back       1.00 MiB",
            "(95.0 %), wanted 95 %",
            "skipped    2.00 MiB: cool_down",
        ] {
            assert!(text.contains(row), "{row:?}: {text}");
        }
        let json = totals.json();
        assert_eq!(
            (json["promoted_bytes"].as_u64(), json["moved_back_bytes"].as_u64()),
            (Some(3 << 20), Some(1 << 20))
        );
        assert_eq!(json["fast"]["used_bytes"], 95 << 20);
    }
}
