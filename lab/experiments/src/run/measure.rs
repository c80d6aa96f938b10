//! The measured part of a run: from the start of the load to its end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{ATTENTION, Running, ended};
use crate::error::RunFailure;
use crate::ethp::Watch;
use crate::experiment::Configuration;
use crate::metric;
use crate::placeholder::Values;
use crate::pressure::Pressure;
use crate::process::{bad_end, tail};
use crate::sample::{Counters, Outcome, Samples};

impl Running<'_> {
    /// Measures the load, with what is attached and presses meanwhile.
    pub(super) fn measure(
        &mut self,
        configuration: &Configuration,
        values: &Values,
    ) -> Result<Outcome, RunFailure> {
        let before = Counters::of(&self.group);
        let interval = Duration::from_nanos(self.bench.experiment.sample.0);
        let watch = configuration
            .thp
            .is_some()
            .then(|| Watch::begin(interval, self.bench.logs));
        let begin = Instant::now();
        if !configuration.attach.is_empty() {
            let mut words = vec![self.bench.thermo.display().to_string()];
            words.extend(values.fill_all(&configuration.attach));
            self.attached =
                Some(self.program("thermo", &words, &BTreeMap::new(), &self.our_group.doors())?);
        }
        if !self.workload.load.is_empty() {
            let words = values.fill_all(&self.workload.load);
            self.load = Some(self.program("load", &words, &BTreeMap::new(), &[])?);
        }
        if let (false, Some(peak)) = (configuration.pressure.is_empty(), self.bench.peak) {
            self.pressure = Some(Pressure::start(&self.group, &configuration.pressure, peak));
        }
        let samples = self.sample_until_end(begin)?;
        let runtime = begin.elapsed().as_secs_f64();
        let mut outcome = samples.outcome();
        outcome.measured.insert(metric::RUNTIME.into(), runtime);
        before.differences(&self.group, &mut outcome.measured);
        if let Some(watch) = watch {
            watch.end(&mut outcome.measured);
        }
        if let Some(cpu) = self.attached.as_ref().and_then(|_| self.our_group.cpu()) {
            outcome
                .measured
                .insert(metric::OUR_CPU.into(), (cpu.user + cpu.system) / runtime * 100.0);
            outcome
                .measured
                .insert(metric::OUR_CPU_SYSTEM.into(), cpu.system / runtime * 100.0);
        }
        self.pressure = None;
        Ok(outcome)
    }

    /// Samples memory until the load ends, or the command where there is no load.
    fn sample_until_end(&mut self, begin: Instant) -> Result<Samples, RunFailure> {
        let interval = Duration::from_nanos(self.bench.experiment.sample.0);
        let mut samples = Samples::default();
        let mut next = Duration::ZERO;
        loop {
            let now = begin.elapsed();
            if now >= next {
                samples.take(now, self.group.memory(), self.bench.swap, self.attached.as_ref());
                next = now + interval;
            }
            self.still_wanted("the load did not end")?;
            self.attached_still_runs()?;
            let span = next.saturating_sub(begin.elapsed()).min(ATTENTION);
            let has_load = self.load.is_some();
            let waited_for = if has_load {
                self.load.as_mut()
            } else {
                self.command.as_mut()
            };
            let Some((status, printed)) = waited_for.and_then(|program| ended(program, span)) else {
                continue;
            };
            let name = if has_load { "load" } else { "command" };
            return match bad_end(status) {
                None => {
                    if !has_load {
                        samples.ended_at(begin.elapsed());
                    }
                    Ok(samples)
                }
                Some(how) => Err(RunFailure::wrong(format!("the {name} {how}: {}", tail(&printed)))),
            };
        }
    }

    /// What is attached may end well by itself only when its target has.
    fn attached_still_runs(&mut self) -> Result<(), RunFailure> {
        let Some((status, printed)) = self
            .attached
            .as_mut()
            .and_then(|thermo| ended(thermo, Duration::ZERO))
        else {
            return Ok(());
        };
        let target_ended = self
            .command
            .as_mut()
            .is_none_or(|command| ended(command, Duration::ZERO).is_some());
        match bad_end(status) {
            None if target_ended => Ok(()),
            how => {
                let how = how.unwrap_or_else(|| "ended".into());
                Err(RunFailure::wrong(format!(
                    "thermo {how} before the workload: {}",
                    tail(&printed)
                )))
            }
        }
    }
}
