//! Decisions of the automatic age, with their reasons.

use std::fmt;

use thermo_units::{Bytes, Nanos, SharePerMinute};

/// A change of the automatic age of a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeDecision {
    /// The minimum age from now on; `None`: no memory is acted on.
    pub age: Option<Nanos>,
    /// The minimum age before; `None`: no memory was acted on.
    pub previous: Option<Nanos>,
    /// The reason of the change.
    pub reason: AgeReason,
}

/// The reason of an [`AgeDecision`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgeReason {
    /// All targets are too new: nothing is done for this long.
    WarmUp(Nanos),
    /// Re-accesses of the last minute: beyond the bound below the new age, or within the bound at the
    /// smallest age.
    Reaccessed {
        /// Bytes accessed again in the minute.
        bytes: Bytes,
        /// Mean working set.
        working_set: Bytes,
        /// The age after which `bytes` were accessed again.
        after: Nanos,
        /// The bound.
        bound: SharePerMinute,
    },
    /// Smaller ages are not exact, because a scan pass takes this long.
    LongPasses(Nanos),
    /// The bound held at the new age in nearly all past minutes.
    PastChoices {
        /// Percentage of the minutes.
        percentile: usize,
        /// Number of past minutes that count.
        nr_minutes: usize,
        /// The bound.
        bound: SharePerMinute,
    },
}

impl fmt::Display for AgeDecision {
    /// `60.0 s (was 30.0 s): 0.41%/min of 512 MiB were accessed again after 30.0 s, the bound is 0.2%/min`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |age: Option<Nanos>| age.map_or_else(|| "none".to_owned(), age_text);
        write!(f, "{}", text(self.age))?;
        if self.previous.is_some() {
            write!(f, " (was {})", text(self.previous))?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl fmt::Display for AgeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WarmUp(span) => {
                let span = age_text(*span);
                write!(
                    f,
                    "nothing is done in the first {span} of a target, until its accesses are known"
                )
            }
            Self::Reaccessed {
                bytes,
                working_set,
                after,
                bound,
            } => {
                let after = age_text(*after);
                match rate(*bytes, *working_set) {
                    Some(rate) => write!(f, "{rate} of {working_set} were")?,
                    None => write!(f, "{bytes} were")?,
                }
                write!(f, " accessed again after {after}, the bound is {bound}")?;
                match working_set {
                    &Bytes::ZERO => write!(f, " of the working set, which was empty"),
                    _ => Ok(()),
                }
            }
            Self::LongPasses(pass) => {
                write!(f, "a scan pass takes {pass}, so smaller ages are not exact")
            }
            Self::PastChoices {
                percentile,
                nr_minutes,
                bound,
            } => {
                write!(
                    f,
                    "the bound of {bound} held at this age in {percentile} % of the last {nr_minutes} minutes"
                )
            }
        }
    }
}

/// `bytes` a minute as a share of `working_set`, rounded for printing; `None` if the working set is empty.
fn rate(bytes: Bytes, working_set: Bytes) -> Option<SharePerMinute> {
    let millionths = (u128::from(bytes.0) * 1_000_000).checked_div(u128::from(working_set.0))?;
    let step = if millionths >= 1000 { 100 } else { 1 };
    let rounded = (millionths + step / 2) / step * step;
    Some(SharePerMinute(u32::try_from(rounded).unwrap_or(u32::MAX)))
}

/// An age in the largest unit that is exact: `30 s`, `2 min`, `6 h`.
fn age_text(age: Nanos) -> String {
    let seconds = age.0 / Nanos::secs(1).0;
    match seconds {
        _ if seconds < 60 || !seconds.is_multiple_of(60) => format!("{seconds} s"),
        _ if seconds < 3600 || !seconds.is_multiple_of(3600) => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_state_age_and_reason() {
        let bound = SharePerMinute(2000);
        let reaccessed = |bytes: Bytes, working_set| AgeReason::Reaccessed {
            bytes,
            working_set,
            after: Nanos::secs(60),
            bound,
        };
        let past = AgeReason::PastChoices {
            percentile: 98,
            nr_minutes: 100,
            bound,
        };
        let some = |seconds| Some(Nanos::secs(seconds));
        for (age, previous, reason, expected) in [
            (
                some(120),
                some(60),
                reaccessed(Bytes(2_201_171), Bytes::mib(512)),
                "2 min (was 1 min): 0.41%/min of 512 MiB were accessed again after 1 min, the bound is 0.2%/min",
            ),
            (
                some(120),
                None,
                reaccessed(Bytes::mib(3), Bytes::ZERO),
                "2 min: 3.00 MiB were accessed again after 1 min, the bound is 0.2%/min of the working set, which \
                 was empty",
            ),
            (
                some(10),
                some(3600),
                past,
                "10 s (was 1 h): the bound of 0.2%/min held at this age in 98 % of the last 100 minutes",
            ),
            (
                None,
                None,
                AgeReason::WarmUp(Nanos::secs(180)),
                "none: nothing is done in the first 3 min of a target, until its accesses are known",
            ),
            (
                some(60),
                some(10),
                AgeReason::LongPasses(Nanos::secs(21)),
                "1 min (was 10 s): a scan pass takes 21.0 s, so smaller ages are not exact",
            ),
        ] {
            let decision = AgeDecision {
                age,
                previous,
                reason,
            };
            assert_eq!(decision.to_string(), expected);
        }
    }

    #[test]
    fn rates_are_rounded_to_hundredths_of_a_percent() {
        let rates = [
            (41_236, 1_000_000),
            (123, 1_000_000),
            (5_000_000, 1_000_000),
            (1, 0),
        ];
        let texts = rates.map(|(bytes, whole)| rate(Bytes(bytes), Bytes(whole)).map(|rate| rate.to_string()));
        let expected = ["4.12%/min", "0.0123%/min", "500%/min"].map(|text| Some(text.to_owned()));
        assert_eq!((&texts[..3], &texts[3]), (&expected[..], &None));
    }
}
