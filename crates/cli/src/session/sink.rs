//! Who listens to a session's kdamond: the recording, and what the session itself wants to know.

use thermo_core::scheme::SchemeStats;
use thermo_core::{Action, Context, Event, Scheme, Sink};
use thermo_record::Recorder;
use thermo_record::model::{Record, Region, Snapshot, Target};
use thermo_report::{HeatSizes, Layout};
use thermo_sys::clock;

/// The sink of a session.
pub struct SessionSink {
    /// The recording; none where only the actions count.
    pub recorder: Option<Recorder>,
    /// Mappings and sizes of the targets, as last read.
    layout: Layout,
    /// Each scheme's action and totals, in their order.
    pub schemes: Vec<(Action, SchemeStats)>,
    /// Sentences to pass on to the user, in the order they came.
    pub news: Vec<String>,
    /// Whether changed plans are news.
    verbose: bool,
}

impl SessionSink {
    /// A sink for a context that carries out `schemes`.
    pub fn new(recorder: Option<Recorder>, schemes: &[Scheme], verbose: bool) -> Self {
        Self {
            recorder,
            layout: Layout::default(),
            schemes: schemes
                .iter()
                .map(|scheme| (scheme.action, SchemeStats::default()))
                .collect(),
            news: Vec::new(),
            verbose,
        }
    }

    /// Takes what the session itself has read of the targets.
    pub fn add(&mut self, record: &Record) {
        self.layout.add(record);
        if let Some(recorder) = &mut self.recorder {
            recorder.record(record);
        }
    }

    /// Writes what is due, for events may be seldom.
    pub fn tick(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tick(clock::monotonic());
        }
    }

    /// Memory by its heat in the last whole aggregation of `context`.
    pub fn sizes(&self, context: &Context) -> HeatSizes {
        HeatSizes::of(&last_aggregation(context), &self.layout)
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
        if let Some(recorder) = &mut self.recorder {
            recorder.on(event);
        }
        match event {
            Event::SchemeApplied { scheme, stats, .. } => {
                if let Some((_, total)) = self.schemes.get_mut(*scheme) {
                    *total = **stats;
                }
            }
            Event::Planned { plan, .. } if self.verbose => self.news.push(plan.to_string()),
            Event::Warning { text, .. } => self.news.push((*text).to_owned()),
            _ => {}
        }
    }
}

fn last_aggregation(context: &Context) -> Snapshot {
    let region = |region: &thermo_core::Region| Region {
        start: region.range.start.0,
        end: region.range.end.0,
        nr_accesses: region.last_nr_accesses,
        age: region.age,
        unknown: region.unknown,
    };
    let targets = context.targets().map(|target| Target {
        id: target.id.0,
        pid: target.pid,
        regions: target.regions.iter().map(region).collect(),
    });
    Snapshot {
        max_nr_accesses: context.attrs().max_nr_accesses(),
        targets: targets.collect(),
        ..Snapshot::default()
    }
}
