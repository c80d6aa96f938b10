//! One run: the applications come to the front one after the other, as the script says.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use thermo_engine::rng::Rng;
use thermo_units::{Nanos, PAGE_SIZE};

use super::app::{App, Heard, Running};
use super::counters::{self, Counters};
use super::daemon::Daemon;
use super::fixture::Fixture;
use super::{Arm, Conditions, Plan};
use crate::group::{Group, Hierarchies};
use crate::placeholder::Values;
use crate::warm;

/// How often pressure is looked at.
const TICK: Duration = Duration::from_millis(50);
/// A launch that takes longer has failed.
const LONGEST_LAUNCH: Duration = Duration::from_secs(180);

/// A run under way. Fields are dropped in order: applications before their groups.
struct Session<'a> {
    plan: &'a Plan,
    conditions: &'a Conditions,
    running: Running,
    daemon: Option<Daemon>,
    fixture: Fixture,
    /// Who was used when: the larger the later.
    used: Vec<usize>,
    cold_ms: Vec<f64>,
    hot_ms: Vec<f64>,
    kills: usize,
    deaths: usize,
    subgroups: Subgroups,
    ours: Group,
    group: Group,
    folder: PathBuf,
}

/// A group for each application below that of all; they go with this value.
struct Subgroups(Vec<PathBuf>);

impl Drop for Subgroups {
    fn drop(&mut self) {
        // Memory is let go of after the end: removing takes a few tries.
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

/// Makes a run. What it measured, by name.
pub(super) fn once(
    plan: &Plan,
    conditions: &Conditions,
    hierarchies: &Hierarchies,
    arm: Arm,
    repeat: usize,
    switches: usize,
) -> Result<Counters, String> {
    let _ = warm::warm(plan.warm);
    let mut session = Session::prepare(plan, conditions, hierarchies, arm, repeat)?;
    let before = counters::read(session.group.path());
    let stalled_before = session.group.stalled_micros();
    let begin = Instant::now();
    let mut rng = Rng::new(plan.seed ^ (repeat as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut front = None;
    for _ in 0..switches {
        let next = pick(&mut rng, plan.apps.len(), front);
        session.switch(front, next)?;
        front = Some(next);
    }
    let mut measured = counters::between(&before, &counters::read(session.group.path()));
    if let (Some(before), Some(after)) = (stalled_before, session.group.stalled_micros()) {
        let stalled_ms = after.saturating_sub(before) as f64 / 1e3;
        measured.insert("memory.stalled_ms".to_owned(), stalled_ms);
    }
    session.sum_up(begin, &mut measured);
    Ok(measured)
}

/// Who comes next: the first in the plan more often than the last (one over its place), and never who is in front.
fn pick(rng: &mut Rng, nr: usize, front: Option<usize>) -> usize {
    let weight = |nth: usize| {
        if Some(nth) == front {
            0
        } else {
            10_000 / (nth as u64 + 2)
        }
    };
    let sum: u64 = (0..nr).map(weight).sum();
    let mut left = rng.below(sum);
    for nth in 0..nr {
        match left.checked_sub(weight(nth)) {
            Some(rest) => left = rest,
            None => return nth,
        }
    }
    0
}

impl<'a> Session<'a> {
    fn prepare(
        plan: &'a Plan,
        conditions: &'a Conditions,
        hierarchies: &Hierarchies,
        arm: Arm,
        repeat: usize,
    ) -> Result<Self, String> {
        let name = |kind| format!("thermo-eval-{}-{repeat}-{arm:?}-{kind}", std::process::id());
        let group = |kind| Group::create(hierarchies, &name(kind)).map_err(|why| why.to_string());
        let (ours, group) = (group("thermo")?, group("apps")?);
        group.limit(plan.limit.0).map_err(|why| why.to_string())?;
        let folder = conditions.results_dir.join(format!("{repeat}-{arm:?}"));
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let wrong = |why: std::io::Error| format!("cannot make {}: {why}", folder.display());
        fs::create_dir_all(&folder).map_err(wrong)?;
        let mut subgroups = Subgroups(Vec::new());
        for app in &plan.apps {
            let below = group.path().join(&app.name);
            fs::create_dir(&below).map_err(|why| format!("cannot make {}: {why}", below.display()))?;
            subgroups.0.push(below);
        }
        let daemon = match arm {
            Arm::A => None,
            Arm::B => Some(Daemon::start(plan, &conditions.thermo, &group, &ours, &folder)?),
        };
        Ok(Self {
            plan,
            conditions,
            running: Running::new(),
            daemon,
            fixture: Fixture::new(plan.kill_stall, plan.kill_swap_free),
            used: Vec::new(),
            cold_ms: Vec::new(),
            hot_ms: Vec::new(),
            kills: 0,
            deaths: 0,
            subgroups,
            ours,
            group,
            folder,
        })
    }

    /// Puts who is in front away, and brings `next` there.
    fn switch(&mut self, front: Option<usize>, next: usize) -> Result<(), String> {
        if let (Some(daemon), Some(front)) = (&mut self.daemon, front) {
            daemon.set(&self.plan.apps[front].name, "cached")?;
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.set(&self.plan.apps[next].name, "foreground")?;
        }
        self.used.retain(|nth| *nth != next);
        self.used.push(next);
        let begin = Instant::now();
        // One that died under its use is started anew once.
        let hot = self.running.contains_key(&next) && self.use_it(next, begin)?;
        if hot {
            self.hot_ms.push(begin.elapsed().as_secs_f64() * 1e3);
        } else {
            self.start(next, begin)?;
            self.cold_ms.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        let dwell = Duration::from_nanos(self.plan.dwell.0);
        let arrived = Instant::now();
        while arrived.elapsed() < dwell {
            self.tick(next)?;
            std::thread::sleep(TICK.min(dwell.saturating_sub(arrived.elapsed())));
        }
        Ok(())
    }

    fn start(&mut self, nth: usize, begin: Instant) -> Result<(), String> {
        let plan = &self.plan.apps[nth];
        let values = Values::default()
            .with("here", self.plan.here.display())
            .with("port", free_port()?);
        let mut doors = self.group.doors();
        doors[0] = self.subgroups.0[nth].join("cgroup.procs");
        let mut app = App::start(plan, &values, &doors, &self.folder)?;
        app.say(&plan.first);
        self.running.insert(nth, app);
        if self.wait_for(nth, "ready", begin)? && self.use_it(nth, begin)? {
            return Ok(());
        }
        Err(format!(
            "{} ended before it could be used: see {}.err",
            plan.name, plan.name
        ))
    }

    /// Has an application used; false when it has ended.
    fn use_it(&mut self, nth: usize, begin: Instant) -> Result<bool, String> {
        if let Some(app) = self.running.get_mut(&nth) {
            app.say(&self.plan.apps[nth].say);
        }
        self.wait_for(nth, "done", begin)
    }

    fn wait_for(&mut self, nth: usize, word: &str, begin: Instant) -> Result<bool, String> {
        loop {
            let heard = self
                .running
                .get_mut(&nth)
                .map_or(Heard::Ended, |app| app.hear(word, TICK));
            match heard {
                Heard::Answer => return Ok(true),
                Heard::Ended => {
                    // Not by the fixture: the kernel ran out of what the group may have.
                    self.running.remove(&nth);
                    self.deaths += 1;
                    return Ok(false);
                }
                Heard::Nothing => self.tick(nth)?,
            }
            if begin.elapsed() > LONGEST_LAUNCH {
                return Err(format!("{} did not answer {word}", self.plan.apps[nth].name));
            }
        }
    }

    /// Kills by rank when it is time.
    fn tick(&mut self, front: usize) -> Result<(), String> {
        if self.conditions.stop.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
        let stalled = Nanos::micros(self.group.stalled_micros().unwrap_or(0));
        if self.fixture.see(Instant::now(), stalled, swap()) {
            let mut ranked = self.used.iter().copied().filter(|nth| *nth != front);
            if let Some(longest_ago) = ranked.find(|nth| self.running.contains_key(nth)) {
                self.running.remove(&longest_ago);
                self.kills += 1;
                self.fixture.killed(Instant::now());
            }
        }
        Ok(())
    }

    fn sum_up(&mut self, begin: Instant, measured: &mut Counters) {
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
            for (word, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
                if let Some(time) = percentile(times, share) {
                    put(&format!("{name}_ms.{word}"), time);
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
        if let Some(cpu) = self.ours.cpu() {
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

/// The smallest that at least this share is not above.
#[expect(
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "a share of a small number of launches"
)]
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let nth = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(nth.saturating_sub(1)).copied()
}

/// Free and all swap.
fn swap() -> (u64, u64) {
    let info = thermo_kernel::meminfo::read(std::path::Path::new("/")).unwrap_or_default();
    (info.swap_free.0, info.swap_total.0)
}

/// A TCP port nobody listens on.
fn free_port() -> Result<u16, String> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|why| format!("no free TCP port: {why}"))?;
    Ok(listener.local_addr().map_err(|why| why.to_string())?.port())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn the_script_is_the_same_for_both_and_prefers_the_first() {
        let script = |seed| {
            let mut rng = Rng::new(seed);
            let mut front = None;
            let next = |_| {
                front = Some(pick(&mut rng, 9, front));
                front.unwrap()
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
    fn percentiles_are_launches_that_were_made() {
        let times: Vec<f64> = (1..=10).map(f64::from).collect();
        let found = [0.5, 0.9, 0.99, 1.0].map(|share| percentile(&times, share).unwrap());
        assert_eq!(found, [5.0, 9.0, 10.0, 10.0]);
        assert_eq!(percentile(&[], 0.5), None);
    }
}
