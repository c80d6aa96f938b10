//! The measured part of a run: from the start of the load to its end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{ActiveRun, POLL_INTERVAL, wait_for_end};
use crate::error::RunFailure;
use crate::experiment::Configuration;
use crate::huge_pages::MachineSampler;
use crate::metric;
use crate::placeholder::Values;
use crate::pressure::Pressure;
use crate::process::{describe_failure, last_lines};
use crate::sample::{Counters, Outcome, Samples};

impl ActiveRun<'_> {
    /// Measures while the load runs, with `thermo` attached and memory pressure applied as configured.
    pub(super) fn measure(
        &mut self,
        configuration: &Configuration,
        values: &Values,
    ) -> Result<Outcome, RunFailure> {
        let before = Counters::read(&self.group);
        let interval = Duration::from_nanos(self.context.experiment.sample.0);
        let machine = configuration
            .thp
            .is_some()
            .then(|| MachineSampler::start(interval, self.context.logs));
        let begin = Instant::now();
        if !configuration.attach.is_empty() {
            let mut argv = vec![self.context.thermo.display().to_string()];
            argv.extend(values.fill_all(&configuration.attach));
            let procs_files = self.thermo_group.procs_files();
            self.attached = Some(self.start_program("thermo", &argv, &BTreeMap::new(), &procs_files)?);
        }
        if !self.workload.load.is_empty() {
            let argv = values.fill_all(&self.workload.load);
            self.load = Some(self.start_program("load", &argv, &BTreeMap::new(), &[])?);
        }
        if let (false, Some(peak)) = (configuration.pressure.is_empty(), self.context.peak) {
            self.pressure = Some(Pressure::start(&self.group, &configuration.pressure, peak));
        }
        let samples = self.sample_until_end(begin)?;
        let runtime = begin.elapsed().as_secs_f64();
        let mut outcome = samples.outcome();
        outcome.measured.insert(metric::RUNTIME.into(), runtime);
        before.differences(&self.group, &mut outcome.measured);
        if let Some(machine) = machine {
            machine.stop(&mut outcome.measured);
        }
        if let Some(cpu) = self.attached.as_ref().and_then(|_| self.thermo_group.cpu()) {
            outcome.measured.insert(
                metric::THERMO_CPU.into(),
                (cpu.user + cpu.system) / runtime * 100.0,
            );
            outcome
                .measured
                .insert(metric::THERMO_CPU_SYSTEM.into(), cpu.system / runtime * 100.0);
        }
        self.pressure = None;
        Ok(outcome)
    }

    /// Samples memory until the load ends, or until the command ends when there is no load.
    fn sample_until_end(&mut self, begin: Instant) -> Result<Samples, RunFailure> {
        let interval = Duration::from_nanos(self.context.experiment.sample.0);
        let mut samples = Samples::default();
        let mut next = Duration::ZERO;
        loop {
            let now = begin.elapsed();
            if now >= next {
                samples.take(
                    now,
                    self.group.memory(),
                    self.context.swap,
                    self.attached.as_ref(),
                );
                next = now + interval;
            }
            self.check_stop_and_timeout("the load did not end")?;
            self.check_attached()?;
            let span = next.saturating_sub(begin.elapsed()).min(POLL_INTERVAL);
            let has_load = self.load.is_some();
            let program = if has_load {
                self.load.as_mut()
            } else {
                self.command.as_mut()
            };
            let Some((status, printed)) = program.and_then(|program| wait_for_end(program, span)) else {
                continue;
            };
            let name = if has_load { "load" } else { "command" };
            return match describe_failure(status) {
                None => {
                    if !has_load {
                        samples.ended_at(begin.elapsed());
                    }
                    Ok(samples)
                }
                Some(how) => Err(RunFailure::failed(format!(
                    "the {name} {how}: {}",
                    last_lines(&printed)
                ))),
            };
        }
    }

    /// Fails when the attached program failed, or ended before its target.
    fn check_attached(&mut self) -> Result<(), RunFailure> {
        let Some((status, printed)) = self
            .attached
            .as_mut()
            .and_then(|thermo| wait_for_end(thermo, Duration::ZERO))
        else {
            return Ok(());
        };
        let target_ended = self
            .command
            .as_mut()
            .is_none_or(|command| wait_for_end(command, Duration::ZERO).is_some());
        match describe_failure(status) {
            None if target_ended => Ok(()),
            how => {
                let how = how.unwrap_or_else(|| "ended".into());
                Err(RunFailure::failed(format!(
                    "thermo {how} before the workload: {}",
                    last_lines(&printed)
                )))
            }
        }
    }
}
