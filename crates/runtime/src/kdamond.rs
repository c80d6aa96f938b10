//! The thread that runs a context, named `kdamond.N` as in the kernel.
//!
//! The thread owns the context, its operations and its sink. Other threads access them through
//! [`Kdamond::call`], which runs a function between two steps. Nothing is shared, so no lock is needed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thermo_engine::{Context, Event, Next, Operations, OpsError, Sink};
use thermo_kernel::clock;
use thermo_units::Nanos;

/// What the thread of a kdamond owns.
#[derive(Debug)]
pub struct Parts<O, S> {
    /// Monitoring and schemes.
    pub context: Context,
    /// Access to the monitored machine.
    pub ops: O,
    /// Receiver of events.
    pub sink: S,
}

/// Result of a kdamond that has ended.
#[derive(Debug)]
pub struct Ended<O, S> {
    /// Context, operations and sink in their final state.
    pub parts: Parts<O, S>,
    /// Why the kdamond ended.
    pub reason: ExitReason,
}

/// Why a kdamond ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// [`Kdamond::stop`] was called, or the handle was dropped.
    Stopped,
    /// All targets have ended.
    TargetsGone,
    /// The operations failed.
    Failed(OpsError),
}

/// CPU time that a kdamond has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// CPU time of the thread, plus `delegated`.
    pub total: Nanos,
    /// The part spent on monitoring: neither in sinks nor on actions.
    pub monitoring: Nanos,
    /// The part of `monitoring` that a kernel thread spent for this kdamond.
    pub delegated: Nanos,
}

/// A function to run between two steps.
type Job<O, S> = Box<dyn FnOnce(&mut Parts<O, S>) + Send>;

enum Command<O, S> {
    Run(Job<O, S>),
    /// Wakes the thread, which then reads the stop flag.
    Stop,
}

/// A running kdamond.
#[derive(Debug)]
pub struct Kdamond<O, S> {
    thread: JoinHandle<Ended<O, S>>,
    commands: Sender<Command<O, S>>,
    stop: Arc<AtomicBool>,
    meter: Arc<CpuMeter>,
}

#[derive(Debug, Default)]
struct CpuMeter {
    total_ns: AtomicU64,
    monitoring_ns: AtomicU64,
    delegated_ns: AtomicU64,
}

impl<O, S> Kdamond<O, S>
where
    O: Operations + Send + 'static,
    S: Sink + Send + 'static,
{
    /// Starts thread `kdamond.{number}` on `parts`.
    ///
    /// # Errors
    /// If no thread can be created.
    pub fn start(number: u32, parts: Parts<O, S>) -> io::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let (stop, meter) = (Arc::new(AtomicBool::new(false)), Arc::new(CpuMeter::default()));
        let (thread_stop, thread_meter) = (Arc::clone(&stop), Arc::clone(&meter));
        let thread = thread::Builder::new()
            .name(format!("kdamond.{number}"))
            .spawn(move || run(parts, &inbox, &thread_stop, &thread_meter))?;
        Ok(Self {
            thread,
            commands,
            stop,
            meter,
        })
    }

    /// Runs `f` between two steps and returns its result; `None` if the kdamond has ended. A step takes as
    /// long as the actions of its schemes.
    pub fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Parts<O, S>) -> R + Send + 'static,
    ) -> Option<R> {
        self.begin_call(f)?.recv().ok()
    }

    /// Like [`Kdamond::call`] without waiting: the result comes from the receiver, which is disconnected if
    /// the kdamond ends before. Functions run in the order of the calls, also if nobody waits for them.
    pub fn begin_call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Parts<O, S>) -> R + Send + 'static,
    ) -> Option<Receiver<R>> {
        let (reply, result) = mpsc::channel();
        let job: Job<O, S> = Box::new(move |parts| {
            // The caller may not wait any more.
            drop(reply.send(f(parts)));
        });
        self.commands.send(Command::Run(job)).ok()?;
        Some(result)
    }

    /// True if the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// CPU time used up to the end of the last step.
    #[must_use]
    pub fn cpu_time(&self) -> CpuTime {
        CpuTime {
            total: Nanos(self.meter.total_ns.load(Ordering::Relaxed)),
            monitoring: Nanos(self.meter.monitoring_ns.load(Ordering::Relaxed)),
            delegated: Nanos(self.meter.delegated_ns.load(Ordering::Relaxed)),
        }
    }

    /// Adds monitoring time of another thread, so that the budget covers that time, too.
    pub fn add_monitoring_time(&self, time: Nanos) {
        self.meter.monitoring_ns.fetch_add(time.0, Ordering::Relaxed);
    }

    /// Stops the thread after its current step, waits for it, and returns what it owned. Dropping the handle
    /// also stops the thread, without waiting.
    ///
    /// # Panics
    /// If the thread panicked: with the same panic.
    #[must_use]
    pub fn stop(self) -> Ended<O, S> {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes a thread that waits for its next step. Sending fails if the thread has ended already.
        drop(self.commands.send(Command::Stop));
        self.join()
    }

    /// Waits until the thread ends by itself, and returns what it owned.
    ///
    /// # Panics
    /// If the thread panicked: with the same panic.
    #[must_use]
    pub fn join(self) -> Ended<O, S> {
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn run<O: Operations, S: Sink>(
    mut parts: Parts<O, S>,
    inbox: &Receiver<Command<O, S>>,
    stop: &AtomicBool,
    meter: &CpuMeter,
) -> Ended<O, S> {
    let reason = loop {
        let due = match measured_step(&mut parts, meter) {
            Ok(Next::At(due)) => due,
            Ok(Next::Finished) => break ExitReason::TargetsGone,
            Err(error) => break ExitReason::Failed(error),
        };
        if !serve_until(due, inbox, &mut parts) || stop.load(Ordering::Relaxed) {
            break ExitReason::Stopped;
        }
    };
    Ended { parts, reason }
}

/// Waits until `due` or until one command was executed, which may have changed the time of the next step.
/// Returns false if the handle was dropped.
fn serve_until<O, S>(due: Nanos, inbox: &Receiver<Command<O, S>>, parts: &mut Parts<O, S>) -> bool {
    let timeout = Duration::from_nanos(due.saturating_sub(clock::monotonic()).0);
    match inbox.recv_timeout(timeout) {
        Ok(Command::Run(job)) => job(parts),
        Ok(Command::Stop) | Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => return false,
    }
    true
}

/// Runs one step of the context. The CPU time of the step counts as monitoring, except that of sinks and
/// actions.
fn measured_step<O: Operations, S: Sink>(
    parts: &mut Parts<O, S>,
    meter: &CpuMeter,
) -> Result<Next, OpsError> {
    let (cpu_before, actions_before) = (clock::thread_cpu(), action_time(&parts.context));
    let mut sink = MeteredSink {
        sink: &mut parts.sink,
        spent: Nanos::ZERO,
    };
    let next = parts.context.step(clock::monotonic(), &mut parts.ops, &mut sink);
    let output = sink.spent;
    let sinks_and_actions = output + action_time(&parts.context).saturating_sub(actions_before);
    let cpu = clock::thread_cpu();
    let delegated = parts.ops.external_cpu_time();
    let new_delegated = delegated
        .0
        .saturating_sub(meter.delegated_ns.swap(delegated.0, Ordering::Relaxed));
    meter.total_ns.store((cpu + delegated).0, Ordering::Relaxed);
    let own = cpu.saturating_sub(cpu_before).saturating_sub(sinks_and_actions);
    let monitoring = own + Nanos(new_delegated);
    let total = meter.monitoring_ns.fetch_add(monitoring.0, Ordering::Relaxed) + monitoring.0;
    parts.context.charge(clock::monotonic(), Nanos(total));
    parts.context.charge_output(clock::monotonic(), output);
    next.map(|next| parts.context.delay_for_budget(next))
}

/// CPU time of all actions since the start.
fn action_time(context: &Context) -> Nanos {
    context.schemes().iter().map(|scheme| scheme.stats().spent).sum()
}

/// Forwards events to `sink` and measures the CPU time of the sink.
struct MeteredSink<'a, S> {
    sink: &'a mut S,
    spent: Nanos,
}

impl<S: Sink> Sink for MeteredSink<'_, S> {
    fn on(&mut self, event: &Event<'_>) {
        // This event comes every sampling interval, and costs less than reading the clock twice.
        if matches!(event, Event::Sampled { .. }) {
            return self.sink.on(event);
        }
        let before = clock::thread_cpu();
        self.sink.on(event);
        self.spent += clock::thread_cpu().saturating_sub(before);
    }
}
