//! Who listens to a session's kdamond: the recording, and what the session itself wants to know.

use thermo_core::scheme::SchemeStats;
use thermo_core::{Event, Sink};
use thermo_record::Recorder;
use thermo_record::model::{Record, Snapshot};
use thermo_report::{HeatSizes, Layout};

/// The sink of a session.
pub struct SessionSink {
    /// The recording; none where only the action counts.
    pub recorder: Option<Recorder>,
    /// Mappings and sizes of the targets, as last read.
    pub layout: Layout,
    /// Totals of each scheme, by its index.
    pub schemes: Vec<SchemeStats>,
    /// Sentences to pass on to the user.
    pub warnings: Vec<String>,
    /// Aggregations in which targets lived.
    pub nr_snapshots: u64,
    latest: Option<Snapshot>,
}

impl SessionSink {
    /// A sink for a context of `nr_schemes` schemes.
    pub fn new(recorder: Option<Recorder>, nr_schemes: usize) -> Self {
        Self {
            recorder,
            layout: Layout::default(),
            schemes: vec![SchemeStats::default(); nr_schemes],
            warnings: Vec::new(),
            nr_snapshots: 0,
            latest: None,
        }
    }

    /// Takes what the session itself has read of the targets.
    pub fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Some(recorder) = &mut self.recorder {
            recorder.record(record);
        }
    }

    /// How many regions the last aggregation had, and their memory by its heat.
    pub fn heat(&self) -> (usize, HeatSizes) {
        let Some(latest) = &self.latest else { return (0, HeatSizes::default()) };
        let nr_regions = latest.targets.iter().map(|target| target.regions.len()).sum();
        (nr_regions, HeatSizes::of(latest, &self.layout))
    }

    /// Why recording stopped, if it did.
    pub fn recording_failed(&self) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| recorder.error().is_some())
    }
}

impl Sink for SessionSink {
    fn on(&mut self, event: &Event<'_>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.on(event);
        }
        match event {
            Event::Aggregated { targets, .. } if !targets.is_empty() => {
                self.nr_snapshots += 1;
            }
            Event::SchemeApplied { scheme, stats, .. } => {
                if let Some(total) = self.schemes.get_mut(*scheme) {
                    *total = **stats;
                }
            }
            Event::Warning { text, .. } => self.warnings.push((*text).to_owned()),
            _ => {}
        }
    }
}
