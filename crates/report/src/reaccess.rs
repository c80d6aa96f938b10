//! Re-accesses: bytes per minute that were accessed again after a given idle age.
//!
//! If memory were paged out after it was idle for T, each of these accesses would be a page fault. The report
//! shows the cost of each T; the idle ages show what each T would save. Re-accesses cannot be derived from
//! regions.

use serde::Serialize;
use thermo_engine::access_tables::{AGE_EDGES_S, NR_AGES};
use thermo_engine::budget::Method;
use thermo_recording::model::{Record, Snapshot};
use thermo_units::{Bytes, Nanos};

use crate::ages::{self, Missing};
use crate::style::{Style, Table, csv_text, percent};
use crate::{Accumulator, Basis};

/// Schema version of this report's JSON.
pub const SCHEMA: u32 = 2;

/// Builds a [`Reaccess`] report.
#[derive(Debug, Clone, Default)]
pub struct ReaccessAccumulator {
    basis: Basis,
    reaccessed: [u64; NR_AGES],
    /// Number of snapshots with tables.
    snapshots: u64,
    /// Sum of their resident bytes.
    resident: u128,
    /// The longest scan pass; `None` before the first is complete.
    pass: Option<Nanos>,
    is_sampled: bool,
}

/// Re-accesses of a recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reaccess {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `scan`, or `sampling` if at least one target was sampled at some time.
    pub method: &'static str,
    /// Seconds from the start of the first snapshot to the end of the last.
    pub monitored_s: f64,
    /// The longest scan pass, in seconds; `None` if no pass was complete.
    pub pass_s: Option<f64>,
    /// Mean resident bytes of all targets.
    pub resident_bytes: u64,
    /// Re-accesses by minimum idle age, cumulative.
    pub ages: Vec<AgeRate>,
    /// Idle ages without a result.
    pub missing: Vec<Missing>,
    /// The data behind the report.
    pub basis: Basis,
    #[serde(skip)]
    has_tables: bool,
}

/// Re-accesses after an idle age of `min_s` or longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AgeRate {
    /// Minimum idle age, in seconds.
    pub min_s: u64,
    /// Bytes accessed again over the whole recording.
    pub bytes: u64,
    /// Bytes accessed again per minute.
    pub bytes_per_min: f64,
    /// `bytes_per_min` as a share of the mean resident bytes; can exceed 1.
    pub share_of_resident_per_min: f64,
}

impl Accumulator for ReaccessAccumulator {
    type Report = Reaccess;

    fn add(&mut self, record: &Record) {
        if let Some(snapshot) = self.basis.add(record) {
            self.add_tables(snapshot);
        }
    }

    fn finish(self) -> Reaccess {
        let monitored = self.basis.span();
        let minutes = monitored.as_secs_f64() / 60.0;
        let resident = self.resident as f64 / self.snapshots.max(1) as f64;
        let (mut ages, mut missing) = (Vec::new(), Vec::new());
        for (age, &min_s) in AGE_EDGES_S.iter().enumerate().skip(1) {
            let pass = self.pass.ok_or_else(|| "no scan pass was complete".to_owned());
            match pass.and_then(|pass| ages::check_resolvable(min_s, monitored, pass)) {
                Err(why) => missing.push(Missing { seconds: min_s, why }),
                Ok(()) => {
                    let bytes = self.reaccessed[age..]
                        .iter()
                        .fold(0, |a: u64, b| a.saturating_add(*b));
                    let bytes_per_min = bytes as f64 / minutes.max(f64::MIN_POSITIVE);
                    ages.push(AgeRate {
                        min_s,
                        bytes,
                        bytes_per_min,
                        share_of_resident_per_min: bytes_per_min / resident.max(1.0),
                    });
                }
            }
        }
        let method = if self.is_sampled {
            Method::Sampling
        } else {
            Method::Scan
        };
        Reaccess {
            schema: SCHEMA,
            method: method.name(),
            monitored_s: monitored.as_secs_f64(),
            pass_s: self.pass.map(Nanos::as_secs_f64),
            resident_bytes: resident as u64,
            ages,
            missing,
            basis: self.basis,
            has_tables: self.snapshots > 0,
        }
    }
}

impl ReaccessAccumulator {
    fn add_tables(&mut self, snapshot: &Snapshot) {
        let mut has_tables = false;
        for tables in snapshot
            .targets
            .iter()
            .filter_map(|target| target.tables.as_deref())
        {
            has_tables = true;
            self.pass = self.pass.max((tables.nr_passes > 0).then_some(tables.pass));
            self.is_sampled |= tables.method == Method::Sampling;
            self.resident += u128::from(tables.resident().0);
            for (sum, bytes) in self.reaccessed.iter_mut().zip(tables.reaccessed) {
                *sum = sum.saturating_add(bytes.0);
            }
        }
        self.snapshots += u64::from(has_tables);
    }
}

impl Reaccess {
    /// Why the recording has no re-accesses at all; `None` if it has some.
    #[must_use]
    pub fn unavailable_reason(&self) -> Option<String> {
        match (self.basis.snapshots, self.has_tables) {
            (0, _) => Some(self.basis.no_data()),
            (_, false) => Some(
                "The recording has no access tables, and re-accesses cannot be derived from regions. Record again with \
                 this version of thermo, without --tracker kdamond."
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// A table with bars.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        if let Some(reason) = self.unavailable_reason() {
            return format!("{reason}\n{}", self.basis.text());
        }
        let mut text = format!(
            "Memory accessed again after it was idle, {}\n",
            self.basis.summary()
        );
        let max = self.ages.iter().map(|age| age.bytes_per_min).fold(1.0, f64::max);
        let bar = style.width.saturating_sub(56).clamp(6, 60);
        let mut table = Table::new(1, &["idle for", "per minute", "of resident", ""]);
        for age in &self.ages {
            table.row([
                format!("{} or longer", ages::text(age.min_s)),
                Bytes(age.bytes_per_min.round() as u64).to_string(),
                percent(age.share_of_resident_per_min),
                style.bar(age.bytes_per_min / max, bar),
            ]);
        }
        text.push_str(&table.text());
        let resident = Bytes(self.resident_bytes);
        text.push_str(&format!(
            "Resident: {resident} on average. Method: {}.\n",
            self.method
        ));
        text.push_str(&ages::missing_text(&self.missing));
        text + &self.basis.text()
    }

    /// `min_s,bytes,bytes_per_min,share_of_resident_per_min`.
    #[must_use]
    pub fn csv(&self) -> String {
        let row = |age: &AgeRate| {
            [
                age.min_s.to_string(),
                age.bytes.to_string(),
                format!("{:.0}", age.bytes_per_min),
                format!("{:.6}", age.share_of_resident_per_min),
            ]
        };
        csv_text(
            ["min_s", "bytes", "bytes_per_min", "share_of_resident_per_min"],
            self.ages.iter().map(row),
        )
    }
}
