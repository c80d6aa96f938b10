//! Who listens to a session's kdamond: the recording, and what the session itself wants to know.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use thermo_engine::access_tables::UnknownReason;
use thermo_engine::ops::{Skip, TargetId};
use thermo_engine::scheme::{SchemeStats, Watermarks};
use thermo_engine::sink::TargetRegions;
use thermo_engine::{Action, Context, Event, Scheme, Sink};
use thermo_kernel::clock;
use thermo_recording::Recorder;
use thermo_recording::model::{Record, Region, Snapshot, Target};
use thermo_report::tables::SnapshotTables;
use thermo_report::{HeatSizes, Layout};
use thermo_units::Bytes;

use super::Saving;
use super::distinct::Distinct;

/// What a scheme did.
#[derive(Debug, Clone)]
pub struct Total {
    /// Its action.
    pub action: Action,
    /// Its totals.
    pub stats: SchemeStats,
    /// Bytes it left alone, by why.
    pub skipped: BTreeMap<Skip, Bytes>,
    /// What it matched, where it only counts or decides.
    pub distinct: Option<Distinct>,
    /// Free memory in thousandths when its watermarks made it rest, if it rests.
    resting_at: Option<u64>,
    marks: Watermarks,
}

impl Total {
    /// That of `scheme`, which has not acted yet.
    pub fn of(scheme: &Scheme) -> Self {
        Self {
            action: scheme.action,
            stats: SchemeStats::default(),
            skipped: BTreeMap::new(),
            distinct: (scheme.action == Action::Stat).then(Distinct::default),
            resting_at: None,
            marks: scheme.watermarks,
        }
    }

    /// Why it never acted, where its watermarks are why.
    pub fn rested(&self) -> Option<String> {
        let free = self.resting_at.filter(|_| self.stats.nr_tried == 0)?;
        let (low, high) = (self.marks.low.0, self.marks.high.0);
        Some(format!(
            "{} rested: {free} thousandths of the machine's memory are free, and its watermarks let it act between {low} and {high}",
            self.action.name()
        ))
    }

    /// The reasons for JSON, `{reason, bytes}` each.
    pub fn skipped_json(&self) -> Value {
        let one = |(why, bytes): (&Skip, &Bytes)| json!({ "reason": why.name(), "bytes": bytes.0 });
        self.skipped.iter().map(one).collect()
    }

    /// A line for each reason; `begin` stands before it.
    pub fn skipped_text(&self, begin: &str) -> String {
        let one = |(why, bytes): (&Skip, &Bytes)| format!("{begin}{bytes} {why}\n");
        self.skipped.iter().map(one).collect()
    }
}

/// The sink of a session.
pub struct SessionSink {
    /// The recording; none where only the actions count.
    pub recorder: Option<Recorder>,
    /// Mappings and sizes of the targets, as last read.
    layout: Layout,
    /// The targets of the last aggregation with tables; regions only of those without.
    last: Option<Snapshot>,
    /// What each scheme did, in their order.
    pub schemes: Vec<Total>,
    /// What was saved, where memory was paged out; known when the session is over.
    pub saving: Option<Saving>,
    /// The share of the targets' memory that could not be judged in the end, 0 to 1; known when the session is over, if a
    /// target was still there.
    pub unknown_share: Option<f64>,
    /// Sentences to pass on to the user, in the order they came.
    pub news: Vec<String>,
    /// Whether changed plans are news.
    verbose: bool,
    scanned: Scanned,
}

/// How many targets ended before a scan pass over them was complete.
#[derive(Debug, Default)]
struct Scanned {
    /// Targets that live, and of which no pass is complete.
    waiting: BTreeSet<TargetId>,
    nr_targets: u64,
    nr_ended_early: u64,
}

impl Scanned {
    fn on(&mut self, event: &Event<'_>) {
        match event {
            Event::TargetAppeared { id, .. } => {
                self.nr_targets += 1;
                self.waiting.insert(*id);
            }
            Event::Aggregated { targets, .. } => {
                for target in targets.iter().filter(|target| has_pass(target)) {
                    self.waiting.remove(&target.id);
                }
            }
            Event::TargetGone { id, .. } => self.nr_ended_early += u64::from(self.waiting.remove(id)),
            _ => {}
        }
    }

    /// A sentence, if any ended early.
    fn warning(&self) -> Option<String> {
        let (early, all) = (self.nr_ended_early, self.nr_targets);
        let percent = 100.0 * early as f64 / all.max(1) as f64;
        (early > 0).then(|| {
            format!("{early} of {all} targets ({percent:.0} %) ended before a pass over them was complete: their accesses are not known")
        })
    }
}

/// Whether something is known of a target: what monitors by itself (the kernel) tells at once.
fn has_pass(target: &TargetRegions<'_>) -> bool {
    target.tables.is_none_or(|tables| tables.nr_passes > 0)
}

impl SessionSink {
    /// A sink for a context that carries out `schemes`.
    pub fn new(recorder: Option<Recorder>, schemes: &[Scheme], verbose: bool) -> Self {
        Self {
            recorder,
            layout: Layout::default(),
            last: None,
            schemes: schemes.iter().map(Total::of).collect(),
            saving: None,
            unknown_share: None,
            news: Vec::new(),
            verbose,
            scanned: Scanned::default(),
        }
    }

    /// The same for schemes that only decide what they would do.
    #[must_use]
    pub fn dry(mut self, is_dry_run: bool) -> Self {
        for total in self.schemes.iter_mut().filter(|_| is_dry_run) {
            total.distinct.get_or_insert_default();
        }
        self
    }

    /// What is to be said at the end.
    pub fn last_warning(&mut self) -> Option<String> {
        let warning = self.scanned.warning()?;
        if let Some(recorder) = &mut self.recorder {
            recorder.note(clock::monotonic(), "warning", warning.as_str());
        }
        Some(warning)
    }

    /// Takes what the session itself has read of the targets.
    pub fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Some(recorder) = &mut self.recorder {
            recorder.record(record);
        }
    }

    /// Whether memory is paged out.
    pub fn pages_out(&self) -> bool {
        self.schemes.iter().any(|total| total.action == Action::Pageout)
    }

    /// Whether anything was.
    pub fn paged_out(&self) -> bool {
        let did = |total: &Total| total.action == Action::Pageout && total.stats.sz_applied > Bytes::ZERO;
        self.schemes.iter().any(did)
    }

    /// Writes what is due, for events may be seldom.
    pub fn tick(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tick(clock::monotonic());
        }
    }

    /// Resident memory by its heat: by pages where the last aggregation had tables, otherwise by the regions of
    /// `context`.
    pub fn sizes(&self, context: &Context) -> HeatSizes {
        let tables = match &self.last {
            Some(last) => SnapshotTables::new(last, &self.layout),
            None => SnapshotTables::new(&last_aggregation(context), &self.layout),
        };
        HeatSizes::from(&tables.sum())
    }

    /// How far the first pass is over the targets that had none yet, in percent of what they have in memory; none when each
    /// had one.
    pub fn first_pass(&self) -> Option<u64> {
        let targets = self.last.as_ref()?.targets.iter();
        let tables = targets.filter_map(|target| target.tables.as_deref());
        let (mut scanned, mut resident) = (0, 0);
        for tables in tables.filter(|tables| tables.nr_passes == 0) {
            let not_scanned = tables.unknown[UnknownReason::NotScanned.index()];
            resident += tables.resident().0;
            scanned += tables.resident().saturating_sub(not_scanned).0;
        }
        (scanned * 100).checked_div(resident)
    }

    /// Whether the recording failed, for which a session ends early.
    pub fn recording_failed(&self) -> bool {
        self.recorder
            .as_ref()
            .is_some_and(|recorder| recorder.error().is_some())
    }
}

impl Sink for SessionSink {
    fn on(&mut self, event: &Event<'_>) {
        self.scanned.on(event);
        if let Some(recorder) = &mut self.recorder {
            recorder.on(event);
        }
        match event {
            Event::Aggregated {
                start,
                end,
                attrs,
                targets,
            } => {
                let has_tables = targets.iter().any(|target| target.tables.is_some());
                self.last = has_tables.then(|| Snapshot {
                    start_ns: start.0,
                    time_ns: end.0,
                    aggr_ns: attrs.aggr.0,
                    max_nr_accesses: attrs.max_nr_accesses(),
                    targets: targets.iter().map(without_needless_regions).collect(),
                });
            }
            Event::SchemeApplied {
                scheme,
                stats,
                skipped,
                tried,
                ..
            } => {
                if let Some(total) = self.schemes.get_mut(*scheme) {
                    total.stats = **stats;
                    if let Some(distinct) = &mut total.distinct {
                        let runs = tried.iter().map(|tried| tried.run);
                        runs.for_each(|run| distinct.insert(run.target, run.range));
                    }
                    for (why, bytes) in *skipped {
                        let sum = total.skipped.entry(*why).or_default();
                        *sum = Bytes(sum.0.saturating_add(bytes.0));
                    }
                }
            }
            Event::SchemeActive {
                scheme,
                active,
                metric,
                ..
            } => {
                if let Some(total) = self.schemes.get_mut(*scheme) {
                    total.resting_at = (!active).then_some(*metric);
                }
            }
            Event::TargetGone { id, .. } => {
                let distinct = self
                    .schemes
                    .iter_mut()
                    .filter_map(|total| total.distinct.as_mut());
                distinct.for_each(|distinct| distinct.forget(*id));
            }
            Event::Planned { plan, .. } if self.verbose => self.news.push(plan.to_string()),
            Event::Warning { text, .. } => self.news.push((*text).to_owned()),
            _ => {}
        }
    }
}

/// A target as the sizes need it: tables, or the regions to derive them from.
fn without_needless_regions(target: &TargetRegions<'_>) -> Target {
    let regions = match target.tables {
        Some(_) => &[],
        None => target.regions,
    };
    Target::from(&TargetRegions {
        regions,
        ..target.clone()
    })
}

fn last_aggregation(context: &Context) -> Snapshot {
    let region = |region: &thermo_engine::Region| Region {
        nr_accesses: region.last_nr_accesses,
        ..Region::from(region)
    };
    let targets = context.targets().map(|target| Target {
        tables: None,
        regions: target.regions.iter().map(region).collect(),
        ..Target::from(&TargetRegions {
            regions: &[],
            ..target.clone()
        })
    });
    Snapshot {
        aggr_ns: context.attrs().aggr.0,
        max_nr_accesses: context.attrs().max_nr_accesses(),
        targets: targets.collect(),
        ..Snapshot::default()
    }
}

#[cfg(test)]
mod tests {
    use thermo_engine::Attrs;
    use thermo_engine::access_tables::AccessTables;
    use thermo_engine::budget::Method;
    use thermo_engine::ops::TargetId;
    use thermo_engine::scheme::WatermarkMetric;
    use thermo_units::{Nanos, Permille};

    use super::*;

    fn sink() -> SessionSink {
        let mut scheme = Scheme::new(Action::Pageout);
        scheme.watermarks = Watermarks {
            metric: WatermarkMetric::FreeMemRate,
            interval: Nanos::secs(5),
            high: Permille(500),
            mid: Permille(400),
            low: Permille(200),
        };
        SessionSink::new(None, &[scheme], false)
    }

    fn active(sink: &mut SessionSink, active: bool, metric: u64) {
        sink.on(&Event::SchemeActive {
            now: Nanos::ZERO,
            scheme: 0,
            active,
            metric,
        });
    }

    #[test]
    fn who_never_acted_for_its_watermarks_says_so() {
        let mut sink = sink();
        assert_eq!(sink.schemes[0].rested(), None, "nobody said that it rests");
        active(&mut sink, false, 612);
        let told = sink.schemes[0].rested().unwrap_or_default();
        assert!(
            told.starts_with("pageout rested: 612 thousandths") && told.ends_with("between 200 and 500"),
            "{told}"
        );
        active(&mut sink, true, 390);
        assert_eq!(sink.schemes[0].rested(), None);
    }

    #[test]
    fn sizes_are_those_of_tables_where_the_last_aggregation_had_some() {
        let (mut sink, context) = (
            sink(),
            Context::new(Attrs::default(), 1).unwrap_or_else(|error| panic!("{error}")),
        );
        let mut tables = AccessTables::new(Method::Scan);
        tables.idle[0][0] = Bytes::mib(3);
        tables.unknown[0] = Bytes::mib(1);
        let mut aggregated = |tables| {
            let target = TargetRegions {
                id: TargetId(0),
                pid: Some(7),
                method: Method::Scan,
                averaged: Bytes::ZERO,
                regions: &[],
                tables,
            };
            let (start, end, attrs) = (Nanos::ZERO, Nanos::secs(1), &Attrs::default());
            sink.on(&Event::Aggregated {
                start,
                end,
                attrs,
                targets: &[target],
            });
            sink.sizes(&context)
        };
        let sizes = aggregated(Some(&tables));
        assert_eq!((sizes.hot.bytes, sizes.unknown.share), (3 << 20, 0.25));
        assert_eq!(aggregated(None).total(), 0, "the context has no targets");
    }

    #[test]
    fn what_was_not_paged_out_saved_nothing() {
        let mut sink = sink();
        assert!(sink.pages_out() && !sink.paged_out());
        let stats = SchemeStats {
            nr_tried: 1,
            sz_applied: Bytes::kib(4),
            ..SchemeStats::default()
        };
        sink.on(&Event::SchemeApplied {
            now: Nanos::ZERO,
            scheme: 0,
            tried: &[],
            skipped: &[],
            stats: &stats,
        });
        assert!(sink.paged_out());
    }
}
