//! What the schemes did: tried, applied and really changed, the use of their quotas, and why memory was left alone.

use std::collections::BTreeMap;

use serde::Serialize;
use thermo_recording::model::{Record, SchemeApplied};
use thermo_units::{Bytes, Nanos};

use crate::series::{Series, binned};
use crate::style::{Style, Table, csv_text, percent};
use crate::{Accumulator, SCHEMA};

/// Schemes in the making.
#[derive(Debug, Clone, Default)]
pub struct SchemesAccumulator {
    schemes: BTreeMap<u32, State>,
    start_ns: u64,
}

#[derive(Debug, Clone, Default)]
struct State {
    series: Series<Totals>,
    last: SchemeApplied,
    applications: u64,
    skipped: BTreeMap<String, u64>,
}

/// Totals of a scheme at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// When.
    pub time_ns: u64,
    /// Bytes tried until then.
    pub sz_tried: u64,
    /// Bytes acted on until then.
    pub sz_applied: u64,
    /// Bytes seen to have changed until then.
    pub sz_changed: u64,
    /// Windows in which the quota was used up.
    pub qt_exceeds: u64,
    /// The size limit in force; 0: none.
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
        let schemes = self.schemes.into_values().map(State::finish).collect();
        Schemes {
            schema: SCHEMA,
            schemes,
            start_ns: self.start_ns,
        }
    }
}

impl State {
    fn add(&mut self, applied: &SchemeApplied) {
        self.series.push(Totals {
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
    /// Each scheme that was applied at least once, by its index.
    pub schemes: Vec<SchemeReport>,
    /// When the first snapshot began.
    pub start_ns: u64,
}

/// One scheme; counts and sizes are totals of the recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SchemeReport {
    /// Which one, from 0.
    pub index: u32,
    /// Its action.
    pub action: String,
    /// Regions that matched its pattern.
    pub nr_tried: u64,
    /// Their bytes.
    pub sz_tried: u64,
    /// Regions acted on.
    pub nr_applied: u64,
    /// Bytes acted on.
    pub sz_applied: u64,
    /// Windows in which the quota was used up.
    pub qt_exceeds: u64,
    /// Bytes seen to have changed.
    pub sz_changed: u64,
    /// Bytes that passed the filters of the operations.
    pub sz_ops_filter_passed: u64,
    /// The size limit last in force, in bytes for one window; 0: none.
    pub effective_sz: u64,
    /// How often it was applied.
    pub applications: u64,
    /// Why bytes were left alone, most bytes first. The same bytes count anew each time.
    pub skipped: Vec<Skipped>,
    /// Totals over time, thinned out when there are many.
    pub over_time: Vec<Totals>,
}

/// Bytes left alone for a reason.
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
            let row = move |t: &Totals| {
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
        table.row([
            "  really changed".into(),
            String::new(),
            changed,
            share(self.sz_changed),
        ]);
        text.push_str(&table.text());
        text.push_str(&self.quota());
        for Skipped { reason, bytes } in &self.skipped {
            text.push_str(&format!("  left alone: {} {reason}\n", Bytes(*bytes)));
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
            (0, 0) => "  quota: none, or never the limit\n".to_owned(),
            (0, times) => format!("  quota: used up in {times} windows\n"),
            (size, times) => format!(
                "  quota: {} for a window now; used up in {times} windows\n",
                Bytes(size)
            ),
        }
    }
}
