//! Intervals that tune themselves, by DAMON's name for it.

use anyhow::{Context as _, Error, anyhow, ensure};
use thermo_engine::{Attrs, IntervalsGoal};
use thermo_units::BasisPoints;
use thermo_units::Nanos;

/// A goal for intervals.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Monitoring")]
pub struct Tuned {
    /// Tune the intervals until this share of looks (bp, or like 4%) finds an access, after every so many
    /// aggregations, with a sampling interval between the last two
    #[arg(
        long,
        visible_alias = "monitoring-intervals-goal",
        num_args = 4,
        allow_hyphen_values = true,
        value_names = ["ACCESS_BP", "AGGRS", "MIN_SAMPLE", "MAX_SAMPLE"],
        conflicts_with = "intervals_autotune"
    )]
    intervals_goal: Vec<String>,

    /// The same with the goal that damo asks for: 4% 3 5ms 10s
    #[arg(long, visible_alias = "monitoring-intervals-autotune")]
    intervals_autotune: bool,
}

impl Tuned {
    /// What the intervals are tuned towards, if they are.
    ///
    /// # Errors
    /// A word that is not what it should be.
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
                anyhow!("--intervals-goal: {aggrs:?} is not a number of aggregations: give one like 3")
            })?,
            min_sample: time(min)?,
            max_sample: time(max)?,
        };
        ensure!(
            goal.access > BasisPoints(0),
            "--intervals-goal: a goal of no accesses ({access}) is met by looking ever more often: give a share of looks like 4%"
        );
        ensure!(
            goal.min_sample > Nanos::ZERO,
            "--intervals-goal: the shortest sampling interval cannot be {min}: give one like 5ms"
        );
        ensure!(
            goal.min_sample <= goal.max_sample,
            "--intervals-goal: the shortest sampling interval ({min}) is longer than the longest ({max}): swap them"
        );
        Ok(Some(goal))
    }

    /// The attributes to begin with: with the sampling interval brought between the bounds where it was not given.
    pub fn begin_with(&self, attrs: Attrs, was_given: bool) -> anyhow::Result<Attrs> {
        let Some(goal) = self.goal()? else {
            return Ok(attrs);
        };
        let attrs = match was_given {
            true => attrs,
            false => {
                let looks = attrs.samples_in(attrs.aggr);
                let sample = attrs.sample.max(goal.min_sample).min(goal.max_sample);
                Attrs {
                    sample,
                    aggr: attrs.aggr.max(sample * looks),
                    ..attrs
                }
            }
        };
        goal.check(&attrs).map(|()| attrs).map_err(Error::from)
    }
}

/// A share of looks, of all that could find an access: basis points, or percent.
fn share(text: &str) -> anyhow::Result<BasisPoints> {
    let percent = text.strip_suffix('%').map(str::trim_end);
    let (number, most, scale) = percent.map_or((text, 10_000.0, 1.0), |number| (number, 100.0, 100.0));
    let value: f64 = number
        .parse()
        .ok()
        .filter(|value| (0.0..=most).contains(value))
        .with_context(|| {
            format!("--intervals-goal: {text:?} is not a share of looks: give basis points of 10000, or percent, like 400 or 4%")
        })?;
    Ok(BasisPoints((value * scale).round() as u64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::args::parsed;

    fn tuned(arguments: &[&str]) -> Tuned {
        parsed(arguments)
    }

    #[test]
    fn a_goal_in_damons_words() {
        assert_eq!(tuned(&[]).goal().unwrap(), None);
        assert_eq!(
            tuned(&["--intervals-autotune"]).goal().unwrap(),
            Some(IntervalsGoal::default())
        );
        for access in ["250", "2.5%"] {
            let goal = tuned(&["--intervals-goal", access, "5", "1ms", "2s"])
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
    fn mistakes_are_told_in_a_sentence() {
        for (words, says) in [
            (["5", "x", "1ms", "2s"], "not a number of aggregations"),
            (["20000", "3", "1ms", "2s"], "not a share of looks"),
            (["101%", "3", "1ms", "2s"], "not a share of looks"),
            (["-4", "3", "1ms", "2s"], "not a share of looks"),
            (["0%", "3", "5ms", "10s"], "a goal of no accesses"),
            (["4%", "3", "0", "10s"], "cannot be 0: give one like 5ms"),
            (["400", "3", "2s", "1ms"], "swap them"),
            (["400", "3", "soon", "1ms"], "--intervals-goal:"),
        ] {
            let goal = [&["--intervals-goal"][..], &words].concat();
            let error = tuned(&goal).goal().unwrap_err().to_string();
            assert!(error.contains(says), "{words:?}: {error}");
        }
    }

    #[test]
    fn it_begins_within_its_bounds() {
        let slow = tuned(&["--intervals-goal", "400", "3", "50ms", "2s"]);
        let attrs = slow.begin_with(Attrs::default(), false).unwrap();
        assert_eq!((attrs.sample, attrs.aggr), (Nanos::millis(50), Nanos::secs(1)));
        assert!(slow.begin_with(Attrs::default(), true).is_err());
        let never = tuned(&["--intervals-goal", "400", "0", "5ms", "2s"]);
        assert!(never.begin_with(Attrs::default(), false).is_err());
    }
}
