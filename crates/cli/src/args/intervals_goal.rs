//! Automatic tuning of the intervals; DAMON calls it `intervals_goal`.

use anyhow::{Context as _, Error, anyhow, ensure};
use thermo_engine::{Attrs, IntervalsGoal};
use thermo_units::BasisPoints;
use thermo_units::Nanos;

/// The goal of interval tuning.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Monitoring")]
pub struct IntervalsGoalOpts {
    /// Tune the intervals until this share of access checks (basis points, or percent like 4%) finds an
    /// access. AGGRS: aggregations between two changes; the last two: bounds of the sampling interval
    #[arg(
        long,
        visible_alias = "monitoring-intervals-goal",
        num_args = 4,
        allow_hyphen_values = true,
        value_names = ["ACCESS_BP", "AGGRS", "MIN_SAMPLE", "MAX_SAMPLE"],
        conflicts_with = "intervals_autotune"
    )]
    intervals_goal: Vec<String>,

    /// Tune the intervals with damo's default goal: 4% 3 5ms 10s
    #[arg(long, visible_alias = "monitoring-intervals-autotune")]
    intervals_autotune: bool,
}

impl IntervalsGoalOpts {
    /// The goal; `None` without tuning.
    ///
    /// # Errors
    /// A value of the goal does not parse or is out of range.
    pub fn goal(&self) -> anyhow::Result<Option<IntervalsGoal>> {
        let [access, aggrs, min, max] = self.intervals_goal.as_slice() else {
            return Ok(self.intervals_autotune.then(IntervalsGoal::default));
        };
        let time = |text: &String| {
            text.parse::<Nanos>()
                .map_err(|error| anyhow!("--intervals-goal: {error}"))
        };
        let goal = IntervalsGoal {
            access: share(access)?,
            aggrs: aggrs.parse().map_err(|_| {
                anyhow!("--intervals-goal: {aggrs:?} is not a number of aggregations: give a number like 3")
            })?,
            min_sample: time(min)?,
            max_sample: time(max)?,
        };
        ensure!(
            goal.access > BasisPoints(0),
            "--intervals-goal: a goal of no accesses ({access}) makes the intervals ever shorter: give a share of access checks like 4%"
        );
        ensure!(
            goal.min_sample > Nanos::ZERO,
            "--intervals-goal: the minimum sampling interval cannot be {min}: give a time like 5ms"
        );
        ensure!(
            goal.min_sample <= goal.max_sample,
            "--intervals-goal: the minimum sampling interval ({min}) is longer than the maximum ({max}): swap them"
        );
        Ok(Some(goal))
    }

    /// The first attributes. A sampling interval that the user did not give (`sample_given`) is moved between
    /// the bounds of the goal.
    ///
    /// # Errors
    /// Those of [`IntervalsGoalOpts::goal`]; or the attributes do not fit the goal.
    pub fn first_attrs(&self, attrs: Attrs, sample_given: bool) -> anyhow::Result<Attrs> {
        let Some(goal) = self.goal()? else {
            return Ok(attrs);
        };
        let attrs = match sample_given {
            true => attrs,
            false => {
                let checks = attrs.samples_in(attrs.aggr);
                let sample = attrs.sample.max(goal.min_sample).min(goal.max_sample);
                Attrs {
                    sample,
                    aggr: attrs.aggr.max(sample * checks),
                    ..attrs
                }
            }
        };
        goal.check(&attrs).map(|()| attrs).map_err(Error::from)
    }
}

/// Parses a share of access checks: basis points, or percent.
fn share(text: &str) -> anyhow::Result<BasisPoints> {
    let percent = text.strip_suffix('%').map(str::trim_end);
    let (number, max, scale) = percent.map_or((text, 10_000.0, 1.0), |number| (number, 100.0, 100.0));
    let value: f64 = number
        .parse()
        .ok()
        .filter(|value| (0.0..=max).contains(value))
        .with_context(|| {
            format!("--intervals-goal: {text:?} is not a share of access checks: give basis points or percent, like 400 or 4%")
        })?;
    Ok(BasisPoints((value * scale).round() as u64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::args::parsed;

    fn opts(arguments: &[&str]) -> IntervalsGoalOpts {
        parsed(arguments)
    }

    #[test]
    fn goal_parses_like_damos() {
        assert_eq!(opts(&[]).goal().unwrap(), None);
        assert_eq!(
            opts(&["--intervals-autotune"]).goal().unwrap(),
            Some(IntervalsGoal::default())
        );
        for access in ["250", "2.5%"] {
            let goal = opts(&["--intervals-goal", access, "5", "1ms", "2s"])
                .goal()
                .unwrap();
            let expected = IntervalsGoal {
                access: BasisPoints(250),
                aggrs: 5,
                min_sample: Nanos::millis(1),
                max_sample: Nanos::secs(2),
            };
            assert_eq!(goal, Some(expected), "{access}");
        }
    }

    #[test]
    fn wrong_goal_is_refused_with_a_sentence() {
        for (words, expected) in [
            (["5", "x", "1ms", "2s"], "not a number of aggregations"),
            (["20000", "3", "1ms", "2s"], "not a share of access checks"),
            (["101%", "3", "1ms", "2s"], "not a share of access checks"),
            (["-4", "3", "1ms", "2s"], "not a share of access checks"),
            (["0%", "3", "5ms", "10s"], "a goal of no accesses"),
            (["4%", "3", "0", "10s"], "cannot be 0: give a time like 5ms"),
            (["400", "3", "2s", "1ms"], "swap them"),
            (["400", "3", "soon", "1ms"], "--intervals-goal:"),
        ] {
            let goal = [&["--intervals-goal"][..], &words].concat();
            let error = opts(&goal).goal().unwrap_err().to_string();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn first_interval_lies_within_the_bounds() {
        let slow = opts(&["--intervals-goal", "400", "3", "50ms", "2s"]);
        let attrs = slow.first_attrs(Attrs::default(), false).unwrap();
        assert_eq!((attrs.sample, attrs.aggr), (Nanos::millis(50), Nanos::secs(1)));
        assert!(slow.first_attrs(Attrs::default(), true).is_err());
        let never = opts(&["--intervals-goal", "400", "0", "5ms", "2s"]);
        assert!(never.first_attrs(Attrs::default(), false).is_err());
    }
}
