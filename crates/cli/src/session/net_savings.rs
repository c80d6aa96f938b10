//! What paging out saved: by how much the targets' resident memory fell, less what zram took of the machine's memory
//! for it.
//!
//! Measured from the session's first look at its targets to its last, over those that live then: what a process had
//! that ended was not saved by us. When all have ended, the last look at them counts. Both numbers are the kernel's own,
//! so what the targets themselves give back or take counts, and so does what others put into zram meanwhile.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use thermo_kernel::zram;
use thermo_recording::model::Record;
use thermo_units::Bytes;

/// Memory before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saving {
    /// Resident memory of the targets when they were first looked at.
    pub rss_before: Bytes,
    /// The same when they were last looked at.
    pub rss_after: Bytes,
    /// What all zram devices took of the machine's memory then.
    pub zram_before: Bytes,
    /// And in the end.
    pub zram_after: Bytes,
}

impl Saving {
    /// By how many bytes resident memory fell; below zero when it grew.
    pub const fn rss_fell(&self) -> i64 {
        change(self.rss_after, self.rss_before)
    }

    /// By how many bytes zram grew; below zero when it shrank.
    pub const fn zram_grew(&self) -> i64 {
        change(self.zram_before, self.zram_after)
    }

    /// What was saved, in bytes; below zero when more memory is used than before.
    pub const fn net(&self) -> i64 {
        self.rss_fell().saturating_sub(self.zram_grew())
    }

    /// The line for the totals.
    pub fn text(&self) -> String {
        let (fell, grew) = (self.rss_fell(), self.zram_grew());
        format!(
            "net saving {} (RSS {} by {}, zram {} by {})\n",
            signed(self.net()),
            if fell < 0 { "grew" } else { "fell" },
            Bytes(fell.unsigned_abs()),
            if grew < 0 { "shrank" } else { "grew" },
            Bytes(grew.unsigned_abs()),
        )
    }
}

/// Adds `net_saved_bytes` and its two parts to the totals `told`: null when nothing was measured.
pub fn add_to_json(told: &mut serde_json::Value, saving: Option<Saving>) {
    told["net_saved_bytes"] = json!(saving.map(|saving| saving.net()));
    told["rss_fell_bytes"] = json!(saving.map(|saving| saving.rss_fell()));
    told["zram_grew_bytes"] = json!(saving.map(|saving| saving.zram_grew()));
}

/// `b - a`. Memory sizes are far from the ends of the type.
const fn change(a: Bytes, b: Bytes) -> i64 {
    b.0.cast_signed().saturating_sub(a.0.cast_signed())
}

fn signed(bytes: i64) -> String {
    let size = Bytes(bytes.unsigned_abs());
    if bytes < 0 {
        format!("-{size}")
    } else {
        size.to_string()
    }
}

/// Weighs the targets and zram while a session goes on.
#[derive(Debug)]
pub struct Scale {
    zram_before: Bytes,
    /// Resident memory of each target when it was first seen.
    first: BTreeMap<u32, u64>,
    last: Option<Saving>,
}

impl Scale {
    /// Begins; none when zram cannot be asked.
    pub fn new(root: &Path) -> Option<Self> {
        let zram_before = zram::mem_used(root).ok()?;
        Some(Self {
            zram_before,
            first: BTreeMap::new(),
            last: None,
        })
    }

    /// Takes the footprints of the targets that live now.
    pub fn weigh(&mut self, root: &Path, records: &[Record]) {
        let (mut rss_before, mut rss_after, mut living) = (0, 0, false);
        for record in records {
            if let Record::Footprint(footprint) = record {
                living = true;
                rss_before += *self.first.entry(footprint.target).or_insert(footprint.rss);
                rss_after += footprint.rss;
            }
        }
        // What ended took its part of zram along.
        if let Some(zram_after) = living.then(|| zram::mem_used(root).ok()).flatten() {
            self.last = Some(Saving {
                rss_before: Bytes(rss_before),
                rss_after: Bytes(rss_after),
                zram_before: self.zram_before,
                zram_after,
            });
        }
    }

    /// What was saved until the last look; none when there was none.
    pub const fn saving(&self) -> Option<Saving> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_recording::model::Footprint;

    fn zram_takes(root: &Path, bytes: u64) {
        let device = root.join("sys/block/zram1");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("mm_stat"), format!("0 0 {bytes} 0 0 0 0 0 0\n")).unwrap();
    }

    fn footprints(rss: &[(u32, u64)]) -> Vec<Record> {
        let one = |(target, rss): &(u32, u64)| {
            Record::Footprint(Footprint {
                time_ns: 0,
                target: *target,
                vsz: 0,
                rss: *rss,
                swap: 0,
            })
        };
        rss.iter().map(one).collect()
    }

    #[test]
    fn what_zram_takes_is_not_saved_and_what_ended_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        zram_takes(root.path(), 1 << 20);
        let mut scale = Scale::new(root.path()).unwrap();
        assert_eq!(scale.saving(), None);
        scale.weigh(root.path(), &footprints(&[(0, 100 << 20), (1, 50 << 20)]));
        zram_takes(root.path(), 11 << 20);
        scale.weigh(root.path(), &footprints(&[(0, 60 << 20)]));
        // All have ended: what was seen last stands.
        zram_takes(root.path(), 0);
        scale.weigh(root.path(), &[]);
        let saving = scale.saving().unwrap();
        assert_eq!(
            saving.text(),
            "net saving 30.0 MiB (RSS fell by 40.0 MiB, zram grew by 10.0 MiB)\n"
        );
        let mut told = json!({});
        add_to_json(&mut told, Some(saving));
        assert_eq!(told["net_saved_bytes"], 30 << 20);
    }

    #[test]
    fn a_loss_is_told_as_one() {
        let saving = Saving {
            rss_before: Bytes::mib(10),
            rss_after: Bytes::mib(16),
            zram_before: Bytes::mib(3),
            zram_after: Bytes::mib(1),
        };
        assert_eq!(
            saving.text(),
            "net saving -4.00 MiB (RSS grew by 6.00 MiB, zram shrank by 2.00 MiB)\n"
        );
    }
}
