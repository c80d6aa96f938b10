//! Idle memory: how many bytes have not been touched for how long, in the last snapshot.
//!
//! A region without accesses has been idle for its age; one with accesses for no time at all. Nothing can be known to
//! be idle for longer than it was watched, so the longest classes appear only in long recordings.

use serde::Serialize;
use thermo_core::{Bytes, Nanos};
use thermo_record::model::{Record, Snapshot};

use crate::heat::{Heat, HeatSizes};
use crate::layout::Layout;
use crate::style::{Style, Table, csv_text, percent};
use crate::{Accumulator, Doubt, NO_SNAPSHOTS, SCHEMA};

/// Where the classes of idle time begin, in seconds, after "accessed" and "idle, but for less".
const BORDERS_S: [u64; 10] = [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

/// Idle memory in the making.
#[derive(Debug, Clone, Default)]
pub struct IdleAccumulator {
    layout: Layout,
    doubt: Doubt,
    last: Option<Idle>,
}

/// Idle memory of the last snapshot.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Idle {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When the snapshot ended.
    pub time_ns: u64,
    /// Bytes that were accessed in it.
    pub accessed_bytes: u64,
    /// Bytes that could not be judged.
    pub unknown_bytes: u64,
    /// The most idle bytes that can be resident; `None` when it is not known.
    pub idle_resident_bytes: Option<u64>,
    /// Idle bytes by how long they were, ascending, without gaps between the classes.
    pub classes: Vec<IdleClass>,
    /// What it stands on.
    pub basis: Doubt,
}

/// Memory of one class of idle time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdleClass {
    /// The least time in it.
    pub min_idle_ns: u64,
    /// The least time no longer in it; `None` for the last class.
    pub max_idle_ns: Option<u64>,
    /// Bytes of this class.
    pub bytes: u64,
    /// Bytes of this class and all later ones.
    pub bytes_at_least: u64,
}

impl Accumulator for IdleAccumulator {
    type Report = Idle;

    fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Some(snapshot) = self.doubt.add(record) {
            self.last = Some(of(snapshot, &self.layout, self.doubt.span().0));
        }
    }

    fn finish(self) -> Idle {
        let idle = self.last.unwrap_or_default();
        Idle {
            schema: SCHEMA,
            basis: self.doubt,
            ..idle
        }
    }
}

fn of(snapshot: &Snapshot, layout: &Layout, watched_ns: u64) -> Idle {
    let sizes = HeatSizes::of(snapshot, layout);
    let borders: Vec<u64> = std::iter::once(0)
        .chain(
            BORDERS_S
                .iter()
                .map(|secs| secs * 1_000_000_000)
                .filter(|&border| border <= watched_ns),
        )
        .collect();
    let mut bytes = vec![0; borders.len()];
    for target in &snapshot.targets {
        let cold = target
            .regions
            .iter()
            .filter(|r| Heat::of(r, snapshot.max_nr_accesses) == Heat::Cold);
        for region in cold {
            let idle = u64::from(region.age).saturating_mul(snapshot.aggr_ns);
            let class = borders.partition_point(|&border| border <= idle) - 1;
            bytes[class] += layout.bytes(target.id, region);
        }
    }
    let class = |index: usize| IdleClass {
        min_idle_ns: borders[index],
        max_idle_ns: borders.get(index + 1).copied(),
        bytes: bytes[index],
        bytes_at_least: bytes[index..].iter().sum(),
    };
    Idle {
        time_ns: snapshot.time_ns,
        accessed_bytes: sizes.hot.bytes + sizes.warm.bytes,
        unknown_bytes: sizes.unknown.bytes,
        idle_resident_bytes: sizes.cold_resident,
        classes: (0..borders.len()).map(class).collect(),
        ..Idle::default()
    }
}

impl Idle {
    /// A table with bars.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        if self.basis.snapshots == 0 {
            return format!("{NO_SNAPSHOTS}\n");
        }
        let total = self.total().max(1);
        let bar = style.width.saturating_sub(54).clamp(6, 60);
        let mut table = Table::new(1, &["untouched for", "size", "of all", "this or longer", ""]);
        let mut row = |name: String, bytes: u64, longer: String| {
            let share = bytes as f64 / total as f64;
            table.row([
                name,
                Bytes(bytes).to_string(),
                percent(share),
                longer,
                style.bar(share, bar),
            ]);
        };
        row("accessed".to_owned(), self.accessed_bytes, String::new());
        for class in &self.classes {
            row(class.name(), class.bytes, Bytes(class.bytes_at_least).to_string());
        }
        row("unknown".to_owned(), self.unknown_bytes, String::new());
        let mut text = format!(
            "Idle memory in the last of {}\n{}",
            self.basis.basis(),
            table.text()
        );
        if let Some(bytes) = self.idle_resident_bytes {
            text.push_str(&format!(
                "Of the idle bytes at most {} are resident.\n",
                Bytes(bytes)
            ));
        }
        text + &self.basis.text()
    }

    /// `min_idle_ns,max_idle_ns,bytes,bytes_at_least`; the first row is what was accessed.
    #[must_use]
    pub fn csv(&self) -> String {
        let accessed = [
            "",
            "",
            &self.accessed_bytes.to_string(),
            &self.total().to_string(),
        ]
        .map(str::to_owned);
        let rows = std::iter::once(accessed).chain(self.classes.iter().map(IdleClass::csv));
        csv_text(["min_idle_ns", "max_idle_ns", "bytes", "bytes_at_least"], rows)
    }

    fn total(&self) -> u64 {
        let idle = self.classes.first().map_or(0, |class| class.bytes_at_least);
        self.accessed_bytes + self.unknown_bytes + idle
    }
}

impl IdleClass {
    fn name(&self) -> String {
        let whole = |ns: u64| Nanos(ns).to_string().replace(".00 ", " ").replace(".0 ", " ");
        match (self.min_idle_ns, self.max_idle_ns) {
            (0, None) => "not accessed".to_owned(),
            (0, Some(max)) => format!("less than {}", whole(max)),
            (min, None) => format!("{} or longer", whole(min)),
            (min, Some(max)) => format!("{} to {}", whole(min), whole(max)),
        }
    }

    fn csv(&self) -> [String; 4] {
        let max = self.max_idle_ns.map(|ns| ns.to_string()).unwrap_or_default();
        [
            self.min_idle_ns.to_string(),
            max,
            self.bytes.to_string(),
            self.bytes_at_least.to_string(),
        ]
    }
}
