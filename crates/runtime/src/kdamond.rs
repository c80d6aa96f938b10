//! The thread that runs a context, named `kdamond.N` as in the kernel.
//!
//! It owns the context, its operations and its sink. Others reach them through [`Kdamond::call`], which runs
//! between two steps: nothing is shared, so nothing needs a lock.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thermo_engine::{Context, Event, Next, Operations, OpsError, Sink};
use thermo_kernel::clock;
use thermo_units::Nanos;

/// What a kdamond's thread owns.
#[derive(Debug)]
pub struct Parts<O, S> {
    /// The monitoring and its schemes.
    pub context: Context,
    /// The machine it watches.
    pub ops: O,
    /// Who listens.
    pub sink: S,
}

/// How a kdamond ended, with what it owned.
#[derive(Debug)]
pub struct Ended<O, S> {
    /// Context, operations and sink as they were at the end.
    pub parts: Parts<O, S>,
    /// Why it ended.
    pub why: Why,
}

/// Why a kdamond ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It was told to.
    Stopped,
    /// All its targets are gone.
    TargetsGone,
    /// The operations failed.
    Failed(OpsError),
}

/// CPU time a kdamond used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// All of its thread's, and what was delegated.
    pub all: Nanos,
    /// The part spent on looking: not in sinks, not on actions.
    pub looking: Nanos,
    /// The part of that which a thread of the kernel spent for it.
    pub delegated: Nanos,
}

/// Something to do between two steps.
type Job<O, S> = Box<dyn FnOnce(&mut Parts<O, S>) + Send>;

enum Command<O, S> {
    Run(Job<O, S>),
    /// Nothing to do but to notice that it should stop.
    Stop,
}

/// A running kdamond.
#[derive(Debug)]
pub struct Kdamond<O, S> {
    thread: JoinHandle<Ended<O, S>>,
    commands: Sender<Command<O, S>>,
    stop: Arc<AtomicBool>,
    meter: Arc<Meter>,
}

#[derive(Debug, Default)]
struct Meter {
    all_ns: AtomicU64,
    looking_ns: AtomicU64,
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
    /// When the system has no thread to give.
    pub fn start(number: u32, parts: Parts<O, S>) -> io::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let (stop, meter) = (Arc::new(AtomicBool::new(false)), Arc::new(Meter::default()));
        let (told, measured) = (Arc::clone(&stop), Arc::clone(&meter));
        let thread = thread::Builder::new()
            .name(format!("kdamond.{number}"))
            .spawn(move || run(parts, &inbox, &told, &measured))?;
        Ok(Self {
            thread,
            commands,
            stop,
            meter,
        })
    }

    /// Runs `f` between two steps and returns what it returns; `None` when the kdamond has ended.
    pub fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Parts<O, S>) -> R + Send + 'static,
    ) -> Option<R> {
        let (reply, answer) = mpsc::channel();
        let job: Job<O, S> = Box::new(move |parts| {
            // Whoever asked may have given up waiting.
            drop(reply.send(f(parts)));
        });
        self.commands.send(Command::Run(job)).ok()?;
        answer.recv().ok()
    }

    /// True once the thread has ended by itself or been stopped.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// The CPU time it used up to the end of its last step.
    #[must_use]
    pub fn spent(&self) -> Spent {
        Spent {
            all: Nanos(self.meter.all_ns.load(Ordering::Relaxed)),
            looking: Nanos(self.meter.looking_ns.load(Ordering::Relaxed)),
            delegated: Nanos(self.meter.delegated_ns.load(Ordering::Relaxed)),
        }
    }

    /// Books CPU time that others spent on looking for it, so that a budget bounds that, too.
    pub fn add_looking(&self, spent: Nanos) {
        self.meter.looking_ns.fetch_add(spent.0, Ordering::Relaxed);
    }

    /// Ends it after the step it is in (as dropping it does, without waiting) and returns what it owned.
    ///
    /// # Panics
    /// With the panic of its thread, if that panicked.
    #[must_use]
    pub fn stop(self) -> Ended<O, S> {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes a thread that waits for its next step; one that has ended needs no waking.
        drop(self.commands.send(Command::Stop));
        self.join()
    }

    /// Waits until it ends by itself and returns what it owned.
    ///
    /// # Panics
    /// With the panic of its thread, if that panicked.
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
    meter: &Meter,
) -> Ended<O, S> {
    let why = loop {
        let due = match measured_step(&mut parts, meter) {
            Ok(Next::At(due)) => due,
            Ok(Next::Finished) => break Why::TargetsGone,
            Err(error) => break Why::Failed(error),
        };
        if !serve_until(due, inbox, &mut parts) || stop.load(Ordering::Relaxed) {
            break Why::Stopped;
        }
    };
    Ended { parts, why }
}

/// Waits until `due`, or until something is asked for and done: that may have changed what is due. False when
/// nobody holds the handle any more.
fn serve_until<O, S>(due: Nanos, inbox: &Receiver<Command<O, S>>, parts: &mut Parts<O, S>) -> bool {
    let wait = Duration::from_nanos(due.saturating_sub(clock::monotonic()).0);
    match inbox.recv_timeout(wait) {
        Ok(Command::Run(run)) => run(parts),
        Ok(Command::Stop) | Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => return false,
    }
    true
}

/// One step of the context, its CPU time booked to looking except for what sinks and actions took.
fn measured_step<O: Operations, S: Sink>(parts: &mut Parts<O, S>, meter: &Meter) -> Result<Next, OpsError> {
    let (before, acted_before) = (clock::thread_cpu(), acting(&parts.context));
    let mut sink = MeteredSink {
        sink: &mut parts.sink,
        spent: Nanos::ZERO,
    };
    let next = parts.context.step(clock::monotonic(), &mut parts.ops, &mut sink);
    let elsewhere = sink.spent + acting(&parts.context).saturating_sub(acted_before);
    let after = clock::thread_cpu();
    let delegated = parts.ops.spent_elsewhere();
    let newly = delegated
        .0
        .saturating_sub(meter.delegated_ns.swap(delegated.0, Ordering::Relaxed));
    meter.all_ns.store((after + delegated).0, Ordering::Relaxed);
    let looking = after.saturating_sub(before).saturating_sub(elsewhere) + Nanos(newly);
    let total = meter.looking_ns.fetch_add(looking.0, Ordering::Relaxed) + looking.0;
    parts.context.spent(clock::monotonic(), Nanos(total));
    next.map(|next| parts.context.rest(next))
}

/// CPU time that actions took so far.
fn acting(context: &Context) -> Nanos {
    context.schemes().iter().map(|scheme| scheme.stats().spent).sum()
}

/// Passes events on and adds up what listening to them costs.
struct MeteredSink<'a, S> {
    sink: &'a mut S,
    spent: Nanos,
}

impl<S: Sink> Sink for MeteredSink<'_, S> {
    fn on(&mut self, event: &Event<'_>) {
        // One comes every sampling interval and costs less than asking the clock twice.
        if matches!(event, Event::Sampled { .. }) {
            return self.sink.on(event);
        }
        let before = clock::thread_cpu();
        self.sink.on(event);
        self.spent += clock::thread_cpu().saturating_sub(before);
    }
}
