//! Results of the schemes: bytes tried, applied, changed and skipped, and use of the quotas.

use std::collections::BTreeMap;

use serde::Serialize;
use thermo_recording::model::{Record, SchemeApplied};
use thermo_units::{Bytes, Nanos};

use crate::series::{Series, binned};
use crate::style::{Style, Table, csv_text, percent};
use crate::{Accumulator, SCHEMA};

/// Builds a [`Schemes`] report.
#[derive(Debug, Clone, Default)]
pub struct SchemesAccumulator {
    schemes: BTreeMap<u32, SchemeState>,
    start_ns: u64,
}

#[derive(Debug, Clone, Default)]
struct SchemeState {
    series: Series<SchemeTotals>,
    last: SchemeApplied,
    applications: u64,
    skipped: BTreeMap<String, u64>,
}

/// Totals of a scheme from its start to a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SchemeTotals {
    /// The point in time.
    pub time_ns: u64,
    /// Bytes tried.
    pub sz_tried: u64,
    /// Bytes applied.
    pub sz_applied: u64,
    /// Bytes verified as changed.
    pub sz_changed: u64,
    /// Quota windows in which the quota was used up.
    pub qt_exceeds: u64,
    /// Effective size quota in bytes; 0: no limit.
    pub effective_sz: u64,
}

impl Accumulator for SchemesAccumulator {
    type Report = Schemes;

    fn add(&mut self, record: &Record) {
        match record {
            Record::Snapshot(snapshot) if self.start_ns == 0 => self.start_ns = snapshot.start_ns,
            Record::Scheme(applied) => self.schemes.entry(applied.index).or_default().add(applied),
            _ => {}
        }
    }

    fn finish(self) -> Schemes {
        let schemes = self.schemes.into_values().map(SchemeState::finish).collect();
        Schemes {
            schema: SCHEMA,
            schemes,
            start_ns: self.start_ns,
        }
    }
}

impl SchemeState {
    fn add(&mut self, applied: &SchemeApplied) {
        self.series.push(SchemeTotals {
            time_ns: applied.time_ns,
            sz_tried: applied.sz_tried,
            sz_applied: applied.sz_applied,
            sz_changed: applied.sz_changed,
            qt_exceeds: applied.qt_exceeds,
            effective_sz: applied.effective_sz,
        });
        self.applications += 1;
        for (reason, bytes) in &applied.skipped {
            *self.skipped.entry(reason.clone()).or_default() += bytes;
        }
        self.last = SchemeApplied {
            skipped: Vec::new(),
            ..applied.clone()
        };
    }

    fn finish(self) -> SchemeReport {
        let mut skipped: Vec<Skipped> = self
            .skipped
            .into_iter()
            .map(|(reason, bytes)| Skipped { reason, bytes })
            .collect();
        skipped.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.reason.cmp(&b.reason)));
        SchemeReport {
            index: self.last.index,
            action: self.last.action,
            nr_tried: self.last.nr_tried,
            sz_tried: self.last.sz_tried,
            nr_applied: self.last.nr_applied,
            sz_applied: self.last.sz_applied,
            qt_exceeds: self.last.qt_exceeds,
            sz_changed: self.last.sz_changed,
            sz_ops_filter_passed: self.last.sz_ops_filter_passed,
            effective_sz: self.last.effective_sz,
            applications: self.applications,
            skipped,
            over_time: self.series.into_points(),
        }
    }
}

/// All schemes of a recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schemes {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Schemes that were applied at least once, in order of their index.
    pub schemes: Vec<SchemeReport>,
    /// Start of the first snapshot.
    pub start_ns: u64,
}

/// Results of one scheme. Counts and sizes are totals of the recording; sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SchemeReport {
    /// Index of the scheme, from 0.
    pub index: u32,
    /// Name of the action.
    pub action: String,
    /// Regions that matched the access pattern.
    pub nr_tried: u64,
    /// Bytes of those regions.
    pub sz_tried: u64,
    /// Regions to which the action was applied.
    pub nr_applied: u64,
    /// Bytes to which the action was applied.
    pub sz_applied: u64,
    /// Quota windows in which the quota was used up.
    pub qt_exceeds: u64,
    /// Bytes verified as changed.
    pub sz_changed: u64,
    /// Bytes that passed the operations layer's filters.
    pub sz_ops_filter_passed: u64,
    /// Last effective size quota, in bytes for each quota window; 0: no limit.
    pub effective_sz: u64,
    /// Number of times the scheme was applied.
    pub applications: u64,
    /// Skipped bytes by reason, most bytes first. The same bytes count each time they are skipped.
    pub skipped: Vec<Skipped>,
    /// Totals over time; a subset if there are many.
    pub over_time: Vec<SchemeTotals>,
}

/// Bytes skipped for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The reason.
    pub reason: String,
    /// Bytes, summed over all applications.
    pub bytes: u64,
}

impl Schemes {
    /// A paragraph for each scheme.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        if self.schemes.is_empty() {
            return "No scheme was applied in this recording.\n".to_owned();
        }
        let texts: Vec<String> = self.schemes.iter().map(|scheme| scheme.text(style)).collect();
        texts.join("\n")
    }

    /// Totals over time: `time_ns,index,action,sz_tried,sz_applied,sz_changed,qt_exceeds,effective_sz`.
    #[must_use]
    pub fn csv(&self) -> String {
        let of_scheme = |scheme: &SchemeReport| {
            let (index, action) = (scheme.index, scheme.action.clone());
            let row = move |t: &SchemeTotals| {
                let numbers = [
                    t.sz_tried,
                    t.sz_applied,
                    t.sz_changed,
                    t.qt_exceeds,
                    t.effective_sz,
                ];
                let [tried, applied, changed, exceeds, effective] = numbers.map(|n| n.to_string());
                let (time, index) = (t.time_ns.to_string(), index.to_string());
                [
                    time,
                    index,
                    action.clone(),
                    tried,
                    applied,
                    changed,
                    exceeds,
                    effective,
                ]
            };
            scheme.over_time.iter().map(row).collect::<Vec<_>>()
        };
        let headings = [
            "time_ns",
            "index",
            "action",
            "sz_tried",
            "sz_applied",
            "sz_changed",
            "qt_exceeds",
            "effective_sz",
        ];
        csv_text(headings, self.schemes.iter().flat_map(of_scheme))
    }
}

impl SchemeReport {
    fn text(&self, style: &Style) -> String {
        let times = if self.applications == 1 {
            "once"
        } else {
            &format!("{} times", self.applications)
        };
        let mut text = format!("scheme {}: {}, applied {times}\n", self.index, self.action);
        let share = |bytes: u64| match self.sz_tried {
            0 => String::new(),
            tried => format!("{} of tried", percent(bytes as f64 / tried as f64)),
        };
        let mut table = Table::new(1, &["", "regions", "bytes", ""]);
        let count = |n: u64| n.to_string();
        table.row([
            "  tried".into(),
            count(self.nr_tried),
            Bytes(self.sz_tried).to_string(),
            String::new(),
        ]);
        let applied = Bytes(self.sz_applied).to_string();
        table.row([
            "  applied".into(),
            count(self.nr_applied),
            applied,
            share(self.sz_applied),
        ]);
        let changed = Bytes(self.sz_changed).to_string();
        table.row(["  changed".into(), String::new(), changed, share(self.sz_changed)]);
        text.push_str(&table.text());
        text.push_str(&self.quota());
        for Skipped { reason, bytes } in &self.skipped {
            text.push_str(&format!("  skipped: {} {reason}\n", Bytes(*bytes)));
        }
        let applied: Vec<(u64, u64)> = self.over_time.iter().map(|t| (t.time_ns, t.sz_applied)).collect();
        let line = style.sparkline(&binned(&applied, style.width.saturating_sub(30).clamp(8, 80)));
        let span = match (self.over_time.first(), self.over_time.last()) {
            (Some(first), Some(last)) => Nanos(last.time_ns.saturating_sub(first.time_ns)),
            _ => Nanos::ZERO,
        };
        text + &format!("  applied over {span}: {line}\n")
    }

    fn quota(&self) -> String {
        match (self.effective_sz, self.qt_exceeds) {
            (0, 0) => "  quota: none, or never used up\n".to_owned(),
            (0, windows) => format!("  quota: used up in {windows} windows\n"),
            (size, windows) => format!(
                "  quota: now {} for each window; used up in {windows} windows\n",
                Bytes(size)
            ),
        }
    }
}
