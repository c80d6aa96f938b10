//! The result of `thermo tier`: what moved, and how full both nodes are.

use serde_json::{Value, json};
use thermo_actions::Moved;
use thermo_actions::preset::Tier as Preset;
use thermo_kernel::node::NodeMemory;
use thermo_units::Bytes;

use crate::session::SchemeTotal;

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
    /// Bytes verified as moved by the scheme `nth`; in dry runs those that would have moved.
    fn moved_by(&self, nth: usize) -> Bytes {
        let Some(total) = self.schemes.get(nth) else {
            return Bytes::ZERO;
        };
        match &total.distinct {
            Some(distinct) if self.is_dry => distinct.bytes(),
            _ => total.stats.sz_changed,
        }
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
        let scheme = |nth: usize| {
            let Some(total) = self.schemes.get(nth) else {
                return Value::Null;
            };
            let stats = &total.stats;
            json!({
                "nr_tried": stats.nr_tried,
                "sz_tried": stats.sz_tried.0,
                "sz_changed": stats.sz_changed.0,
                "qt_exceeds": stats.qt_exceeds,
                "skipped": total.skipped_json(),
            })
        };
        json!({
            "schema": 1,
            "dry_run": self.is_dry,
            "promoted_bytes": self.moved_by(0).0,
            "demoted_bytes": self.moved_by(1).0,
            "moved_back_bytes": self.moved.back.0,
            "fast": fast,
            "slow": slow,
            "promote": scheme(0),
            "demote": scheme(1),
        })
    }

    pub(super) fn text(&self) -> String {
        let [fast, slow] = self.nids();
        let (would, promoted, demoted) = match self.is_dry {
            true => ("would have moved to", self.moved_by(0), self.moved_by(1)),
            false => ("moved to", self.moved_by(0), self.moved_by(1)),
        };
        let used = |memory: &NodeMemory| {
            let used = memory.total.saturating_sub(memory.free);
            let percent = 100.0 * used.0 as f64 / memory.total.0.max(1) as f64;
            format!("{used} of {} used ({percent:.1} %)", memory.total)
        };
        let skipped = |nth: usize| {
            self.schemes
                .get(nth)
                .map(|total| total.skipped_text("skipped    "))
        };
        format!(
            "promoted   {promoted} {would} node {fast}\n\
             demoted    {demoted} {would} node {slow}\n\
             back       {} of this had been moved the other way before\n\
             fast       node {fast}: {}, wanted {}\n\
             slow       node {slow}: {}\n{}{}",
            self.moved.back,
            used(&self.nodes[0]),
            self.preset.fast_used,
            used(&self.nodes[1]),
            skipped(0).unwrap_or_default(),
            skipped(1).unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_engine::ops::Skip;

    #[test]
    fn totals_have_a_row_for_each_direction() {
        let mut schemes: Vec<SchemeTotal> =
            Preset::default().schemes().iter().map(SchemeTotal::new).collect();
        schemes[0].stats.sz_changed = Bytes::mib(3);
        schemes[1].skipped.insert(Skip::CoolDown, Bytes::mib(2));
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
