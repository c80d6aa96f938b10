//! A running workload: its control group, and the program that keeps it going.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::plan::WorkloadPlan;
use crate::cgroup::{Cgroup, Hierarchies};
use crate::error::RunFailure;
use crate::process::{Program, ProgramSpec, last_lines};

/// Filling a large database may take minutes.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// How often a wait checks whether the user stopped the experiment.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A running workload. Dropping it ends all its programs and removes its control group.
#[derive(Debug)]
pub(super) struct Workload<'a> {
    // In this order they are dropped: the starting program ends what it started.
    program: Program,
    /// The control group of the monitored programs.
    pub(super) group: Cgroup,
    flags: &'a [String],
    stop: &'a AtomicBool,
}

impl<'a> Workload<'a> {
    /// Starts the workload, and waits until it prints `ready`. Its output goes to a file in `folder`.
    pub(super) fn start(
        plan: &'a WorkloadPlan,
        folder: &Path,
        stop: &'a AtomicBool,
    ) -> Result<Self, RunFailure> {
        let failed = |error: crate::Error| RunFailure::failed(error.to_string());
        let hierarchies = Hierarchies::detect().map_err(failed)?;
        let name = format!("thermo-forecast-{}", plan.name);
        let group = Cgroup::create(&hierarchies, &name).map_err(failed)?;
        let files = group.procs_files();
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let program = ProgramSpec {
            argv: &plan.start,
            env: &BTreeMap::from([("groups".to_owned(), files.join(" "))]),
            dir: folder,
            procs_files: &[],
            output: &folder.join(format!("{}.out", plan.name)),
        };
        let program = program
            .start()
            .map_err(|error| RunFailure::failed(format!("cannot start {}: {error}", plan.start.join(" "))))?;
        let mut workload = Self {
            program,
            group,
            flags: &plan.flags,
            stop,
        };
        workload.wait_until_ready()?;
        Ok(workload)
    }

    fn wait_until_ready(&mut self) -> Result<(), RunFailure> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.program.printed().lines().any(|line| line == "ready") {
            if Instant::now() > deadline {
                return Err(RunFailure::failed("was not ready in time"));
            }
            self.pause(POLL_INTERVAL)?;
        }
        Ok(())
    }

    /// Waits for `span`.
    ///
    /// # Errors
    /// When the user stopped the experiment, or the workload has ended.
    pub(super) fn pause(&mut self, span: Duration) -> Result<(), RunFailure> {
        let deadline = Instant::now() + span;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(RunFailure::Stopped);
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.program.wait(rest.min(POLL_INTERVAL)) {
                Ok(None) if rest.is_zero() => return Ok(()),
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => {
                    return Err(RunFailure::failed(format!(
                        "the workload has ended: {}",
                        last_lines(&self.program.printed())
                    )));
                }
            }
        }
    }

    /// The target and the flags of a `thermo` command.
    pub(super) fn target(&self) -> Vec<String> {
        let mut target = vec!["--cgroup".to_owned(), self.group.path().display().to_string()];
        target.extend_from_slice(self.flags);
        target
    }

    /// What `thermo advise` prints as JSON after monitoring this workload.
    pub(super) fn advice(
        &self,
        thermo: &Path,
        watch: Duration,
        cpu: &str,
    ) -> Result<serde_json::Value, RunFailure> {
        let mut command = Command::new(thermo);
        command.arg("advise").args(self.target());
        command.args(["--cpu", cpu, "--json", "--duration"]);
        command.arg(format!("{}ms", watch.as_millis()));
        let output = command.output();
        if self.stop.load(Ordering::Relaxed) {
            return Err(RunFailure::Stopped);
        }
        let output = output.map_err(|error| RunFailure::failed(format!("cannot start thermo: {error}")))?;
        let failed = || {
            let printed = String::from_utf8_lossy(&output.stderr);
            RunFailure::failed(format!("thermo advise failed: {}", last_lines(&printed)))
        };
        // Exit code 1: it advises against acting.
        let is_answer = matches!(output.status.code(), Some(0 | 1));
        is_answer
            .then(|| serde_json::from_slice(&output.stdout).ok())
            .flatten()
            .ok_or_else(failed)
    }
}

/// Swap is read without read-ahead, which is right for zram; the setting is restored when dropped.
#[derive(Debug)]
pub(super) struct PageCluster {
    previous: String,
}

impl PageCluster {
    const FILE: &str = "/proc/sys/vm/page-cluster";

    pub(super) fn zero() -> Result<Self, crate::Error> {
        let failed = |operation| {
            move |source| crate::Error::File {
                operation,
                path: Self::FILE.into(),
                source,
            }
        };
        let previous = fs::read_to_string(Self::FILE).map_err(failed("read"))?;
        fs::write(Self::FILE, "0").map_err(failed("write"))?;
        Ok(Self { previous })
    }
}

impl Drop for PageCluster {
    fn drop(&mut self) {
        drop(fs::write(Self::FILE, &self.previous));
    }
}
