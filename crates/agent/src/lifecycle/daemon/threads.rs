//! The daemon's other threads: one polls the state sources, one reclaims, one prefetches.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thermo_units::{Nanos, Permille};

use super::{DaemonError, Event, EventSender, Executor, Task};
use crate::lifecycle::config::AppConfig;
use crate::lifecycle::sources::{AccessProbe, StateSources};
use crate::lifecycle::table::AppTable;
use crate::lifecycle::throttle::CallThrottle;

/// A new configuration for the thread that polls the sources.
struct SourceConfig {
    table: AppTable,
    apps: Vec<AppConfig>,
    poll: Nanos,
}

/// The threads. Dropping this value closes the channels; each thread returns after its current task.
pub(super) struct Threads {
    reclaim: Sender<Task>,
    prefetch: Sender<Task>,
    sources: Sender<SourceConfig>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(super) fn start(
        root: &Path,
        events: &EventSender,
        access_probe: Option<Box<dyn AccessProbe>>,
    ) -> io::Result<Self> {
        let mut handles = Vec::new();
        let mut start_executor = |name: &str| {
            let (sender, tasks) = mpsc::channel();
            let (root, events) = (root.to_owned(), events.clone());
            let body = move || run_tasks(&root, &tasks, &events);
            handles.push(thread::Builder::new().name(name.to_owned()).spawn(body)?);
            Ok::<_, io::Error>(sender)
        };
        let (sender, configs) = mpsc::channel();
        let (reclaim, prefetch) = (start_executor("reclaim")?, start_executor("prefetch")?);
        let (sources, events) = (StateSources::new(root, access_probe), events.clone());
        let body = move || poll_sources(sources, &configs, &events);
        handles.push(thread::Builder::new().name("sources".to_owned()).spawn(body)?);
        Ok(Self {
            reclaim,
            prefetch,
            sources: sender,
            handles,
        })
    }

    /// Checks that all threads run.
    ///
    /// # Errors
    /// A thread has ended. As its channel is open, it has panicked.
    pub(super) fn check(&self) -> Result<(), DaemonError> {
        let ended = self.handles.iter().find(|handle| handle.is_finished());
        ended.map_or(Ok(()), |handle| {
            let name = handle.thread().name().unwrap_or_default().to_owned();
            Err(DaemonError::ThreadPanicked(name))
        })
    }

    /// Queues a job for its thread.
    pub(super) fn start_job(&self, task: Task) {
        let thread = if task.profile.is_some() {
            &self.reclaim
        } else {
            &self.prefetch
        };
        // Fails if the thread has panicked: `check` reports that.
        let _ = thread.send(task);
    }

    /// Polls these applications from now on.
    pub(super) fn configure_sources(&self, table: AppTable, apps: Vec<AppConfig>, poll: Nanos) {
        // As above.
        let _ = self.sources.send(SourceConfig { table, apps, poll });
    }
}

fn run_tasks(root: &Path, tasks: &Receiver<Task>, events: &EventSender) {
    let mut executor = Executor {
        root: root.to_owned(),
        throttle: CallThrottle::new(Permille(1000)),
    };
    for task in tasks {
        executor.throttle = executor.throttle.for_next_job(task.duty);
        // A job that panicked leaves no invalid state.
        let mut processes = task
            .processes
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let cost = match task.profile {
            Some(profile) => {
                executor.reclaim(&mut processes, profile, task.swap_low, task.since, &task.cancel)
            }
            None => executor.prefetch(&processes, task.since, &task.cancel),
        };
        drop(processes);
        events.send(Event::JobEnded(task.job, cost));
    }
}

fn poll_sources(mut sources: StateSources, configs: &Receiver<SourceConfig>, events: &EventSender) {
    let mut poll = Duration::from_secs(1);
    let mut next = Instant::now();
    loop {
        match configs.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(config) => {
                sources.configure(config.table, config.apps);
                poll = Duration::from_nanos(config.poll.0);
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                sources.poll(&mut |app, event| events.send(Event::State(app.to_owned(), event)));
                // The interval starts now, so a poll that took long is not followed by extra polls.
                next = Instant::now() + poll;
            }
        }
    }
}
