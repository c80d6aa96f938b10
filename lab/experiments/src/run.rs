//! One run: start the workload, wait until it is ready, fill it, attach `thermo`, measure while the load
//! runs, stop everything, check the output.

mod finish;
mod measure;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cgroup::{Cgroup, Hierarchies};
use crate::error::RunFailure;
use crate::experiment::{Configuration, Experiment, Ready, Workload};
use crate::huge_pages::ModeGuard;
use crate::monitor;
use crate::placeholder::Values;
use crate::pressure::Pressure;
use crate::process::{Program, ProgramSpec, describe_failure, last_lines};
use crate::sample::Outcome;
use crate::swap::Swap;

/// Time for a program to end after a signal.
const GRACE: Duration = Duration::from_secs(30);
/// Interval for checking whether the user stopped the experiment.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Inputs of a run.
pub(crate) struct RunContext<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) hierarchies: &'a Hierarchies,
    pub(crate) swap: Option<&'a Swap>,
    pub(crate) thermo: &'a Path,
    pub(crate) lab: &'a Path,
    /// The workload's work folder.
    pub(crate) dir: &'a Path,
    /// The folder for the outputs of programs.
    pub(crate) logs: &'a Path,
    pub(crate) stop: &'a AtomicBool,
    /// Peak memory of the workload under the first configuration in bytes, if known.
    pub(crate) peak: Option<u64>,
    /// Seed for loads: the same for all configurations of a repeat.
    pub(crate) seed: u64,
}

/// A run in progress. Fields are dropped in order: the attached program first, the cgroups last.
struct ActiveRun<'a> {
    context: &'a RunContext<'a>,
    workload: &'a Workload,
    deadline: Instant,
    pressure: Option<Pressure>,
    attached: Option<Program>,
    load: Option<Program>,
    command: Option<Program>,
    thermo_group: Cgroup,
    group: Cgroup,
}

/// Runs `workload` under `configuration` once.
pub(crate) fn run_once(
    context: &RunContext,
    workload: &Workload,
    configuration: &Configuration,
) -> Result<Outcome, RunFailure> {
    if !configuration.pressure.is_empty() && context.peak.is_none() {
        let message = "its peak without pressure is unknown: no run under the first configuration succeeded";
        return Err(RunFailure::failed(message));
    }
    monitor::remove_old_files(context.dir);
    let _mode = configuration
        .thp
        .map(|mode| ModeGuard::set(Path::new("/"), mode))
        .transpose()?;
    let mut run = ActiveRun::prepare(context, workload)?;
    let values = run.start(configuration)?;
    run.wait_until_ready(&values)?;
    run.fill(&values)?;
    let outcome = run.measure(configuration, &values)?;
    let mut outcome = run.finish(outcome)?;
    outcome
        .measured
        .extend(monitor::measure(context.dir).map_err(RunFailure::failed)?);
    Ok(outcome)
}

impl<'a> ActiveRun<'a> {
    fn prepare(context: &'a RunContext, workload: &'a Workload) -> Result<Self, RunFailure> {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let nr = RUNS.fetch_add(1, Ordering::Relaxed);
        let group = |kind: &str| {
            Cgroup::create(
                context.hierarchies,
                &format!("thermo-eval-{}-{nr}-{kind}", std::process::id()),
            )
            .map_err(|error| RunFailure::failed(error.to_string()))
        };
        let (thermo_group, group) = (group("thermo")?, group("workload")?);
        if let Some(limit) = workload.limit {
            group
                .set_memory_limit(limit.0)
                .map_err(|error| RunFailure::failed(error.to_string()))?;
        }
        let timeout = Duration::from_nanos(workload.timeout.0);
        let deadline = Instant::now() + timeout;
        Ok(Self {
            context,
            workload,
            deadline,
            pressure: None,
            attached: None,
            load: None,
            command: None,
            thermo_group,
            group,
        })
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Values, RunFailure> {
        let values = Values::default()
            .with("dir", self.context.dir.display())
            .with("here", self.context.experiment.here.display())
            .with("cgroup", self.group.path().display())
            .with("seed", self.context.seed)
            .with("thermo", self.context.thermo.display())
            .with("lab", self.context.lab.display())
            .with("port", free_port()?);
        if let Some(Ready::File(path)) = &self.workload.ready {
            // The file of an earlier run would make this one look ready.
            drop(fs::remove_file(self.context.dir.join(values.fill(path))));
        }
        let env = configuration
            .env
            .iter()
            .map(|(key, value)| (key.clone(), values.fill(value)))
            .collect();
        let argv = values.fill_all(&self.workload.command);
        let command = self.start_program("command", &argv, &env, &self.group.procs_files())?;
        let values = values.with("pid", command.id());
        self.command = Some(command);
        Ok(values)
    }

    fn start_program(
        &self,
        name: &str,
        argv: &[String],
        env: &BTreeMap<String, String>,
        procs_files: &[PathBuf],
    ) -> Result<Program, RunFailure> {
        let output = self.context.logs.join(format!("{name}.out"));
        ProgramSpec {
            argv,
            env,
            dir: self.context.dir,
            procs_files,
            output: &output,
        }
        .start()
        .map_err(|error| RunFailure::failed(format!("cannot start {}: {error}", program_name(argv))))
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
                Ready::Tcp(port) => (accepts_connections(&values.fill(port)), "its port"),
                Ready::File(path) => (self.context.dir.join(values.fill(path)).exists(), "its file"),
            };
            if is_ready {
                return Ok(());
            }
            self.check_stop_and_timeout(&format!("it was not ready ({missing} did not appear)"))?;
            let command = self.command.as_mut();
            if let Some((status, printed)) =
                command.and_then(|command| wait_for_end(command, Duration::from_millis(20)))
            {
                let how = describe_failure(status).unwrap_or_else(|| "ended".into());
                return Err(RunFailure::failed(format!(
                    "the command {how} before it was ready: {}",
                    last_lines(&printed)
                )));
            }
        }
    }

    fn fill(&mut self, values: &Values) -> Result<(), RunFailure> {
        if self.workload.fill.is_empty() {
            return Ok(());
        }
        let argv = values.fill_all(&self.workload.fill);
        let mut fill = self.start_program("fill", &argv, &BTreeMap::new(), &[])?;
        loop {
            self.check_stop_and_timeout("the fill command did not end")?;
            if let Some((status, printed)) = wait_for_end(&mut fill, POLL_INTERVAL) {
                return match describe_failure(status) {
                    None => Ok(()),
                    Some(how) => Err(RunFailure::failed(format!(
                        "{} {how}: {}",
                        program_name(&argv),
                        last_lines(&printed)
                    ))),
                };
            }
        }
    }

    /// Fails when the user stopped the experiment, or after the workload's timeout. `problem` describes what
    /// is late.
    fn check_stop_and_timeout(&self, problem: &str) -> Result<(), RunFailure> {
        if self.context.stop.load(Ordering::Relaxed) {
            Err(RunFailure::Stopped)
        } else if Instant::now() >= self.deadline {
            Err(RunFailure::failed(format!(
                "{problem} within the timeout of {}",
                self.workload.timeout
            )))
        } else {
            Ok(())
        }
    }
}

/// Exit status and output of a program, if it ends within `span`.
fn wait_for_end(program: &mut Program, span: Duration) -> Option<(std::process::ExitStatus, String)> {
    match program.wait(span) {
        Ok(status) => status.map(|status| (status, program.printed())),
        Err(_) => {
            // Waiting failed, not the program. The caller tries again; sleep to avoid a busy loop.
            sleep(Duration::from_millis(10));
            None
        }
    }
}

/// A free TCP port.
pub(crate) fn free_port() -> Result<u16, RunFailure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| Ok(listener.local_addr()?.port()))
        .map_err(|error| RunFailure::failed(format!("no free TCP port: {error}")))
}

fn accepts_connections(port: &str) -> bool {
    let Ok(port) = port.parse::<u16>() else {
        return false;
    };
    TcpStream::connect_timeout(
        &SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        Duration::from_secs(1),
    )
    .is_ok()
}

fn program_name(argv: &[String]) -> String {
    argv.first().cloned().unwrap_or_default()
}
