//! Calls that wait for another process: for the lock of its address space (`mmap_lock`), or for its pages.
//!
//! A process can hold that lock for ever: inside `mmap` on a dead network mount, or on a FUSE mount that
//! never answers. A system call cannot be taken back from the thread that made it, so these calls run on
//! threads of their own. The caller waits as long as the call makes progress, and gives up when it stands
//! still ([`NotAnswering`]). The thread goes on waiting, and the process is *set aside*: further calls for it
//! fail at once. The waiting call itself finds out when the process answers again, so nothing has to be
//! tried.
//!
//! The arguments of a call are owned by it, because it may outlive its caller. The CPU time of the call
//! counts as that of the caller ([`crate::clock::thread_cpu`]).
//!
//! Each caller has threads of its own, so they have its capabilities. They end with it, and when it gives up
//! capabilities.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use thermo_units::Nanos;

use crate::file::FileError;

/// Maximum number of threads, so of processes that are set aside at the same time.
const MAX_THREADS: usize = 256;

/// Threads of a caller that are kept for its next call. It waits for one at a time; others have come back
/// from a process that did not answer.
const MAX_IDLE: usize = 2;

/// How long a call may stand still while it waits for the lock.
const LOCK_WAIT: Duration = Duration::from_millis(100);

/// How long a call may stand still once it had the lock. It may wait for a disk then.
const WORK_WAIT: Duration = Duration::from_millis(500);

/// How long a process that answered again gets less time, and how much less.
const RECENTLY: Duration = Duration::from_secs(60);
const RECENT_DIVISOR: u32 = 5;

/// Progress is looked at so many times in each wait.
const LOOKS: u32 = 4;

const STACK_SIZE: usize = 128 << 10;

/// Whether SIGKILL, and the end of this process, end the wait for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// They do: files of `/proc/PID`.
    Killable,
    /// They do not: `process_madvise`, `process_vm_readv`, `move_pages`. A thread there would keep this
    /// process from ending. So the thread takes the lock in a killable way first, by a read of eight bytes
    /// of pagemap. What remains is that another thread takes the lock within the next microsecond.
    Unkillable,
}

/// A process was set aside: a call that waits for it stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnswering {
    /// The process does not answer.
    #[error("process {pid} is not answering for {}: its address space is locked", Seconds(*.since))]
    Locked {
        /// The process.
        pid: u32,
        /// Time since the call began that still waits.
        since: Duration,
    },
    /// Too many processes do not answer to try one more.
    #[error(
        "process {pid} is not asked: {MAX_THREADS} calls wait for other processes that are not answering"
    )]
    TooMany {
        /// The process.
        pid: u32,
    },
    /// No thread for the call.
    #[error("process {pid} is not asked: cannot start a thread (error {errno})")]
    NoThread {
        /// The process.
        pid: u32,
        /// The error number.
        errno: i32,
    },
}

impl NotAnswering {
    /// The reason in an error of [`run_io`].
    pub(crate) fn of(error: &FileError) -> Option<Self> {
        match error {
            FileError::Io { source, .. } => source.get_ref()?.downcast_ref().copied(),
            _ => None,
        }
    }
}

impl From<NotAnswering> for io::Error {
    fn from(error: NotAnswering) -> Self {
        Self::new(io::ErrorKind::TimedOut, error)
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0..10 => write!(f, "{:.1} s", self.0.as_secs_f64()),
            seconds => write!(f, "{seconds} s"),
        }
    }
}

/// Runs `call`, which may wait for process `pid`, and returns its result.
///
/// # Errors
/// [`NotAnswering`] if the call stands still, or an earlier call for this process still does. The call may
/// yet happen later.
pub fn run<T: Send + 'static>(
    pid: u32,
    wait: Wait,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NotAnswering> {
    if pid == std::process::id() {
        return Ok(call());
    }
    let ticket = Arc::new(Ticket::new(pid, wait));
    let (sender, result) = mpsc::channel();
    let job = {
        let ticket = Arc::clone(&ticket);
        move || {
            let _finished = Finished(&ticket);
            if ticket.may_go_on() {
                let (before, value) = (crate::clock::thread_cpu(), call());
                let cpu = crate::clock::thread_cpu().saturating_sub(before);
                // The caller may have given up.
                let _ = sender.send((value, cpu));
            }
        }
    };
    hand_over(&ticket, Box::new(job))?;
    let (value, cpu) = ticket.wait_for(&result)?;
    DELEGATED_CPU.with(|sum| sum.set(sum.get() + cpu));
    Ok(value)
}

/// The reason if process `pid` is set aside. Costs no system call but for the time.
#[must_use]
pub fn set_aside(pid: u32) -> Option<NotAnswering> {
    state().set_aside.get(&pid).map(|began| NotAnswering::Locked {
        pid,
        since: began.elapsed(),
    })
}

/// All processes that are set aside.
#[must_use]
pub fn all_set_aside() -> BTreeSet<u32> {
    state().set_aside.keys().copied().collect()
}

/// CPU time of calls that ran for the calling thread.
pub(crate) fn delegated_cpu() -> Nanos {
    DELEGATED_CPU.with(Cell::get)
}

/// The threads that made calls for the calling thread end, once they have nothing to do.
pub(crate) fn end_idle_threads() {
    IDLE.take();
}

thread_local! {
    static DELEGATED_CPU: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
    /// The threads of this caller that have nothing to do.
    static IDLE: RefCell<Arc<Idle>> = RefCell::default();
}

type Job = Box<dyn FnOnce() + Send>;

/// Ways to threads that have nothing to do. There is one way to each, so without it the thread ends.
type Idle = Mutex<Vec<Sender<Work>>>;

/// A call for a thread, with the way to this thread.
struct Work {
    ticket: Arc<Ticket>,
    job: Job,
    way: Sender<Work>,
}

struct State {
    /// Processes that are set aside, with the time at which the call began.
    set_aside: BTreeMap<u32, Instant>,
    /// Processes that answered again, and when.
    answered: BTreeMap<u32, Instant>,
    threads: usize,
}

static STATE: Mutex<State> = Mutex::new(State {
    set_aside: BTreeMap::new(),
    answered: BTreeMap::new(),
    threads: 0,
});

fn state() -> MutexGuard<'static, State> {
    // Each change is complete in itself.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call, seen by the thread that makes it and by its caller. The flags change under the lock of the
/// state.
struct Ticket {
    pid: u32,
    wait: Wait,
    began: Instant,
    /// The thread; 0 until it has the call.
    tid: AtomicI32,
    /// The lock was free just now.
    had_lock: AtomicBool,
    given_up: AtomicBool,
    finished: AtomicBool,
}

impl Ticket {
    fn new(pid: u32, wait: Wait) -> Self {
        Self {
            pid,
            wait,
            began: Instant::now(),
            tid: AtomicI32::new(0),
            had_lock: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            finished: AtomicBool::new(false),
        }
    }

    /// Waits for the lock where the call could not be killed. False if the caller has given up meanwhile.
    fn may_go_on(&self) -> bool {
        if self.wait == Wait::Unkillable {
            // Not readable: the call itself gives the reason.
            let pagemap = File::open(format!("/proc/{}/pagemap", self.pid));
            let _ = pagemap.and_then(|pagemap| pagemap.read_at(&mut [0; 8], 0));
            self.had_lock.store(true, Ordering::Relaxed);
        }
        !self.given_up.load(Ordering::Relaxed)
    }

    /// The result of the call, as long as it makes progress.
    fn wait_for<T>(&self, result: &Receiver<T>) -> Result<T, NotAnswering> {
        let recent = {
            let mut state = state();
            state.answered.retain(|_, when| when.elapsed() < RECENTLY);
            state.answered.contains_key(&self.pid)
        };
        let (mut still, mut last) = (0, None);
        loop {
            let limit = match self.had_lock.load(Ordering::Relaxed) {
                true => WORK_WAIT,
                false if recent => LOCK_WAIT / RECENT_DIVISOR,
                false => LOCK_WAIT,
            };
            match result.recv_timeout(limit / LOOKS) {
                Ok(value) => return Ok(value),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.locked()),
            }
            let now = Progress::of(self.tid.load(Ordering::Relaxed));
            still = if now.is_running || last.as_ref().is_some_and(|last| *last != now) {
                0
            } else {
                still + 1
            };
            last = Some(now);
            if still >= LOOKS && self.give_up() {
                return Err(self.locked());
            }
        }
    }

    /// Sets the process aside. False if the call has just finished.
    fn give_up(&self) -> bool {
        let mut state = state();
        if self.finished.load(Ordering::Relaxed) {
            return false;
        }
        self.given_up.store(true, Ordering::Relaxed);
        state.set_aside.entry(self.pid).or_insert(self.began);
        true
    }

    fn locked(&self) -> NotAnswering {
        NotAnswering::Locked {
            pid: self.pid,
            since: self.began.elapsed(),
        }
    }
}

/// Ends the wait of all callers, also if the call panics.
struct Finished<'a>(&'a Ticket);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        let mut state = state();
        self.0.finished.store(true, Ordering::Relaxed);
        if self.0.given_up.load(Ordering::Relaxed) {
            state.set_aside.remove(&self.0.pid);
            state.answered.insert(self.0.pid, Instant::now());
        }
    }
}

/// What shows whether a thread stands still.
#[derive(PartialEq, Eq)]
struct Progress {
    /// It runs, or waits for a CPU.
    is_running: bool,
    /// Its CPU time and its waits for a CPU.
    schedstat: Option<String>,
}

impl Progress {
    fn of(tid: i32) -> Self {
        if tid == 0 {
            // The thread has not run yet: the machine is busy.
            return Self {
                is_running: true,
                schedstat: None,
            };
        }
        let file = |name| std::fs::read_to_string(format!("/proc/self/task/{tid}/{name}")).ok();
        let state = file("stat").and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
        Self {
            is_running: state == Some('R'),
            schedstat: file("schedstat"),
        }
    }
}

/// Gives `job` to a thread that has nothing to do, or to a new one.
fn hand_over(ticket: &Arc<Ticket>, job: Job) -> Result<(), NotAnswering> {
    let pid = ticket.pid;
    let mut state = state();
    if let Some(began) = state.set_aside.get(&pid) {
        let since = began.elapsed();
        return Err(NotAnswering::Locked { pid, since });
    }
    let ticket = Arc::clone(ticket);
    let idle = IDLE.with_borrow(Arc::clone);
    if let Some(way) = lock(&idle).pop() {
        return send(&way.clone(), Work { ticket, job, way });
    }
    if state.threads >= MAX_THREADS {
        return Err(NotAnswering::TooMany { pid });
    }
    let (way, works) = mpsc::channel();
    let idle = Arc::downgrade(&idle);
    let started = thread::Builder::new()
        .name("thermo-call".to_owned())
        .stack_size(STACK_SIZE)
        .spawn(move || {
            let _counted = Counted;
            work_through(&works, &idle);
        });
    if let Err(error) = started {
        let errno = error.raw_os_error().unwrap_or(0);
        return Err(NotAnswering::NoThread { pid, errno });
    }
    state.threads += 1;
    send(&way.clone(), Work { ticket, job, way })
}

fn send(way: &Sender<Work>, work: Work) -> Result<(), NotAnswering> {
    let pid = work.ticket.pid;
    // It waits for work as long as there is a way to it.
    let gone = |_| NotAnswering::NoThread { pid, errno: 0 };
    way.send(work).map_err(gone)
}

fn lock(idle: &Idle) -> MutexGuard<'_, Vec<Sender<Work>>> {
    // Each change is complete in itself.
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a thread until it ends.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        state().threads -= 1;
    }
}

/// The thread: makes one call after the other, as long as it is among the few that its caller keeps.
fn work_through(works: &Receiver<Work>, idle: &Weak<Idle>) {
    // A signal of the process must not go to a thread that cannot take it.
    crate::signals::block_in_this_thread();
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    while let Ok(Work { ticket, job, way }) = works.recv() {
        ticket.tid.store(tid, Ordering::Relaxed);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
            return;
        }
        let Some(idle) = idle.upgrade() else {
            return;
        };
        let mut idle = lock(&idle);
        if idle.len() >= MAX_IDLE {
            return;
        }
        idle.push(way);
    }
}

/// Runs a call of the file system below `root` for process `pid`; see [`run`].
pub(crate) fn run_io<T: Send + 'static>(
    pid: u32,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    run(pid, Wait::Killable, call)?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::process::{Child, Command};

    use super::*;
    use crate::clock;

    /// A process of the test's own: others do not make calls for it.
    struct Target(Child);

    impl Target {
        fn start() -> Self {
            Self(Command::new("sleep").arg("1000").spawn().unwrap())
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Target {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    fn wait_until(condition: impl Fn() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }

    #[test]
    fn stalled_call_sets_its_process_aside_until_it_returns() {
        let (target, other) = (Target::start(), Target::start());
        let pid = target.pid();
        let (release, released) = mpsc::channel::<()>();
        let error = run(pid, Wait::Killable, move || released.recv()).unwrap_err();
        assert!(matches!(error, NotAnswering::Locked { .. }), "{error}");
        let text = io::Error::from(error).to_string();
        assert!(
            text.starts_with(&format!("process {pid} is not answering for ")),
            "{text}"
        );
        assert!(text.ends_with(" s: its address space is locked"), "{text}");
        // Further calls are not made, and those for other processes are.
        let refused = run(pid, Wait::Unkillable, || panic!("made a call")).unwrap_err();
        assert!(matches!(refused, NotAnswering::Locked { .. }));
        assert!(set_aside(pid).is_some());
        assert_eq!(run(other.pid(), Wait::Unkillable, || 7), Ok(7));
        release.send(()).unwrap();
        wait_until(|| set_aside(pid).is_none());
        assert_eq!(run(pid, Wait::Killable, || 8), Ok(8));
    }

    #[test]
    fn panic_of_a_call_does_not_set_its_process_aside() {
        let target = Target::start();
        let panicked = run(target.pid(), Wait::Killable, || panic!("on purpose"));
        assert!(panicked.is_err());
        assert_eq!(set_aside(target.pid()), None);
        assert_eq!(run(target.pid(), Wait::Killable, || 1), Ok(1));
    }

    #[test]
    fn busy_call_is_waited_for_and_its_cpu_time_is_of_the_caller() {
        let target = Target::start();
        let before = clock::thread_cpu();
        let busy = Nanos(3 * LOCK_WAIT.as_nanos() as u64);
        let done = run(target.pid(), Wait::Killable, move || {
            let start = clock::thread_cpu();
            while clock::thread_cpu() - start < busy {
                std::hint::spin_loop();
            }
        });
        assert_eq!(done, Ok(()));
        assert!(clock::thread_cpu() - before >= busy);
    }

    #[test]
    fn thread_of_a_call_has_the_capabilities_of_its_caller() {
        use crate::capabilities::{self, Capabilities};
        let target = Target::start();
        let pid = target.pid();
        let permitted = move || {
            let ask = || rustix::thread::capabilities(None).unwrap().permitted.bits();
            (run(pid, Wait::Killable, ask).unwrap(), ask())
        };
        let (here, own) = permitted();
        assert_eq!(here, own);
        let of_other = thread::spawn(move || {
            let before = permitted();
            capabilities::keep_only(Capabilities::of(&[])).unwrap();
            (before, permitted())
        });
        let (before, after) = of_other.join().unwrap();
        assert_eq!((before, after), ((own, own), (0, 0)));
        assert_eq!(permitted(), (own, own));
    }

    #[test]
    fn own_process_is_called_directly() {
        let here = thread::current().id();
        let there = run(std::process::id(), Wait::Unkillable, move || {
            thread::current().id()
        });
        assert_eq!(there, Ok(here));
    }

    #[test]
    fn duration_is_short_text() {
        assert_eq!(Seconds(Duration::from_millis(123)).to_string(), "0.1 s");
        assert_eq!(Seconds(Duration::from_secs(12)).to_string(), "12 s");
    }
}
