//! Runs a whole experiment: checks first, then all runs in order. Each run is saved as soon as it ends.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use thermo_units::Bytes;

use crate::cgroup::Hierarchies;
use crate::error::{Error, RunFailure};
use crate::experiment::{Configuration, Experiment, Workload};
use crate::needs;
use crate::order::{PlannedRun, order};
use crate::process::{describe_failure, last_lines};
use crate::results::{Results, Run};
use crate::run::{RunContext, run_once};
use crate::run_store::RunStore;
use crate::swap::Swap;
use crate::warm::warm;

/// Options of an experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The results folder; created if missing. Runs in it are not repeated.
    pub results_dir: PathBuf,
    /// Number of repeats; as in the experiment file when `None`.
    pub repeats: Option<usize>,
    /// Run only these workloads; all when empty. `redis` also selects `redis/recent`.
    pub only_workloads: Vec<String>,
    /// Run only these configurations and their baselines; all when empty.
    pub only_configurations: Vec<String>,
    /// Path of the `thermo` to attach.
    pub thermo: PathBuf,
    /// Path of the `thermo-lab` that runs synthetic workloads.
    pub lab: PathBuf,
    /// Set by the caller's signal handler. The current run is aborted and everything is restored.
    pub stop: Arc<AtomicBool>,
}

/// A progress event.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// The runs are planned.
    Planned {
        /// Runs to make.
        runs: usize,
        /// Runs that already have a result.
        finished: usize,
    },
    /// A workload is set up, once, before its first run.
    SettingUp {
        /// The workload.
        workload: String,
    },
    /// A run begins.
    Begin {
        /// Number among the runs to make, from 1.
        nr: usize,
        /// Workload.
        workload: String,
        /// Configuration.
        configuration: String,
        /// Repeat, from 0.
        repeat: usize,
    },
    /// A run has ended and was saved.
    End {
        /// The run, with its failure if it failed.
        run: Run,
        /// Total time in seconds.
        seconds: f64,
    },
    /// The user stopped the experiment.
    Stopped,
}

/// Makes the missing runs of `experiment` and returns all results.
///
/// A failed run is saved as failed. It is made again when the experiment runs again.
///
/// # Errors
/// Before any run: when programs are missing, memory cannot be measured, swap cannot be created or the
/// results folder belongs to another experiment. Later: when a set-up fails or results cannot be written.
pub fn run(
    experiment: &Experiment,
    options: &Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Results, Error> {
    let planned = plan(experiment, options)?;
    check_needs(experiment, &planned)?;
    let mut store = RunStore::open(&options.results_dir, experiment)?;
    let mut missing = planned.clone();
    missing.retain(|run| {
        let (workload, configuration) = parts_of(experiment, run);
        !store.has_result(&workload.name, &configuration.name, run.repeat)
    });
    progress(&Progress::Planned {
        runs: missing.len(),
        finished: planned.len() - missing.len(),
    });
    if missing.is_empty() {
        return Ok(store.results);
    }
    let mut environment = Environment {
        experiment,
        options,
        hierarchies: Hierarchies::detect()?,
        swap: experiment.zram.map(Swap::create).transpose()?,
        // Programs start in their own folders, where a relative path would not be found.
        thermo: absolute(&options.thermo),
        lab: absolute(&options.lab),
        folders: Folders::create(&options.results_dir)?,
        set_up: vec![false; experiment.workloads.len()],
    };
    for (at, run) in missing.iter().enumerate() {
        if environment
            .make_run(at + 1, run, &mut store, progress)?
            .is_break()
        {
            progress(&Progress::Stopped);
            break;
        }
    }
    Ok(store.results)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The workload and the configuration of a planned run.
fn parts_of<'a>(experiment: &'a Experiment, run: &PlannedRun) -> (&'a Workload, &'a Configuration) {
    (
        &experiment.workloads[run.workload],
        &experiment.configurations[run.configuration],
    )
}

/// Resources shared by all runs of an experiment. Dropping it releases them.
struct Environment<'a> {
    experiment: &'a Experiment,
    options: &'a Options,
    hierarchies: Hierarchies,
    swap: Option<Swap>,
    thermo: PathBuf,
    lab: PathBuf,
    folders: Folders,
    /// For each workload, whether it is set up.
    set_up: Vec<bool>,
}

impl Environment<'_> {
    /// Makes a run, number `nr` of those to make, and saves it. Returns `Break` when the user stopped the
    /// experiment.
    fn make_run(
        &mut self,
        nr: usize,
        run: &PlannedRun,
        store: &mut RunStore,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<ControlFlow<()>, Error> {
        let (workload, configuration) = parts_of(self.experiment, run);
        let dir = self.folders.work(&workload.name)?;
        if self.is_stopped() || self.set_up_once(run.workload, &dir, progress)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        progress(&Progress::Begin {
            nr,
            workload: workload.name.clone(),
            configuration: configuration.name.clone(),
            repeat: run.repeat,
        });
        let logs = self
            .folders
            .logs(&workload.name, &configuration.name, run.repeat)?;
        let context = RunContext {
            experiment: self.experiment,
            hierarchies: &self.hierarchies,
            swap: self.swap.as_ref(),
            thermo: &self.thermo,
            lab: &self.lab,
            dir: &dir,
            logs: &logs,
            stop: &self.options.stop,
            peak: store.results.peak(&workload.name),
            seed: self.experiment.seed.wrapping_add(run.repeat as u64),
        };
        let begin = Instant::now();
        let Some(finished) = execute(&context, run) else {
            return Ok(ControlFlow::Break(()));
        };
        store.append(finished.clone())?;
        progress(&Progress::End {
            run: finished,
            seconds: begin.elapsed().as_secs_f64(),
        });
        Ok(ControlFlow::Continue(()))
    }

    /// Sets a workload up before its first run.
    fn set_up_once(
        &mut self,
        workload: usize,
        dir: &Path,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<ControlFlow<()>, Error> {
        if std::mem::replace(&mut self.set_up[workload], true) {
            return Ok(ControlFlow::Continue(()));
        }
        let workload = &self.experiment.workloads[workload];
        progress(&Progress::SettingUp {
            workload: workload.name.clone(),
        });
        match prepare(self.experiment, workload, dir) {
            Ok(()) => Ok(ControlFlow::Continue(())),
            // Ctrl-C on a terminal also ends the set-up script, so its failure is no error.
            Err(_) if self.is_stopped() => Ok(ControlFlow::Break(())),
            Err(error) => Err(error),
        }
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }
}

/// Makes a run. `None` when the user stopped it.
fn execute(context: &RunContext, run: &PlannedRun) -> Option<Run> {
    let (experiment, started) = (context.experiment, SystemTime::now());
    let (workload, configuration) = parts_of(experiment, run);
    let warmed = experiment.warm.map_or(Bytes::ZERO, warm);
    let (outcome, failure) = match run_once(context, workload, configuration) {
        Ok(outcome) => (outcome, None),
        Err(RunFailure::Stopped) => return None,
        Err(RunFailure::Failed(message)) => (crate::sample::Outcome::default(), Some(message)),
    };
    Some(Run {
        workload: workload.name.clone(),
        configuration: configuration.name.clone(),
        repeat: run.repeat,
        started_s: started
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        warmed_bytes: warmed.0,
        failure,
        measured: outcome.measured,
        samples: outcome.samples,
    })
}

/// The runs that the options select, in order.
fn plan(experiment: &Experiment, options: &Options) -> Result<Vec<PlannedRun>, Error> {
    let workloads: Vec<&str> = experiment
        .workloads
        .iter()
        .map(|workload| workload.name.as_str())
        .collect();
    let configurations: Vec<&str> = experiment
        .configurations
        .iter()
        .map(|with| with.name.as_str())
        .collect();
    for (filters, known) in [
        (&options.only_workloads, &workloads),
        (&options.only_configurations, &configurations),
    ] {
        let is_known = |filter: &&String| known.iter().any(|name| matches_filter(filter, name));
        if let Some(name) = filters.iter().find(|filter| !is_known(filter)) {
            return Err(Error::Unknown {
                name: name.clone(),
                known: known.join(", "),
            });
        }
    }
    let mut runs = order(experiment, options.repeats.unwrap_or(experiment.repeats));
    let is_selected = |filters: &[String], name: &str| {
        filters.is_empty() || filters.iter().any(|filter| matches_filter(filter, name))
    };
    let is_configuration_selected = |name: &str| is_selected(&options.only_configurations, name);
    // Baselines of selected configurations are selected too.
    let baselines: Vec<&str> = experiment
        .configurations
        .iter()
        .filter(|with| is_configuration_selected(&with.name))
        .filter_map(|with| with.against.as_deref())
        .collect();
    runs.retain(|run| {
        let name = configurations[run.configuration];
        is_selected(&options.only_workloads, workloads[run.workload])
            && (run.configuration == 0 || is_configuration_selected(name) || baselines.contains(&name))
    });
    Ok(runs)
}

/// True when `filter` is `name`, or the part of it before a `/`: `redis` matches `redis/recent`.
fn matches_filter(filter: &str, name: &str) -> bool {
    name.strip_prefix(filter)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check_needs(experiment: &Experiment, planned: &[PlannedRun]) -> Result<(), Error> {
    let used = |at: usize| planned.iter().any(|run| run.workload == at);
    let needs = experiment
        .workloads
        .iter()
        .enumerate()
        .filter(|(at, _)| used(*at));
    needs::check(needs.flat_map(|(_, workload)| &workload.needs))
}

/// Runs a workload's set-up script. Its files are removed with the work folder when the experiment ends.
fn prepare(experiment: &Experiment, workload: &Workload, dir: &Path) -> Result<(), Error> {
    let Some(script) = &workload.set_up else {
        return Ok(());
    };
    let values = crate::placeholder::Values::default()
        .with("dir", dir.display())
        .with("here", experiment.here.display())
        .with("seed", experiment.seed);
    let failed = |status: String, output: String| Error::SetUp {
        workload: workload.name.clone(),
        status,
        output,
    };
    let output = std::process::Command::new("/bin/sh")
        .args(["-eu", "-c", &values.fill(script)])
        .current_dir(dir)
        .output()
        .map_err(|error| failed("not started".into(), error.to_string()))?;
    match describe_failure(output.status) {
        None => Ok(()),
        Some(how) => Err(failed(how, last_lines(&String::from_utf8_lossy(&output.stderr)))),
    }
}

/// The folders of an experiment: work folders of workloads, removed at the end, and outputs of runs, kept.
struct Folders {
    work: PathBuf,
    logs: PathBuf,
}

impl Folders {
    fn create(results: &Path) -> Result<Self, Error> {
        let results = std::path::absolute(results).unwrap_or_else(|_| results.to_owned());
        Ok(Self {
            work: create_folder(results.join("work"))?,
            logs: create_folder(results.join("outputs"))?,
        })
    }

    fn work(&self, workload: &str) -> Result<PathBuf, Error> {
        create_folder(self.work.join(workload))
    }

    fn logs(&self, workload: &str, configuration: &str, repeat: usize) -> Result<PathBuf, Error> {
        create_folder(
            self.logs
                .join(workload)
                .join(configuration)
                .join(repeat.to_string()),
        )
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.work));
    }
}

fn create_folder(path: PathBuf) -> Result<PathBuf, Error> {
    match fs::create_dir_all(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::File {
            operation: "create",
            path,
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn selecting_configuration_selects_its_baselines() {
        let text = "name = 'x'\nrepeats = 1\n[[configuration]]\nname = 'orig'\n[[configuration]]\nname = 'mprs'\n\
                    [[configuration]]\nname = 'plrus'\nagainst = 'mprs'\n[[configuration]]\nname = 'other'\n\
                    [[workload]]\nname = 'w'\ncommand = ['true']\n";
        let experiment = Experiment::parse(text, Path::new("/")).unwrap();
        let options = Options {
            results_dir: PathBuf::new(),
            repeats: None,
            only_workloads: Vec::new(),
            only_configurations: vec!["plrus".into()],
            thermo: PathBuf::new(),
            lab: PathBuf::new(),
            stop: Arc::default(),
        };
        let planned = plan(&experiment, &options).unwrap();
        let name = |run: &PlannedRun| experiment.configurations[run.configuration].name.as_str();
        let mut names: Vec<&str> = planned.iter().map(name).collect();
        names.sort_unstable();
        assert_eq!(names, ["mprs", "orig", "plrus"]);
    }

    #[test]
    fn filter_matches_name_or_first_component() {
        assert!(matches_filter("redis", "redis/recent") && matches_filter("redis/recent", "redis/recent"));
        assert!(!matches_filter("red", "redis/recent") && !matches_filter("redis/moving", "redis/recent"));
    }
}
