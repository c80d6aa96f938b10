//! The whole fleet: hosts are simulated by all CPUs, each host by one thread.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use thermo_units::SharePerMinute;

use crate::ages::Ages;
use crate::anchor::Anchor;
use crate::error::Error;
use crate::host::Host;
use crate::truth::{Sums, Truth};

/// The default start: 2026-11-02, a Monday, at midnight UTC; Unix time in ms.
pub const START_MS: u64 = 1_793_577_600_000;
/// An hour in ms.
const HOUR_MS: u64 = 3_600_000;

/// What to simulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Number of hosts.
    pub hosts: u64,
    /// Hours of data.
    pub hours: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Start, Unix time in ms: a multiple of the interval.
    pub start_ms: u64,
    /// Length of an interval in ms: a divisor of an hour, at least a minute.
    pub interval: u64,
    /// Length of a window, one file, in ms: a multiple of the interval.
    pub window: u64,
    /// Minimum ages by class, for all hosts. `None`: one of ten hosts acts with an age of the class.
    pub ages: Option<Ages>,
    /// The bound on what comes back, by which hours with given ages are judged.
    pub max_refaults: SharePerMinute,
    /// Recordings that classes follow.
    pub anchors: Vec<Anchor>,
}

impl Options {
    /// Checks the options.
    ///
    /// # Errors
    /// The first impossible one, with the way out.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Options(text));
        if self.hosts == 0 || self.hours == 0 {
            let (hosts, hours) = (self.hosts, self.hours);
            return wrong(format!(
                "a fleet of {hosts} hosts for {hours} hours is empty: give at least 1 of each"
            ));
        }
        if self.hosts > 1_000_000 || self.hours > 24 * 366 {
            let (hosts, hours) = (self.hosts, self.hours);
            return wrong(format!(
                "{hosts} hosts for {hours} hours are too many: at most 1000000 hosts, a year"
            ));
        }
        let Self {
            interval,
            window,
            start_ms,
            ..
        } = *self;
        if interval < 60_000 || !HOUR_MS.is_multiple_of(interval) || !interval.is_multiple_of(1000) {
            let interval = interval as f64 / 1000.0;
            return wrong(format!(
                "an interval of {interval} s does not divide an hour: give --interval 5m"
            ));
        }
        if window == 0 || !window.is_multiple_of(interval) {
            let (window, interval) = (window as f64 / 1000.0, interval as f64 / 1000.0);
            return wrong(format!(
                "a window of {window} s does not hold whole intervals of {interval} s: give --window 1h"
            ));
        }
        if !start_ms.is_multiple_of(interval) {
            return wrong("the start is not at the end of an interval: give --start a whole hour".to_owned());
        }
        Ok(())
    }
}

/// Simulates the fleet, and writes its files and `truth.json` below `folder`, which must be empty or missing.
/// `progress` gets the number of hosts done, from any thread. `stop` ends it early.
///
/// # Errors
/// An option is impossible, the folder has files or cannot be written, or `stop` was set.
pub fn simulate(
    options: &Options,
    folder: &Path,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Truth, Error> {
    options.check()?;
    fs::create_dir_all(folder).map_err(Error::io(folder))?;
    if fs::read_dir(folder).map_err(Error::io(folder))?.next().is_some() {
        return Err(Error::NotEmpty(folder.to_owned()));
    }
    let sums = run_hosts(options, folder, stop, progress)?;
    let truth = Truth {
        schema: 1,
        seed: options.seed,
        hosts: options.hosts,
        hours: options.hours,
        start_ms: options.start_ms,
        interval_ms: options.interval,
        files: sums.files,
        rows: sums.rows,
        classes: sums.classes(),
        clusters: sums.clusters(),
        anchors: options.anchors.clone(),
        bound: options
            .ages
            .as_ref()
            .map(|ages| sums.bound(ages, options.max_refaults)),
    };
    let path = folder.join("truth.json");
    let text =
        serde_json::to_string_pretty(&truth).map_err(|error| Error::input(&path, error.to_string()))?;
    fs::write(&path, text + "\n").map_err(Error::io(&path))?;
    Ok(truth)
}

/// Simulates all hosts. The first error ends all threads.
fn run_hosts(
    options: &Options,
    folder: &Path,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Sums, Error> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let result = Mutex::new(Ok(Sums::default()));
    let failed = AtomicBool::new(false);
    let work = || {
        let mut sums = Sums::default();
        while !failed.load(Ordering::Relaxed) {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= options.hosts {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            Host::new(options, nth)?.run(folder, &mut sums)?;
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        Ok(sums)
    };
    let add = |sums: Result<Sums, Error>| {
        let mut result = result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match (result.as_mut(), sums) {
            (Ok(all), Ok(sums)) => all.merge(sums),
            (Ok(_), Err(error)) => {
                failed.store(true, Ordering::Relaxed);
                *result = Err(error);
            }
            (Err(_), _) => {}
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| add(work()));
        }
    });
    result
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
