//! One run: brings the applications to the foreground one after the other, in the order of a seeded script.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use thermo_engine::rng::Rng;
use thermo_units::{Nanos, PAGE_SIZE};

use super::app::{App, Reply, RunningApps};
use super::counters::{self, Counters};
use super::daemon::Daemon;
use super::low_memory_killer::LowMemoryKiller;
use super::{Arm, Options, Plan};
use crate::cgroup::{Cgroup, Hierarchies};
use crate::placeholder::Values;
use crate::run::free_port;
use crate::warm;

/// Interval for checking memory pressure.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of a launch.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(180);

/// A run in progress. Fields are dropped in order: applications before their cgroups.
struct Session<'a> {
    plan: &'a Plan,
    options: &'a Options,
    running: RunningApps,
    daemon: Option<Daemon>,
    killer: LowMemoryKiller,
    /// Applications in order of use, the most recently used last.
    used: Vec<usize>,
    cold_ms: Vec<f64>,
    hot_ms: Vec<f64>,
    kills: usize,
    deaths: usize,
    child_groups: ChildGroups,
    thermo_group: Cgroup,
    group: Cgroup,
    folder: PathBuf,
}

/// The cgroups of the applications, children of the cgroup of all applications. Dropping it removes them.
struct ChildGroups(Vec<PathBuf>);

impl Drop for ChildGroups {
    fn drop(&mut self) {
        // Removing can fail until the memory of ended applications is freed, so it is retried.
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline
            && self
                .0
                .iter()
                .any(|folder| folder.exists() && fs::remove_dir(folder).is_err())
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Makes a run and returns its measurements by name.
pub(super) fn run_once(
    plan: &Plan,
    options: &Options,
    hierarchies: &Hierarchies,
    arm: Arm,
    repeat: usize,
    switches: usize,
) -> Result<Counters, String> {
    let _ = warm::warm(plan.warm);
    let mut session = Session::prepare(plan, options, hierarchies, arm, repeat)?;
    let before = counters::read(session.group.path());
    let stalled_before = session.group.stalled_micros();
    let begin = Instant::now();
    let mut rng = Rng::new(plan.seed ^ (repeat as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut foreground = None;
    for _ in 0..switches {
        let next = pick_next(&mut rng, plan.apps.len(), foreground);
        session.switch(foreground, next)?;
        foreground = Some(next);
    }
    let mut measured = counters::between(&before, &counters::read(session.group.path()));
    if let (Some(before), Some(after)) = (stalled_before, session.group.stalled_micros()) {
        let stalled_ms = after.saturating_sub(before) as f64 / 1e3;
        measured.insert("memory.stalled_ms".to_owned(), stalled_ms);
    }
    session.finish(begin, &mut measured);
    Ok(measured)
}

/// Draws the next foreground application. Weights decrease with the index in the plan, as 1 / (index + 2).
/// The current foreground application has weight 0.
fn pick_next(rng: &mut Rng, nr_apps: usize, foreground: Option<usize>) -> usize {
    let weight = |nth: usize| {
        if Some(nth) == foreground {
            0
        } else {
            10_000 / (nth as u64 + 2)
        }
    };
    let sum: u64 = (0..nr_apps).map(weight).sum();
    let mut drawn = rng.below(sum);
    for nth in 0..nr_apps {
        match drawn.checked_sub(weight(nth)) {
            Some(rest) => drawn = rest,
            None => return nth,
        }
    }
    0
}

impl<'a> Session<'a> {
    fn prepare(
        plan: &'a Plan,
        options: &'a Options,
        hierarchies: &Hierarchies,
        arm: Arm,
        repeat: usize,
    ) -> Result<Self, String> {
        let name = |kind| format!("thermo-eval-{}-{repeat}-{arm:?}-{kind}", std::process::id());
        let group = |kind| Cgroup::create(hierarchies, &name(kind)).map_err(|error| error.to_string());
        let (thermo_group, group) = (group("thermo")?, group("apps")?);
        group
            .set_memory_limit(plan.limit.0)
            .map_err(|error| error.to_string())?;
        let folder = options.results_dir.join(format!("{repeat}-{arm:?}"));
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let failed = |error: std::io::Error| format!("cannot create {}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        let mut child_groups = ChildGroups(Vec::new());
        for app in &plan.apps {
            let child = group.path().join(&app.name);
            fs::create_dir(&child).map_err(|error| format!("cannot create {}: {error}", child.display()))?;
            child_groups.0.push(child);
        }
        let daemon = match arm {
            Arm::A => None,
            Arm::B => Some(Daemon::start(
                plan,
                &options.thermo,
                &group,
                &thermo_group,
                &folder,
            )?),
        };
        Ok(Self {
            plan,
            options,
            running: RunningApps::new(),
            daemon,
            killer: LowMemoryKiller::new(plan.kill_stall, plan.kill_swap_free),
            used: Vec::new(),
            cold_ms: Vec::new(),
            hot_ms: Vec::new(),
            kills: 0,
            deaths: 0,
            child_groups,
            thermo_group,
            group,
            folder,
        })
    }

    /// Moves the `foreground` application to the background and `next` to the foreground.
    fn switch(&mut self, foreground: Option<usize>, next: usize) -> Result<(), String> {
        if let (Some(daemon), Some(foreground)) = (&mut self.daemon, foreground) {
            daemon.set(&self.plan.apps[foreground].name, "cached")?;
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.set(&self.plan.apps[next].name, "foreground")?;
        }
        self.used.retain(|nth| *nth != next);
        self.used.push(next);
        let begin = Instant::now();
        // An application that ends during its use is started again once.
        let is_hot = self.running.contains_key(&next) && self.use_app(next, begin)?;
        if is_hot {
            self.hot_ms.push(begin.elapsed().as_secs_f64() * 1e3);
        } else {
            self.start(next, begin)?;
            self.cold_ms.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        let dwell = Duration::from_nanos(self.plan.dwell.0);
        let arrived = Instant::now();
        while arrived.elapsed() < dwell {
            self.kill_if_needed(next)?;
            std::thread::sleep(POLL_INTERVAL.min(dwell.saturating_sub(arrived.elapsed())));
        }
        Ok(())
    }

    fn start(&mut self, nth: usize, begin: Instant) -> Result<(), String> {
        let plan = &self.plan.apps[nth];
        let values = Values::default()
            .with("here", self.plan.here.display())
            .with("port", free_port().map_err(|error| error.to_string())?);
        let mut procs_files = self.group.procs_files();
        procs_files[0] = self.child_groups.0[nth].join("cgroup.procs");
        let mut app = App::start(plan, &values, &procs_files, &self.folder)?;
        app.send(&plan.first);
        self.running.insert(nth, app);
        if self.wait_for(nth, "ready", begin)? && self.use_app(nth, begin)? {
            return Ok(());
        }
        Err(format!(
            "{} ended before it could be used: see {}.err",
            plan.name, plan.name
        ))
    }

    /// Makes an application access its data. Returns false when the application has ended.
    fn use_app(&mut self, nth: usize, begin: Instant) -> Result<bool, String> {
        if let Some(app) = self.running.get_mut(&nth) {
            app.send(&self.plan.apps[nth].say);
        }
        self.wait_for(nth, "done", begin)
    }

    /// Waits for a reply that contains `word`. Returns false when the application has ended.
    fn wait_for(&mut self, nth: usize, word: &str, begin: Instant) -> Result<bool, String> {
        loop {
            let reply = self
                .running
                .get_mut(&nth)
                .map_or(Reply::Ended, |app| app.wait_for_reply(word, POLL_INTERVAL));
            match reply {
                Reply::Received => return Ok(true),
                Reply::Ended => {
                    // Killed by the kernel at the limit of the cgroup, not by the experiment.
                    self.running.remove(&nth);
                    self.deaths += 1;
                    return Ok(false);
                }
                Reply::None => self.kill_if_needed(nth)?,
            }
            if begin.elapsed() > LAUNCH_TIMEOUT {
                return Err(format!(
                    "{} did not reply {word} within {} s",
                    self.plan.apps[nth].name,
                    LAUNCH_TIMEOUT.as_secs()
                ));
            }
        }
    }

    /// Kills the least recently used background application when memory pressure is too high. Fails when the
    /// user stopped the experiment.
    fn kill_if_needed(&mut self, foreground: usize) -> Result<(), String> {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
        let stalled = Nanos::micros(self.group.stalled_micros().unwrap_or(0));
        if self.killer.should_kill(Instant::now(), stalled, swap()) {
            let mut background = self.used.iter().copied().filter(|nth| *nth != foreground);
            if let Some(least_recent) = background.find(|nth| self.running.contains_key(nth)) {
                self.running.remove(&least_recent);
                self.kills += 1;
                self.killer.record_kill(Instant::now());
            }
        }
        Ok(())
    }

    /// Adds launch times, counts, CPU time and memory to `measured`, and ends the daemon.
    fn finish(&mut self, begin: Instant, measured: &mut Counters) {
        let mut put = |name: &str, number: f64| {
            measured.insert(name.to_owned(), number);
        };
        let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        put("starts.cold", count(self.cold_ms.len()));
        put("starts.hot", count(self.hot_ms.len()));
        put("kills", count(self.kills));
        put("deaths", count(self.deaths));
        let mut all = [&self.cold_ms[..], &self.hot_ms[..]].concat();
        for (name, times) in [
            ("launch", &mut all),
            ("cold", &mut self.cold_ms),
            ("hot", &mut self.hot_ms),
        ] {
            times.sort_by(f64::total_cmp);
            for (suffix, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
                if let Some(time) = percentile(times, share) {
                    put(&format!("{name}_ms.{suffix}"), time);
                }
            }
            if !times.is_empty() {
                put(
                    &format!("{name}_ms.mean"),
                    times.iter().sum::<f64>() / count(times.len()),
                );
            }
        }
        if let Some(cpu) = self.group.cpu() {
            put("cpu_s.apps.user", cpu.user);
            put("cpu_s.apps.system", cpu.system);
        }
        if let Some(cpu) = self.thermo_group.cpu() {
            put("cpu_s.thermo", cpu.user + cpu.system);
        }
        put("runtime_s", begin.elapsed().as_secs_f64());
        put(
            "memory.resident_mb",
            self.group.memory().resident as f64 / (256 * PAGE_SIZE) as f64,
        );
        if let Some(daemon) = self.daemon.take() {
            daemon.end();
        }
    }
}

/// The nearest-rank percentile: the smallest value such that at least `share` of all values are not above it.
#[expect(
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "a share of a small number of launches"
)]
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let nth = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(nth.saturating_sub(1)).copied()
}

/// Free and total swap in bytes.
fn swap() -> (u64, u64) {
    let info = thermo_kernel::meminfo::read(std::path::Path::new("/")).unwrap_or_default();
    (info.swap_free.0, info.swap_total.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn script_follows_seed_and_prefers_first_apps() {
        let script = |seed| {
            let mut rng = Rng::new(seed);
            let mut foreground = None;
            let next = |_| {
                foreground = Some(pick_next(&mut rng, 9, foreground));
                foreground.unwrap()
            };
            (0..1000).map(next).collect::<Vec<usize>>()
        };
        let first = script(3);
        assert_eq!(first, script(3));
        assert_ne!(first, script(4));
        assert!(first.windows(2).all(|two| two[0] != two[1]));
        let times = |nth| first.iter().filter(|one| **one == nth).count();
        assert!(times(0) > times(8) && times(8) > 20, "{} {}", times(0), times(8));
    }

    #[test]
    fn percentiles_are_actual_values() {
        let times: Vec<f64> = (1..=10).map(f64::from).collect();
        let found = [0.5, 0.9, 0.99, 1.0].map(|share| percentile(&times, share).unwrap());
        assert_eq!(found, [5.0, 9.0, 10.0, 10.0]);
        assert_eq!(percentile(&[], 0.5), None);
    }
}
