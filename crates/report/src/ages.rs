//! Idle ages for all reports: the edges of [`AGE_EDGES_S`] as text, and which edges a recording can resolve.

use serde::Serialize;
use thermo_engine::access_tables::{AGE_EDGES_S, NR_AGES};
use thermo_units::Nanos;

/// Bytes in one range of idle ages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AgeBytes {
    /// Minimum idle age in seconds, inclusive.
    pub min_s: u64,
    /// Maximum idle age in seconds, exclusive; `None` for the last range.
    pub max_s: Option<u64>,
    /// Bytes.
    pub bytes: u64,
}

/// A window or idle age without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The window or idle age, in seconds.
    pub seconds: u64,
    /// The reason, as the end of a sentence.
    pub why: String,
}

/// One row for each idle age, with its `bytes`.
pub(crate) fn rows(bytes: [u64; NR_AGES]) -> Vec<AgeBytes> {
    let row = |(age, bytes)| AgeBytes {
        min_s: AGE_EDGES_S[age],
        max_s: AGE_EDGES_S.get(age + 1).copied(),
        bytes,
    };
    bytes.into_iter().enumerate().map(row).collect()
}

/// Window lengths in seconds: all age edges except 0.
pub(crate) fn windows() -> &'static [u64] {
    &AGE_EDGES_S[1..]
}

/// `1 s`, `5 min`, `2 h`, `1 d`.
#[must_use]
pub fn text(seconds: u64) -> String {
    match seconds {
        s if s > 0 && s % 86_400 == 0 => format!("{} d", s / 86_400),
        s if s > 0 && s % 3600 == 0 => format!("{} h", s / 3600),
        s if s > 0 && s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// All window lengths, as `1 s, 2 s, 5 s` and so on.
#[must_use]
pub fn windows_text() -> String {
    let texts: Vec<String> = windows().iter().map(|edge| text(*edge)).collect();
    texts.join(", ")
}

/// Checks whether an idle age of `seconds` can be resolved after `monitored` with scan passes of up to
/// `pass`.
///
/// # Errors
/// The reason why not, as the end of a sentence.
pub(crate) fn check_resolvable(seconds: u64, monitored: Nanos, pass: Nanos) -> Result<(), String> {
    let edge = Nanos::secs(seconds);
    if edge > monitored {
        Err(format!("only {monitored} were monitored"))
    } else if edge < pass {
        Err(format!("a scan pass took up to {pass}"))
    } else {
        Ok(())
    }
}

/// `1 s to 2 s`, or `1 s` where both are the same.
pub(crate) fn range_text(first: u64, last: u64) -> String {
    if first == last {
        return text(first);
    }
    format!("{} to {}", text(first), text(last))
}

/// One sentence for each reason in `missing`: `Not known for 1 s to 2 s: a scan pass took up to 3.20 s.`
pub(crate) fn missing_text(missing: &[Missing]) -> String {
    let mut text = String::new();
    for same_reason in missing.chunk_by(|one, next| one.why == next.why) {
        let why = &same_reason[0].why;
        let last = same_reason.last().unwrap_or(&same_reason[0]);
        let range = range_text(same_reason[0].seconds, last.seconds);
        text.push_str(&format!("Not known for {range}: {why}.\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_picks_largest_whole_unit() {
        assert_eq!(
            windows_text(),
            "1 s, 2 s, 5 s, 10 s, 30 s, 1 min, 2 min, 5 min, 10 min, 30 min, 1 h, 2 h, 6 h, 1 d"
        );
        assert_eq!(text(0), "0 s");
    }

    #[test]
    fn check_resolvable_needs_pass_and_monitored_time() {
        let check = |seconds| check_resolvable(seconds, Nanos::secs(60), Nanos::secs(3));
        assert_eq!((check(5), check(60)), (Ok(()), Ok(())));
        assert_eq!(check(2), Err("a scan pass took up to 3.00 s".to_owned()));
        assert_eq!(check(120), Err("only 60.0 s were monitored".to_owned()));
    }

    #[test]
    fn missing_text_merges_equal_reasons() {
        let missing = |seconds, why: &str| Missing {
            seconds,
            why: why.to_owned(),
        };
        let all = [missing(1, "a"), missing(60, "b"), missing(120, "b")];
        assert_eq!(
            missing_text(&all),
            "Not known for 1 s: a.\nNot known for 1 min to 2 min: b.\n"
        );
    }
}
