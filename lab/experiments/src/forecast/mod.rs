//! Prediction beside reality: what `thermo advise` predicts for a workload, and what `thermo reclaim` then
//! does to it.
//!
//! Each `Workload` is started once, in a control group of its own, and watched without acting. Then `thermo
//! reclaim` acts with each age, round by round; every run has a zram swap of its own, whose removal brings
//! all memory back (`Acting`). A [`Cell`] holds prediction and measurement; [`Comparison`] judges them. Every
//! cell is saved as soon as it is measured.

mod act;
mod auto_age;
mod cell;
mod comparison;
mod plan;
mod workload;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use thermo_units::Nanos;

pub use act::Measured;
pub use auto_age::AutoRun;
pub use cell::{Cell, Predicted};
pub use comparison::{Aim, Comparison, heading, row};
pub use plan::{Plan, WorkloadPlan};

use self::act::Acting;
use self::workload::{PageCluster, Workload};
use crate::error::RunFailure;
use crate::{Error, needs};

/// Options of an experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `thermo` to measure.
    pub thermo: PathBuf,
    /// Folder for the cells, the advice and the output of programs.
    pub results_dir: PathBuf,
    /// Also run `thermo reclaim --auto` for this long.
    pub auto: Option<Nanos>,
    /// Set by the caller to end the experiment early.
    pub stop: Arc<AtomicBool>,
}

/// Watches each workload of `plan` and acts on it. `progress` gets a line at a time. A workload that cannot
/// run, or ends early, is a failure in the result and does not end the experiment.
///
/// # Errors
/// When the results folder or the setting of swap read-ahead cannot be written.
pub fn run(plan: &Plan, options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Comparison, Error> {
    let folder = &options.results_dir;
    fs::create_dir_all(folder).map_err(file_error("create", folder))?;
    let folder = fs::canonicalize(folder).map_err(file_error("open", folder))?;
    let path = folder.join("runs.jsonl");
    let log = File::options().create(true).append(true).open(&path);
    let _page_cluster = PageCluster::zero()?;
    let mut experiment = Experiment {
        plan,
        options,
        log: log.map_err(file_error("write", &path))?,
        folder,
        progress,
        results: Comparison::default(),
    };
    (experiment.progress)(heading().trim_end());
    for workload in &plan.workloads {
        match experiment.run_workload(workload) {
            Ok(()) => {}
            Err(RunFailure::Stopped) => break,
            Err(RunFailure::Failed(why)) => {
                let failure = format!("{}: {why}", workload.name);
                (experiment.progress)(&failure);
                experiment.results.failures.push(failure);
            }
        }
    }
    Ok(experiment.results)
}

struct Experiment<'a> {
    plan: &'a Plan,
    options: &'a Options,
    folder: PathBuf,
    log: File,
    progress: &'a mut dyn FnMut(&str),
    results: Comparison,
}

impl Experiment<'_> {
    fn run_workload(&mut self, plan: &WorkloadPlan) -> Result<(), RunFailure> {
        needs::check(plan.needs.iter()).map_err(|error| RunFailure::failed(error.to_string()))?;
        let options = self.options;
        let mut workload = Workload::start(plan, &self.folder, &options.stop)?;
        workload.pause(time(self.plan.warm_up))?;
        let advice = workload.advice(&options.thermo, time(self.plan.watch), &self.plan.cpu)?;
        let path = self.folder.join(format!("advice-{}.json", plan.name));
        fs::write(&path, advice.to_string()).map_err(|error| failed(&error))?;
        for round in 1..=self.plan.rounds {
            for &age in &self.plan.ages {
                self.run_age(&mut workload, &plan.name, (round, age), &advice)?;
            }
        }
        match options.auto {
            Some(span) => self.run_auto(&mut workload, &plan.name, span, &advice),
            None => Ok(()),
        }
    }

    fn run_age(
        &mut self,
        workload: &mut Workload<'_>,
        name: &str,
        (round, age): (usize, Nanos),
        advice: &Value,
    ) -> Result<(), RunFailure> {
        let flags = [
            "--max-refaults",
            "100%",
            "--min-age",
            &format!("{}ms", time(age).as_millis()),
        ];
        let mut acting = self.act(workload, &flags)?;
        acting.settle(time(age) + time(self.plan.settle))?;
        let measured = acting.measure(time(self.plan.each))?;
        drop(acting);
        let age_s = time(age).as_secs();
        let cell = Cell {
            workload: name.to_owned(),
            round,
            age_s,
            measured,
            predicted: Predicted::of(advice, age_s),
        };
        self.save(&cell)?;
        (self.progress)(row(&cell).trim_end());
        self.results.cells.push(cell);
        Ok(())
    }

    fn run_auto(
        &mut self,
        workload: &mut Workload<'_>,
        name: &str,
        span: Nanos,
        advice: &Value,
    ) -> Result<(), RunFailure> {
        let mut acting = self.act(workload, &["--auto"])?;
        let mut minutes = Vec::new();
        for _ in 0..time(span).as_secs() / 60 {
            minutes.push(acting.measure(Duration::from_secs(60))?);
        }
        drop(acting);
        let run = AutoRun {
            workload: name.to_owned(),
            working_set_bytes: working_set(advice),
            minutes,
        };
        self.save(&run)?;
        (self.progress)(run.text(&self.results.cells).trim_end());
        self.results.auto.push(run);
        Ok(())
    }

    fn act<'a, 'b>(
        &self,
        workload: &'a mut Workload<'b>,
        flags: &[&str],
    ) -> Result<Acting<'a, 'b>, RunFailure> {
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let settings = (&*self.plan.cpu, self.plan.zram);
        Acting::start(workload, &self.options.thermo, settings, &flags, &self.folder)
    }

    fn save(&mut self, result: &impl Serialize) -> Result<(), RunFailure> {
        let line = serde_json::to_string(result).map_err(|error| failed(&error))?;
        writeln!(self.log, "{line}").map_err(|error| failed(&error))
    }
}

/// The mean working set, from the advice: refaults are told in bytes and as a share of it.
fn working_set(advice: &Value) -> f64 {
    let rows = advice["table"].as_array().into_iter().flatten();
    let of_row = |row: &Value| {
        let bytes = row["refault_bytes_per_min"]["high"].as_f64()?;
        let share = row["share_per_min"]["high"].as_f64()?;
        (share > 0.0).then(|| bytes / share)
    };
    rows.filter_map(of_row).next().unwrap_or(0.0)
}

const fn time(span: Nanos) -> Duration {
    Duration::from_nanos(span.0)
}

fn failed(error: &dyn std::fmt::Display) -> RunFailure {
    RunFailure::failed(error.to_string())
}

fn file_error(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File {
        operation,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_read() {
        let advice = serde_json::json!({"table": [
            {"min_age_s": 10, "known": false, "why": "a scan pass takes 12 s"},
            {"min_age_s": 30, "known": true, "net_saved_bytes": {"mid": 7}, "compressed_bytes": {"mid": 3},
             "refault_bytes_per_min": {"mid": 0, "high": 20}, "share_per_min": {"mid": 0.0, "high": 0.1}},
        ]});
        assert!((working_set(&advice) - 200.0).abs() < 1e-9);
        let predicted = Predicted::of(&advice, 30).map(|told| (told.net_bytes, told.zram_bytes));
        assert_eq!(predicted, Ok((7.0, 3.0)));
        assert_eq!(
            Predicted::of(&advice, 10),
            Err("a scan pass takes 12 s".to_owned())
        );
        assert!(Predicted::of(&advice, 60).is_err());
    }
}
