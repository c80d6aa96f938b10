//! A whole experiment: checks first, then every run in its order, each kept as soon as it ends.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use thermo_units::Bytes;

use crate::error::{Error, RunFailure};
use crate::experiment::{Configuration, Experiment, Workload};
use crate::group::Hierarchies;
use crate::ledger::Ledger;
use crate::needs;
use crate::order::{Planned, order};
use crate::process::{bad_end, tail};
use crate::results::{Results, Run};
use crate::run::{Bench, once};
use crate::swap::Swap;
use crate::warm::warm;

/// How an experiment is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder of the runs; made when not there. Runs that are there already are not made again.
    pub results_dir: PathBuf,
    /// Other than the experiment's own number of repeats.
    pub repeats: Option<usize>,
    /// Only workloads whose name, or the part of it before a `/`, is here; all when empty.
    pub only_workloads: Vec<String>,
    /// Only configurations whose name is here, and the one others are compared to; all when empty.
    pub only_configurations: Vec<String>,
    /// The `thermo` that is attached.
    pub thermo: PathBuf,
    /// The `thermo-lab` that makes workloads.
    pub lab: PathBuf,
    /// Set by the caller's signal handler: the run under way is given up, and everything is restored.
    pub stop: Arc<AtomicBool>,
}

/// What happens, for a progress line.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// The plan is made.
    Planned {
        /// Runs to make.
        runs: usize,
        /// Runs that are there already.
        there: usize,
    },
    /// A workload is set up, once, before its first run.
    SettingUp {
        /// The workload.
        workload: String,
    },
    /// A run begins.
    Begin {
        /// Which one of those to make, from 1.
        nr: usize,
        /// Its workload.
        workload: String,
        /// Its configuration.
        configuration: String,
        /// Its round, from 0.
        repeat: usize,
    },
    /// A run has ended and is kept.
    End {
        /// It, with its failure if it has one.
        run: Run,
        /// How long it took in all, in seconds.
        seconds: f64,
    },
    /// The experiment stops early, as asked.
    Stopped,
}

/// Runs what is missing of `experiment` and returns all results there are.
///
/// A run that fails is kept as failed, and made again when the experiment is run again.
///
/// # Errors
/// Before any run: when programs are missing, memory cannot be measured, swap cannot be made or the results folder
/// belongs to another experiment. Later: when a set-up fails or results cannot be written.
pub fn run(
    experiment: &Experiment,
    options: &Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Results, Error> {
    let planned = plan(experiment, options)?;
    needs_are_met(experiment, &planned)?;
    let mut ledger = Ledger::open(&options.results_dir, experiment)?;
    let mut missing = planned.clone();
    missing.retain(|run| {
        let (workload, configuration) = named(experiment, run);
        !ledger.has(&workload.name, &configuration.name, run.repeat)
    });
    progress(&Progress::Planned {
        runs: missing.len(),
        there: planned.len() - missing.len(),
    });
    if missing.is_empty() {
        return Ok(ledger.results);
    }
    let mut site = Site {
        experiment,
        options,
        hierarchies: Hierarchies::of_this_host()?,
        swap: experiment.zram.map(Swap::make).transpose()?,
        // Programs start in folders of their own: a path that is relative to ours would not be found.
        thermo: absolute(&options.thermo),
        lab: absolute(&options.lab),
        folders: Folders::make(&options.results_dir)?,
        set_up: vec![false; experiment.workloads.len()],
    };
    for (at, run) in missing.iter().enumerate() {
        if site.keep_one(at + 1, run, &mut ledger, progress)?.is_break() {
            progress(&Progress::Stopped);
            break;
        }
    }
    Ok(ledger.results)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// What a planned run is of.
fn named<'a>(experiment: &'a Experiment, run: &Planned) -> (&'a Workload, &'a Configuration) {
    (
        &experiment.workloads[run.workload],
        &experiment.configurations[run.configuration],
    )
}

/// What all runs of an experiment share on this machine; gone with it.
struct Site<'a> {
    experiment: &'a Experiment,
    options: &'a Options,
    hierarchies: Hierarchies,
    swap: Option<Swap>,
    thermo: PathBuf,
    lab: PathBuf,
    folders: Folders,
    /// Which workloads are set up.
    set_up: Vec<bool>,
}

impl Site<'_> {
    /// Makes one run, the `nr`th of those that were missing, and keeps it. Break: the user asked to stop.
    fn keep_one(
        &mut self,
        nr: usize,
        run: &Planned,
        ledger: &mut Ledger,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<ControlFlow<()>, Error> {
        let (workload, configuration) = named(self.experiment, run);
        let dir = self.folders.of(&workload.name)?;
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
            .log(&workload.name, &configuration.name, run.repeat)?;
        let bench = Bench {
            experiment: self.experiment,
            hierarchies: &self.hierarchies,
            swap: self.swap.as_ref(),
            thermo: &self.thermo,
            lab: &self.lab,
            dir: &dir,
            logs: &logs,
            stop: &self.options.stop,
            peak: ledger.results.peak(&workload.name),
            seed: self.experiment.seed.wrapping_add(run.repeat as u64),
        };
        let begin = Instant::now();
        let Some(kept) = make(&bench, run) else {
            return Ok(ControlFlow::Break(()));
        };
        ledger.keep(kept.clone())?;
        progress(&Progress::End {
            run: kept,
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
            // Ctrl-C on a terminal reaches the set-up too, and ends it: that is no mistake of the set-up's.
            Err(_) if self.is_stopped() => Ok(ControlFlow::Break(())),
            Err(error) => Err(error),
        }
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }
}

/// Makes one run; nothing when the user asked to stop in the middle of it.
fn make(bench: &Bench, run: &Planned) -> Option<Run> {
    let (experiment, started) = (bench.experiment, SystemTime::now());
    let (workload, configuration) = named(experiment, run);
    let warmed = experiment.warm.map_or(Bytes::ZERO, warm);
    let (outcome, failure) = match once(bench, workload, configuration) {
        Ok(outcome) => (outcome, None),
        Err(RunFailure::Stopped) => return None,
        Err(RunFailure::Wrong(sentence)) => (crate::sample::Outcome::default(), Some(sentence)),
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

/// The runs the options ask for, in order.
fn plan(experiment: &Experiment, options: &Options) -> Result<Vec<Planned>, Error> {
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
    for (asked, known) in [
        (&options.only_workloads, &workloads),
        (&options.only_configurations, &configurations),
    ] {
        let knows = |name: &&String| known.iter().any(|known| is_meant(name, known));
        if let Some(name) = asked.iter().find(|name| !knows(name)) {
            return Err(Error::Unknown {
                name: name.clone(),
                known: known.join(", "),
            });
        }
    }
    let mut runs = order(experiment, options.repeats.unwrap_or(experiment.repeats));
    let asked =
        |names: &[String], name: &str| names.is_empty() || names.iter().any(|asked| is_meant(asked, name));
    let wanted = |name: &str| asked(&options.only_configurations, name);
    // What others are compared to comes along: the first, and what those that are wanted name.
    let compared: Vec<&str> = experiment
        .configurations
        .iter()
        .filter(|with| wanted(&with.name))
        .filter_map(|with| with.against.as_deref())
        .collect();
    runs.retain(|run| {
        let name = configurations[run.configuration];
        asked(&options.only_workloads, workloads[run.workload])
            && (run.configuration == 0 || wanted(name) || compared.contains(&name))
    });
    Ok(runs)
}

/// `redis` means `redis/recent` and `redis/moving` too.
fn is_meant(asked: &str, name: &str) -> bool {
    name.strip_prefix(asked)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn needs_are_met(experiment: &Experiment, planned: &[Planned]) -> Result<(), Error> {
    let used = |at: usize| planned.iter().any(|run| run.workload == at);
    let needs = experiment
        .workloads
        .iter()
        .enumerate()
        .filter(|(at, _)| used(*at));
    needs::check(needs.flat_map(|(_, workload)| &workload.needs))
}

/// Runs a workload's set-up. Its data are removed with the work folder when the experiment ends.
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
    let done = std::process::Command::new("/bin/sh")
        .args(["-eu", "-c", &values.fill(script)])
        .current_dir(dir)
        .output()
        .map_err(|error| failed("not started".into(), error.to_string()))?;
    match bad_end(done.status) {
        None => Ok(()),
        Some(how) => Err(failed(how, tail(&String::from_utf8_lossy(&done.stderr)))),
    }
}

/// The folders of an experiment: the workloads' data, removed at the end, and the outputs of every run, kept.
struct Folders {
    work: PathBuf,
    logs: PathBuf,
}

impl Folders {
    fn make(results: &Path) -> Result<Self, Error> {
        let results = std::path::absolute(results).unwrap_or_else(|_| results.to_owned());
        Ok(Self {
            work: folder(results.join("work"))?,
            logs: folder(results.join("outputs"))?,
        })
    }

    fn of(&self, workload: &str) -> Result<PathBuf, Error> {
        folder(self.work.join(workload))
    }

    fn log(&self, workload: &str, configuration: &str, repeat: usize) -> Result<PathBuf, Error> {
        folder(
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

fn folder(path: PathBuf) -> Result<PathBuf, Error> {
    match fs::create_dir_all(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::File {
            doing: "make",
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
    fn what_a_wanted_configuration_is_compared_to_comes_along() {
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
        let name = |run: &Planned| experiment.configurations[run.configuration].name.as_str();
        let mut names: Vec<&str> = planned.iter().map(name).collect();
        names.sort_unstable();
        assert_eq!(names, ["mprs", "orig", "plrus"]);
    }

    #[test]
    fn a_family_of_workloads_goes_by_its_first_name() {
        assert!(is_meant("redis", "redis/recent") && is_meant("redis/recent", "redis/recent"));
        assert!(!is_meant("red", "redis/recent") && !is_meant("redis/moving", "redis/recent"));
    }
}
