//! The sink of a session: passes events to the recording, and keeps totals and messages for the session.

use std::collections::BTreeSet;

use thermo_engine::access_tables::UnknownReason;
use thermo_engine::ops::TargetId;
use thermo_engine::sink::TargetRegions;
use thermo_engine::{Action, Context, Event, Scheme, Sink};
use thermo_kernel::clock;
use thermo_recording::Recorder;
use thermo_recording::model::{Record, Region, Snapshot, Target};
use thermo_report::tables::SnapshotTables;
use thermo_report::{HeatSizes, Layout};
use thermo_units::Bytes;

use super::NetSavings;
use super::scheme_activity::SchemeActivity;
use super::scheme_total::SchemeTotal;

/// The sink of a session.
pub struct SessionSink {
    /// The recording; `None` when only the schemes matter.
    pub recorder: Option<Recorder>,
    living: BTreeSet<TargetId>,
    /// Mappings and sizes of the living targets, as last read.
    layout: Layout,
    /// The last aggregation, if it had access tables. Targets with tables are kept without regions.
    last: Option<Snapshot>,
    /// Totals of each scheme, in the order of the schemes.
    pub schemes: Vec<SchemeTotal>,
    /// Net savings of paging out; set when the session has ended.
    pub savings: Option<NetSavings>,
    /// Share of the targets' memory whose idle age is unknown, 0 to 1. Set when the session has ended, if a
    /// target still lived.
    pub unknown_share: Option<f64>,
    /// Messages for the user, oldest first.
    pub messages: Vec<String>,
    /// Reports what schemes do while they run, where that is wanted.
    pub activity: Option<SchemeActivity>,
    /// Whether changes of method and intervals are messages.
    verbose: bool,
    first_passes: FirstPasses,
}

/// Counts targets that ended before their first scan pass was complete.
#[derive(Debug, Default)]
struct FirstPasses {
    /// Living targets without a complete pass.
    incomplete: BTreeSet<TargetId>,
    nr_targets: u64,
    nr_ended_early: u64,
}

impl FirstPasses {
    fn on_event(&mut self, event: &Event<'_>) {
        match event {
            Event::TargetAppeared { id, .. } => {
                self.nr_targets += 1;
                self.incomplete.insert(*id);
            }
            Event::Aggregated { targets, .. } => {
                for target in targets.iter().filter(|target| has_pass(target)) {
                    self.incomplete.remove(&target.id);
                }
            }
            Event::TargetGone { id, .. } => self.nr_ended_early += u64::from(self.incomplete.remove(id)),
            _ => {}
        }
    }

    /// A sentence, if a target ended early.
    fn warning(&self) -> Option<String> {
        let (early, all) = (self.nr_ended_early, self.nr_targets);
        let percent = 100.0 * early as f64 / all.max(1) as f64;
        (early > 0).then(|| {
            format!("{early} of {all} targets ({percent:.0} %) ended before their first scan pass was complete: their accesses are unknown")
        })
    }
}

/// Whether accesses of a target are known. Methods without tables know them from the first aggregation on.
fn has_pass(target: &TargetRegions<'_>) -> bool {
    target.tables.is_none_or(|tables| tables.nr_passes > 0)
}

impl SessionSink {
    /// A sink for a context that applies `schemes`.
    pub fn new(recorder: Option<Recorder>, schemes: &[Scheme], verbose: bool) -> Self {
        Self {
            recorder,
            living: BTreeSet::new(),
            layout: Layout::default(),
            last: None,
            schemes: schemes.iter().map(SchemeTotal::new).collect(),
            savings: None,
            unknown_share: None,
            messages: Vec::new(),
            activity: None,
            verbose,
            first_passes: FirstPasses::default(),
        }
    }

    /// In dry runs, counts distinct bytes of every scheme.
    #[must_use]
    pub fn with_dry_run(mut self, is_dry_run: bool) -> Self {
        for total in self.schemes.iter_mut().filter(|_| is_dry_run) {
            total.distinct.get_or_insert_default();
        }
        self
    }

    /// A warning for the end of the session, which the recording gets as well.
    pub fn last_warning(&mut self) -> Option<String> {
        let warning = self.first_passes.warning()?;
        if let Some(recorder) = &mut self.recorder {
            recorder.note(clock::monotonic(), "warning", warning.as_str());
        }
        Some(warning)
    }

    /// Takes a record that the session itself has read. The target may have ended since it was read.
    pub fn add(&mut self, record: &Record) {
        let target = match record {
            Record::Mappings(mappings) => Some(mappings.target),
            Record::Footprint(footprint) => Some(footprint.target),
            _ => None,
        };
        if target.is_some_and(|target| self.living.contains(&TargetId(target))) {
            self.layout.add(record);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.record(record);
        }
    }

    /// Whether a scheme pages out.
    pub fn has_pageout(&self) -> bool {
        self.schemes.iter().any(|total| total.action == Action::Pageout)
    }

    /// Whether a scheme paged out at least one page.
    pub fn did_pageout(&self) -> bool {
        let did =
            |total: &SchemeTotal| total.action == Action::Pageout && total.stats.sz_applied > Bytes::ZERO;
        self.schemes.iter().any(did)
    }

    /// Writes pending records (events may be rare), and adds the messages about schemes that are due.
    pub fn tick(&mut self) {
        if let Some(activity) = &mut self.activity {
            self.messages.extend(activity.tick(clock::monotonic()));
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.tick(clock::monotonic());
        }
    }

    /// Resident memory by heat: from the tables of the last aggregation if it had some, otherwise from the
    /// regions of `context`.
    pub fn sizes(&self, context: &Context) -> HeatSizes {
        let tables = match &self.last {
            Some(last) => SnapshotTables::new(last, &self.layout),
            None => SnapshotTables::new(&last_aggregation(context), &self.layout),
        };
        HeatSizes::from(&tables.sum())
    }

    /// Progress of the first scan pass, in percent of the resident memory of targets without a complete pass;
    /// `None` when every target has had one.
    pub fn first_pass_percent(&self) -> Option<u64> {
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

    /// Whether the recording failed. The session ends early then.
    pub fn recording_failed(&self) -> bool {
        self.recorder
            .as_ref()
            .is_some_and(|recorder| recorder.error().is_some())
    }

    fn forget_target(&mut self, id: TargetId) {
        self.living.remove(&id);
        self.layout.remove(id.0);
        let distinct = self
            .schemes
            .iter_mut()
            .filter_map(|total| total.distinct.as_mut());
        distinct.for_each(|distinct| distinct.target_ended(id));
    }
}

impl Sink for SessionSink {
    fn on(&mut self, event: &Event<'_>) {
        self.first_passes.on_event(event);
        if let Some(activity) = &mut self.activity {
            activity.on(event);
        }
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
                    targets: targets.iter().map(without_unneeded_regions).collect(),
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
                    total.add_tried(tried);
                    total.add_skipped(skipped);
                }
            }
            Event::SchemeActive {
                scheme,
                active,
                metric,
                ..
            } => {
                if let Some(total) = self.schemes.get_mut(*scheme) {
                    total.inactive_at = (!active).then_some(*metric);
                }
            }
            Event::TargetAppeared { id, .. } => drop(self.living.insert(*id)),
            Event::TargetGone { id, .. } => self.forget_target(*id),
            Event::Planned { plan, .. } if self.verbose => self.messages.push(plan.to_string()),
            Event::AutoAge { scheme, decision, .. } => {
                self.messages
                    .push(format!("auto age of scheme {scheme}: {decision}"));
            }
            Event::Warning { text, .. } => self.messages.push((*text).to_owned()),
            _ => {}
        }
    }
}

/// The target as [`SessionSink::sizes`] needs it: with tables, or with the regions to derive them from.
fn without_unneeded_regions(target: &TargetRegions<'_>) -> Target {
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
    use thermo_engine::scheme::{SchemeStats, WatermarkMetric, Watermarks};
    use thermo_recording::model::{Mapping, Mappings};
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
    fn inactive_scheme_names_its_watermarks() {
        let mut sink = sink();
        assert_eq!(sink.schemes[0].inactive_reason(), None, "no event came yet");
        active(&mut sink, false, 612);
        let reason = sink.schemes[0].inactive_reason().unwrap_or_default();
        assert!(
            reason.starts_with("pageout was inactive (watermarks): 612 thousandths")
                && reason.contains("between 200 and 500"),
            "{reason}"
        );
        active(&mut sink, true, 390);
        assert_eq!(sink.schemes[0].inactive_reason(), None);
    }

    #[test]
    fn sizes_prefer_tables_of_the_last_aggregation() {
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
    fn mappings_of_ended_targets_are_dropped() {
        let (mut sink, now) = (sink(), Nanos::ZERO);
        let mappings = |target| {
            let mapping = Mapping {
                start: 0,
                end: 4096,
                name: String::new(),
            };
            Record::Mappings(Mappings {
                time_ns: 0,
                target,
                mappings: vec![mapping],
            })
        };
        for id in 0..3 {
            sink.on(&Event::TargetAppeared {
                now,
                id: TargetId(id),
                pid: Some(7),
                ranges: &[],
            });
            sink.add(&mappings(id));
        }
        for id in 0..2 {
            let (id, pid) = (TargetId(id), Some(7));
            sink.on(&Event::TargetGone { now, id, pid });
        }
        // It was read before the target ended.
        sink.add(&mappings(0));
        let known = [0, 1, 2].map(|target| sink.layout.has_mappings(target));
        assert_eq!(known, [false, false, true]);
    }

    #[test]
    fn pageout_counts_only_after_it_was_applied() {
        let mut sink = sink();
        assert!(sink.has_pageout() && !sink.did_pageout());
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
            by_target: &[],
            stats: &stats,
        });
        assert!(sink.did_pageout());
    }
}
