//! One run: start, wait until ready, fill, attach, measure while the load runs, stop everything, check.

mod finish;
mod measure;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::RunFailure;
use crate::ethp::Mode;
use crate::experiment::{Configuration, Experiment, Ready, Workload};
use crate::group::{Group, Hierarchies};
use crate::monitor;
use crate::placeholder::Values;
use crate::pressure::Pressure;
use crate::process::{Program, Start, bad_end, tail};
use crate::sample::Outcome;
use crate::swap::Swap;

/// How long a program has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(30);
/// How long the user's wish to stop may go unseen.
const ATTENTION: Duration = Duration::from_millis(100);

/// What a run stands on.
pub(crate) struct Bench<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) hierarchies: &'a Hierarchies,
    pub(crate) swap: Option<&'a Swap>,
    pub(crate) thermo: &'a Path,
    pub(crate) lab: &'a Path,
    /// The workload's work folder.
    pub(crate) dir: &'a Path,
    /// The folder outputs go to.
    pub(crate) logs: &'a Path,
    pub(crate) stop: &'a AtomicBool,
    /// The most memory the workload took under the first configuration, if that is known.
    pub(crate) peak: Option<u64>,
    /// The seed loads may draw from: the same for every configuration of a round.
    pub(crate) seed: u64,
}

/// A run under way. Fields are dropped in order: what is attached lets go first, the groups go last.
struct Running<'a> {
    bench: &'a Bench<'a>,
    workload: &'a Workload,
    deadline: Instant,
    pressure: Option<Pressure>,
    attached: Option<Program>,
    load: Option<Program>,
    command: Option<Program>,
    our_group: Group,
    group: Group,
}

/// Runs `workload` under `configuration` once.
pub(crate) fn once(
    bench: &Bench,
    workload: &Workload,
    configuration: &Configuration,
) -> Result<Outcome, RunFailure> {
    if !configuration.pressure.is_empty() && bench.peak.is_none() {
        let why = "its peak without pressure is not known: no run under the first configuration went well";
        return Err(RunFailure::wrong(why));
    }
    monitor::begin(bench.dir);
    let _mode = configuration
        .thp
        .map(|mode| Mode::begin(Path::new("/"), mode))
        .transpose()?;
    let mut running = Running::prepare(bench, workload)?;
    let values = running.start(configuration)?;
    running.wait_until_ready(&values)?;
    running.fill(&values)?;
    let outcome = running.measure(configuration, &values)?;
    let mut outcome = running.finish(outcome)?;
    outcome
        .measured
        .extend(monitor::measure(bench.dir).map_err(RunFailure::wrong)?);
    Ok(outcome)
}

impl<'a> Running<'a> {
    fn prepare(bench: &'a Bench, workload: &'a Workload) -> Result<Self, RunFailure> {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let nr = RUNS.fetch_add(1, Ordering::Relaxed);
        let group = |kind: &str| {
            Group::create(
                bench.hierarchies,
                &format!("thermo-eval-{}-{nr}-{kind}", std::process::id()),
            )
            .map_err(|error| RunFailure::wrong(error.to_string()))
        };
        let (our_group, group) = (group("thermo")?, group("workload")?);
        if let Some(limit) = workload.limit {
            group
                .limit(limit.0)
                .map_err(|error| RunFailure::wrong(error.to_string()))?;
        }
        let timeout = Duration::from_nanos(workload.timeout.0);
        let deadline = Instant::now() + timeout;
        Ok(Self {
            bench,
            workload,
            deadline,
            pressure: None,
            attached: None,
            load: None,
            command: None,
            our_group,
            group,
        })
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Values, RunFailure> {
        let values = Values::default()
            .with("dir", self.bench.dir.display())
            .with("here", self.bench.experiment.here.display())
            .with("cgroup", self.group.path().display())
            .with("seed", self.bench.seed)
            .with("thermo", self.bench.thermo.display())
            .with("lab", self.bench.lab.display())
            .with("port", free_port()?);
        if let Some(Ready::File(path)) = &self.workload.ready {
            // An earlier run's file would say that this one is ready.
            drop(fs::remove_file(self.bench.dir.join(values.fill(path))));
        }
        let env = configuration
            .env
            .iter()
            .map(|(key, value)| (key.clone(), values.fill(value)))
            .collect();
        let words = values.fill_all(&self.workload.command);
        let command = self.program("command", &words, &env, &self.group.doors())?;
        let values = values.with("pid", command.id());
        self.command = Some(command);
        Ok(values)
    }

    fn program(
        &self,
        what: &str,
        words: &[String],
        env: &BTreeMap<String, String>,
        doors: &[PathBuf],
    ) -> Result<Program, RunFailure> {
        let output = self.bench.logs.join(format!("{what}.out"));
        Start {
            words,
            env,
            dir: self.bench.dir,
            doors,
            output: &output,
        }
        .start()
        .map_err(|error| RunFailure::wrong(format!("cannot start {}: {error}", shown(words))))
    }

    fn wait_until_ready(&mut self, values: &Values) -> Result<(), RunFailure> {
        let Some(ready) = &self.workload.ready else {
            return Ok(());
        };
        loop {
            let (is_ready, missing) = match ready {
                Ready::Line(pattern) => (
                    self.command
                        .as_ref()
                        .is_some_and(|command| pattern.is_match(&command.printed())),
                    "its line",
                ),
                Ready::Tcp(port) => (answers(&values.fill(port)), "its port"),
                Ready::File(path) => (self.bench.dir.join(values.fill(path)).exists(), "its file"),
            };
            if is_ready {
                return Ok(());
            }
            self.still_wanted(&format!("it was not ready ({missing} did not show)"))?;
            let command = self.command.as_mut();
            if let Some((status, printed)) =
                command.and_then(|command| ended(command, Duration::from_millis(20)))
            {
                let how = bad_end(status).unwrap_or_else(|| "ended".into());
                return Err(RunFailure::wrong(format!(
                    "the command {how} before it was ready: {}",
                    tail(&printed)
                )));
            }
        }
    }

    fn fill(&mut self, values: &Values) -> Result<(), RunFailure> {
        if self.workload.fill.is_empty() {
            return Ok(());
        }
        let words = values.fill_all(&self.workload.fill);
        let mut filling = self.program("fill", &words, &BTreeMap::new(), &[])?;
        loop {
            self.still_wanted("filling took too long")?;
            if let Some((status, printed)) = ended(&mut filling, ATTENTION) {
                return match bad_end(status) {
                    None => Ok(()),
                    Some(how) => Err(RunFailure::wrong(format!(
                        "{} {how}: {}",
                        shown(&words),
                        tail(&printed)
                    ))),
                };
            }
        }
    }

    fn still_wanted(&self, late: &str) -> Result<(), RunFailure> {
        if self.bench.stop.load(Ordering::Relaxed) {
            Err(RunFailure::Stopped)
        } else if Instant::now() >= self.deadline {
            Err(RunFailure::wrong(format!(
                "{late} within the timeout of {}",
                self.workload.timeout
            )))
        } else {
            Ok(())
        }
    }
}

/// How a program ended and what it printed, if it ends within `span`.
fn ended(program: &mut Program, span: Duration) -> Option<(std::process::ExitStatus, String)> {
    match program.wait(span) {
        Ok(status) => status.map(|status| (status, program.printed())),
        Err(_) => {
            // Asking failed, not the program: ask again, but not in a hot loop.
            sleep(Duration::from_millis(10));
            None
        }
    }
}

/// A TCP port nobody listens on.
fn free_port() -> Result<u16, RunFailure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| Ok(listener.local_addr()?.port()))
        .map_err(|error| RunFailure::wrong(format!("no free TCP port: {error}")))
}

fn answers(port: &str) -> bool {
    let Ok(port) = port.parse::<u16>() else {
        return false;
    };
    TcpStream::connect_timeout(
        &SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        Duration::from_secs(1),
    )
    .is_ok()
}

fn shown(words: &[String]) -> String {
    words.first().cloned().unwrap_or_default()
}
