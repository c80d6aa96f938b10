//! A session: sets up monitoring, supervises it, and ends it in order.
//!
//! The kdamond thread monitors and sends events to the sink. The thread of the session reads mappings, sizes
//! and cost about once a second, shows progress, and decides when the session ends: the targets have ended,
//! the time has passed, the disk is full, or the user pressed Ctrl-C. Where settings can change, SIGHUP makes
//! it read them again.

mod cgroup_wait;
mod distinct_bytes;
mod net_savings;
mod plan;
mod progress;
mod reload;
mod scheme_activity;
mod scheme_inputs;
mod scheme_total;
mod sink;
mod teardown;
mod totals;

pub use distinct_bytes::DistinctBytes;
pub use net_savings::{NetSavings, add_savings_to_json};
pub use plan::{Done, Migration, Plan, Tuning};
pub use progress::Progress;
pub use reload::{ReadSettings, Reloader, Settings};
pub use scheme_total::{SchemeTotal, skipped_json, skipped_text};
pub use sink::SessionSink;
pub use teardown::{Teardown, wait_for};

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use thermo_engine::budget::CpuShare;
use thermo_engine::{Context, Operations};
use thermo_kernel::{clock, malloc, signals};
use thermo_recording::model::Record;
use thermo_report::HeatSizes;
use thermo_runtime::kdamond::{Ended, ExitReason, Kdamond, Parts};
use thermo_runtime::target_records::{self, Survey};
use thermo_term::interrupt;
use thermo_units::Nanos;

use crate::launch;
use cgroup_wait::CgroupWait;
use net_savings::SavingsMeter;
use progress::State;
use totals::TotalsReader;

/// How often the session checks whether it has ended.
const POLL: Duration = Duration::from_millis(50);
/// How often the cost is read and the progress line is shown.
const TICK: Duration = Duration::from_secs(1);
/// Reading mappings and sizes of the targets may take one part in so many of the CPU budget.
const SURVEY_PART: u64 = 8;
/// A look at mappings and sizes takes this much CPU time: hundreds of small processes. The next look goes on.
const SURVEY_SLICE: Nanos = Nanos::millis(20);

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The duration has passed.
    TimePassed,
    /// Every target has ended.
    TargetsGone,
    /// The first Ctrl-C.
    Interrupted,
    /// The recording cannot be written any more.
    RecordingFailed,
    /// Monitoring failed; the error was printed.
    Failed,
}

/// The result of a session.
pub struct Outcome {
    /// Why it ended.
    pub end: EndReason,
    /// How long it lasted.
    pub elapsed: Nanos,
    /// The sink, with the totals and the recording, which is not closed yet.
    pub sink: SessionSink,
    /// What was monitored, as it was at the end; `None` if monitoring did not begin.
    pub context: Option<Context>,
}

impl Outcome {
    /// The heading of totals: the time they cover.
    pub fn heading(&self) -> String {
        format!("totals over {}:\n", self.elapsed)
    }
}

/// Parameters of a session besides context, operations and sink.
pub struct RunParams {
    /// Maximum duration.
    pub duration: Option<Nanos>,
    /// Reads the settings again on SIGHUP.
    pub reloader: Option<Reloader>,
    /// The CPU budget; reading mappings and sizes takes its part of it.
    pub share: Option<CpuShare>,
    /// Reads the totals of the machine or of the control group.
    pub totals: Option<TotalsReader>,
    /// The control group to wait for.
    pub cgroup_wait: Option<CgroupWait>,
}

/// Monitors with `context` on `ops` until the duration has passed or something else ends the session.
///
/// # Errors
/// The thread cannot be started, or the operations failed as a whole.
pub fn run<O: Operations + Send + 'static>(
    context: Context,
    ops: O,
    sink: SessionSink,
    params: RunParams,
) -> anyhow::Result<Outcome> {
    malloc::minimize_footprint();
    let update = Duration::from_nanos(context.attrs().update.0);
    let cpu_begin = clock::process_cpu();
    let savings_meter = sink
        .has_pageout()
        .then(|| SavingsMeter::new(Path::new("/")))
        .flatten();
    let kdamond =
        Kdamond::start(0, Parts { context, ops, sink }).context("cannot start the kdamond thread")?;
    let duration = params.duration;
    let mut supervisor = Supervisor::new(kdamond, cpu_begin, update, params);
    supervisor.savings_meter = savings_meter;
    let end = supervisor.wait_for_end(duration.map(|duration| Duration::from_nanos(duration.0)));
    supervisor.finish(end)
}

/// The thread of the session while the kdamond thread monitors.
struct Supervisor<O> {
    kdamond: Kdamond<O, SessionSink>,
    survey: Survey,
    progress: Progress,
    begin: Instant,
    cpu_begin: Nanos,
    update: Duration,
    reloader: Option<Reloader>,
    share: Option<CpuShare>,
    totals: Option<TotalsReader>,
    cgroup_wait: Option<CgroupWait>,
    /// Measures net savings, if a scheme pages out.
    savings_meter: Option<SavingsMeter>,
}

impl<O: Operations + Send + 'static> Supervisor<O> {
    fn new(kdamond: Kdamond<O, SessionSink>, cpu_begin: Nanos, update: Duration, params: RunParams) -> Self {
        let (survey, progress) = (Survey::default(), Progress::new());
        Self {
            kdamond,
            survey,
            progress,
            begin: Instant::now(),
            cpu_begin,
            update,
            reloader: params.reloader,
            share: params.share,
            totals: params.totals,
            cgroup_wait: params.cgroup_wait,
            savings_meter: None,
        }
    }

    fn wait_for_end(&mut self, duration: Option<Duration>) -> EndReason {
        let (mut next_tick, mut next_update) = (Duration::ZERO, Duration::ZERO);
        loop {
            let elapsed = self.begin.elapsed();
            if self.kdamond.is_finished() {
                return EndReason::TargetsGone;
            }
            if interrupt::requested() {
                return EndReason::Interrupted;
            }
            if duration.is_some_and(|duration| elapsed >= duration) {
                return EndReason::TimePassed;
            }
            if signals::take_hangup() {
                self.reload();
            }
            if elapsed >= next_update {
                next_update = elapsed + self.record_targets();
            }
            if elapsed >= next_tick {
                next_tick = elapsed + TICK;
                if self.tick() {
                    return EndReason::RecordingFailed;
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
                let result = self.kdamond.call(move |parts| commit(&mut parts.context));
                result.unwrap_or(Ok(())).map(|()| "the new values are in effect")
            }
            None => Ok("nothing changed"),
        });
        let message = match committed {
            Ok(result) => format!("parameters read again: {result}"),
            Err(error) => format!("the parameters stay unchanged: {error:#}"),
        };
        self.progress.print(&message);
    }

    /// Reads mappings and sizes of the targets. Returns the time until the next call: with a budget, long
    /// enough that the calls take no more than their part of it.
    fn record_targets(&mut self) -> Duration {
        let begin = clock::thread_cpu();
        let targets = self.targets();
        let slice = match &self.savings_meter {
            // Savings are computed from the sizes of all targets at one time.
            Some(_) => Nanos::MAX,
            None => SURVEY_SLICE,
        };
        let mut records = self.survey.look(&targets, slice);
        if let Some(totals) = &mut self.totals {
            let pids: Vec<u32> = targets.iter().map(|(_, pid)| *pid).collect();
            records.extend(totals.read(&pids));
        }
        self.measure_savings(&records);
        if !records.is_empty() {
            self.kdamond
                .call(move |parts| records.iter().for_each(|record| parts.sink.add(record)));
        }
        let cost = clock::thread_cpu().saturating_sub(begin);
        self.kdamond.add_monitoring_time(cost);
        let pause = self
            .share
            .map_or(Nanos::ZERO, |share| share.time_for(cost) * SURVEY_PART);
        self.update.max(Duration::from_nanos(pause.0))
    }

    /// Reads the cost, prints messages and shows progress. Returns true when the recording failed.
    fn tick(&mut self) -> bool {
        launch::reap_orphans();
        self.report_cgroup();
        let cost = target_records::cost(self.cpu_begin, self.kdamond.cpu_time());
        let shows_progress = self.progress.is_shown();
        let result = self.kdamond.call(move |parts| {
            parts.sink.add(&cost);
            parts.sink.tick();
            let messages = std::mem::take(&mut parts.sink.messages);
            let state = shows_progress.then(|| {
                let sizes = parts.sink.sizes(&parts.context);
                let first_pass = parts.sink.first_pass_percent();
                (parts.context.nr_regions(), sizes, first_pass)
            });
            (parts.sink.recording_failed(), messages, state)
        });
        let Some((failed, messages, state)) = result else {
            return false;
        };
        messages.iter().for_each(|text| self.progress.print(text));
        if let Some((nr_regions, sizes, first_pass)) = state {
            self.show_progress(nr_regions, sizes, first_pass);
        }
        failed
    }

    /// Prints that the control group was removed or created again.
    fn report_cgroup(&mut self) {
        let Some(mut wait) = self.cgroup_wait.take() else {
            return;
        };
        if let Some(change) = wait.change(|| !self.targets().is_empty()) {
            self.progress.print(&change);
        }
        self.cgroup_wait = Some(wait);
    }

    fn show_progress(&mut self, nr_regions: usize, sizes: HeatSizes, first_pass: Option<u64>) {
        let elapsed = self.elapsed();
        let cpu = clock::process_cpu().saturating_sub(self.cpu_begin).0 as f64;
        let cpu_percent = 100.0 * cpu / (elapsed.0.max(1) as f64);
        self.progress.show(&State {
            elapsed,
            nr_regions,
            sizes,
            first_pass,
            cpu_percent,
        });
    }

    fn elapsed(&self) -> Nanos {
        Nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn measure_savings(&mut self, records: &[Record]) {
        if let Some(meter) = &mut self.savings_meter {
            meter.measure(Path::new("/"), records);
        }
    }

    /// The current targets: their numbers and process IDs.
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

    fn finish(mut self, end: EndReason) -> anyhow::Result<Outcome> {
        let (cpu_time, elapsed) = (self.kdamond.cpu_time(), self.elapsed());
        if self.savings_meter.is_some() {
            self.measure_savings(&target_records::footprints(&self.targets()));
        }
        let Ended { parts, reason } = self.kdamond.stop();
        let mut sink = parts.sink;
        // If nothing was paged out, growth of zram comes from other processes.
        let meter = self.savings_meter.as_ref().filter(|_| sink.did_pageout());
        sink.savings = meter.and_then(SavingsMeter::savings);
        let sizes = sink.sizes(&parts.context);
        sink.unknown_share = (sizes.total() > 0).then_some(sizes.unknown.share);
        sink.add(&target_records::cost(self.cpu_begin, cpu_time));
        self.progress.clear();
        let last_warning = sink.last_warning();
        sink.messages.extend(last_warning);
        sink.messages
            .drain(..)
            .for_each(|text| self.progress.print(&text));
        let end = match reason {
            ExitReason::Failed(error) => {
                self.progress.print(&format!("monitoring ended early: {error}"));
                EndReason::Failed
            }
            _ if sink.recording_failed() => EndReason::RecordingFailed,
            ExitReason::TargetsGone => EndReason::TargetsGone,
            ExitReason::Stopped => end,
        };
        Ok(Outcome {
            end,
            elapsed,
            sink,
            context: Some(parts.context),
        })
    }
}
