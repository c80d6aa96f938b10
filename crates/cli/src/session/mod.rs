//! A session: monitoring put together, watched over, and brought to an orderly end.
//!
//! The kdamond looks and tells its sink; this thread reads what else there is to know once a second, shows how
//! far it is, and decides when it is over: the targets are gone, the time has passed, the disk is full, or
//! somebody pressed Ctrl-C. Where settings can change meanwhile, a hangup makes it read them anew.

mod distinct;
mod host;
mod inputs;
mod net_savings;
mod plan;
mod progress;
mod reload;
mod sink;
mod survey;
mod teardown;
mod totals;

pub use host::{Host, Requirements};
pub use net_savings::{Saving, add_to_json};
pub use plan::{Done, Plan, Tuning};
pub use reload::{Read, Reloader, Settings};
pub use sink::{SessionSink, Total};
pub use teardown::{Ending, wait_for};

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use thermo_engine::budget::CpuShare;
use thermo_engine::{Context, Operations};
use thermo_kernel::{clock, malloc, signals};
use thermo_recording::model::Record;
use thermo_report::HeatSizes;
use thermo_runtime::kdamond::{Ended, Kdamond, Parts, Why};
use thermo_term::interrupt;
use thermo_units::Nanos;

use crate::launch;
use net_savings::Scale;
use progress::{Progress, State};
use survey::Survey;
use totals::TotalsReader;

/// How often the session looks whether it is over.
const POLL: Duration = Duration::from_millis(50);
/// How often the cost is read, and the progress line is shown.
const TICK: Duration = Duration::from_secs(1);
/// What the session reads of its targets may take this part of the budget: one in so many.
const SURVEY_PART: u64 = 8;

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its time has passed.
    TimePassed,
    /// Every target is gone.
    TargetsGone,
    /// The first Ctrl-C.
    Interrupted,
    /// The recording cannot be continued.
    RecordingFailed,
    /// Monitoring failed in its course, which was said.
    Failed,
}

/// What a session came to.
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// Who listened, with totals and the recording that is to be finished.
    pub sink: SessionSink,
}

/// What a session has besides context, operations and sink.
pub struct Settled {
    /// How long it lasts; without it until something else ends it.
    pub duration: Option<Nanos>,
    /// Reads parameters anew on SIGHUP.
    pub reloader: Option<Reloader>,
    /// The CPU budget, of which what the session itself reads has its part.
    pub share: Option<CpuShare>,
    /// Reads where the memory of the machine or a group is.
    pub totals: Option<TotalsReader>,
}

/// Monitors with `context` on `ops` until the time is over or something else ends it.
///
/// # Errors
/// The thread cannot be started, or the operations as a whole failed.
pub fn run<O: Operations + Send + 'static>(
    context: Context,
    ops: O,
    sink: SessionSink,
    settled: Settled,
) -> anyhow::Result<Outcome> {
    malloc::keep_small();
    let update = Duration::from_nanos(context.attrs().update.0);
    let cpu_begin = clock::process_cpu();
    let scale = sink.pages_out().then(|| Scale::new(Path::new("/"))).flatten();
    let kdamond =
        Kdamond::start(0, Parts { context, ops, sink }).context("cannot start the kdamond thread")?;
    let duration = settled.duration;
    let mut watch = Watch::new(kdamond, cpu_begin, update, settled);
    watch.scale = scale;
    let end = watch.until_end(duration.map(|duration| Duration::from_nanos(duration.0)));
    watch.finish(end)
}

/// What the session's own thread does while the kdamond looks.
struct Watch<O> {
    kdamond: Kdamond<O, SessionSink>,
    survey: Survey,
    progress: Progress,
    begin: Instant,
    cpu_begin: Nanos,
    update: Duration,
    reloader: Option<Reloader>,
    share: Option<CpuShare>,
    totals: Option<TotalsReader>,
    /// Weighs what is saved, where memory is paged out.
    scale: Option<Scale>,
}

impl<O: Operations + Send + 'static> Watch<O> {
    fn new(kdamond: Kdamond<O, SessionSink>, cpu_begin: Nanos, update: Duration, settled: Settled) -> Self {
        let (survey, progress) = (Survey::default(), Progress::new());
        Self {
            kdamond,
            survey,
            progress,
            begin: Instant::now(),
            cpu_begin,
            update,
            reloader: settled.reloader,
            share: settled.share,
            totals: settled.totals,
            scale: None,
        }
    }

    fn until_end(&mut self, duration: Option<Duration>) -> End {
        let (mut next_tick, mut next_update) = (Duration::ZERO, Duration::ZERO);
        loop {
            let elapsed = self.begin.elapsed();
            if self.kdamond.is_finished() {
                return End::TargetsGone;
            }
            if interrupt::asked() {
                return End::Interrupted;
            }
            if duration.is_some_and(|duration| elapsed >= duration) {
                return End::TimePassed;
            }
            if signals::take_hangup() {
                self.reload();
            }
            if elapsed >= next_update {
                next_update = elapsed + self.survey();
            }
            if elapsed >= next_tick {
                next_tick = elapsed + TICK;
                if self.tick() {
                    return End::RecordingFailed;
                }
            }
            thread::sleep(POLL);
        }
    }

    fn reload(&mut self) {
        let Some(reloader) = &mut self.reloader else {
            return;
        };
        let committed = reloader.reload().and_then(|commit| match commit {
            // A kdamond that has ended needs no settings.
            Some(commit) => {
                let done = self.kdamond.call(move |parts| commit(&mut parts.context));
                done.unwrap_or(Ok(())).map(|()| "hold from now on")
            }
            None => Ok("are as they were"),
        });
        let told = match committed {
            Ok(so) => format!("the parameters were read anew and {so}"),
            Err(error) => format!("the parameters stay as they were: {error:#}"),
        };
        self.progress.say(&told);
    }

    /// Reads the mappings and sizes of the targets, and returns when to do so again: with a budget, so late that it
    /// takes no more than a part of it.
    fn survey(&mut self) -> Duration {
        let begin = clock::thread_cpu();
        let targets = self.targets();
        let mut records = self.survey.mappings(&targets);
        records.extend(survey::footprints(&targets));
        if let Some(totals) = &mut self.totals {
            let pids: Vec<u32> = targets.iter().map(|(_, pid)| *pid).collect();
            records.extend(totals.read(&pids));
        }
        self.weigh(&records);
        if !records.is_empty() {
            self.kdamond
                .call(move |parts| records.iter().for_each(|record| parts.sink.add(record)));
        }
        let cost = clock::thread_cpu().saturating_sub(begin);
        self.kdamond.add_looking(cost);
        let rest = self
            .share
            .map_or(Nanos::ZERO, |share| share.time_for(cost) * SURVEY_PART);
        self.update.max(Duration::from_nanos(rest.0))
    }

    /// Reads the cost, and shows how far it is. True when the recording failed.
    fn tick(&mut self) -> bool {
        launch::reap_orphans();
        let cost = survey::cost(self.cpu_begin, self.kdamond.spent());
        let is_shown = self.progress.is_shown();
        let told = self.kdamond.call(move |parts| {
            parts.sink.add(&cost);
            parts.sink.tick();
            let news = std::mem::take(&mut parts.sink.news);
            let state = is_shown.then(|| {
                let sizes = parts.sink.sizes(&parts.context);
                (parts.context.nr_regions(), sizes, parts.sink.first_pass())
            });
            (parts.sink.recording_failed(), news, state)
        });
        let Some((failed, news, state)) = told else {
            return false;
        };
        news.iter().for_each(|text| self.progress.say(text));
        if let Some((nr_regions, sizes, first_pass)) = state {
            self.show(nr_regions, sizes, first_pass);
        }
        failed
    }

    fn show(&mut self, nr_regions: usize, sizes: HeatSizes, first_pass: Option<u64>) {
        let elapsed = self.begin.elapsed();
        let cpu = clock::process_cpu().saturating_sub(self.cpu_begin).0 as f64;
        let cpu_percent = 100.0 * cpu / (elapsed.as_nanos().max(1) as f64);
        let elapsed = Nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
        self.progress.show(&State {
            elapsed,
            nr_regions,
            sizes,
            first_pass,
            cpu_percent,
        });
    }

    fn weigh(&mut self, records: &[Record]) {
        if let Some(scale) = &mut self.scale {
            scale.weigh(Path::new("/"), records);
        }
    }

    /// The targets there are now: their numbers and pids.
    fn targets(&self) -> Vec<(u32, u32)> {
        let targets = self.kdamond.call(|parts| {
            parts
                .context
                .targets()
                .filter_map(|target| Some((target.id.0, target.pid?)))
                .collect()
        });
        targets.unwrap_or_default()
    }

    fn finish(mut self, end: End) -> anyhow::Result<Outcome> {
        let spent = self.kdamond.spent();
        if self.scale.is_some() {
            self.weigh(&survey::footprints(&self.targets()));
        }
        let Ended { parts, why } = self.kdamond.stop();
        let mut sink = parts.sink;
        // What others put into zram meanwhile would pass for a saving where nothing was done.
        let scale = self.scale.as_ref().filter(|_| sink.paged_out());
        sink.saving = scale.and_then(Scale::saving);
        let sizes = sink.sizes(&parts.context);
        sink.unknown_share = (sizes.total() > 0).then_some(sizes.unknown.share);
        sink.add(&survey::cost(self.cpu_begin, spent));
        self.progress.clear();
        let last_warning = sink.last_warning();
        sink.news.extend(last_warning);
        sink.news.drain(..).for_each(|text| self.progress.say(&text));
        match why {
            Why::Failed(error) => {
                self.progress.say(&format!("monitoring ended early: {error}"));
                Ok(Outcome {
                    end: End::Failed,
                    sink,
                })
            }
            _ if sink.recording_failed() => Ok(Outcome {
                end: End::RecordingFailed,
                sink,
            }),
            Why::TargetsGone => Ok(Outcome {
                end: End::TargetsGone,
                sink,
            }),
            Why::Stopped => Ok(Outcome { end, sink }),
        }
    }
}
