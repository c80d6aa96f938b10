//! Idle ages as all reports write them: the edges of [`AGE_EDGES_S`] in words, and which of them a recording can tell.

use serde::Serialize;
use thermo_engine::access_tables::{AGE_EDGES_S, NR_AGES};
use thermo_units::Nanos;

/// Bytes of one idle age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AgeBytes {
    /// Least idle age in it.
    pub min_s: u64,
    /// The idle age that is no longer in it; `None` for the last.
    pub max_s: Option<u64>,
    /// Bytes.
    pub bytes: u64,
}

/// An edge for which there is no result, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The edge.
    pub seconds: u64,
    /// Why, as the end of a sentence.
    pub why: String,
}

/// All ages with their `bytes`.
pub(crate) fn rows(bytes: [u64; NR_AGES]) -> Vec<AgeBytes> {
    let row = |(age, bytes)| AgeBytes {
        min_s: AGE_EDGES_S[age],
        max_s: AGE_EDGES_S.get(age + 1).copied(),
        bytes,
    };
    bytes.into_iter().enumerate().map(row).collect()
}

/// The edges that can be windows: all but the first, which is 0.
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

/// `1 s, 2 s, 5 s, …`: the windows there are.
#[must_use]
pub fn windows_text() -> String {
    let texts: Vec<String> = windows().iter().map(|edge| text(*edge)).collect();
    texts.join(", ")
}

/// Whether something that took `seconds` can be told after `watched` with scan passes of up to `pass`; why not.
pub(crate) fn can_tell(seconds: u64, watched: Nanos, pass: Nanos) -> Result<(), String> {
    let edge = Nanos::secs(seconds);
    if edge > watched {
        Err(format!("only {watched} were watched"))
    } else if edge < pass {
        Err(format!("a scan pass took up to {pass}"))
    } else {
        Ok(())
    }
}

/// A sentence about all that is missing, a reason once: `Not known for 1 s and 2 s: a scan pass took up to 3.20 s.`
pub(crate) fn missing_text(missing: &[Missing]) -> String {
    let mut text = String::new();
    for reason in missing.chunk_by(|one, next| one.why == next.why) {
        let [first, .., last] = reason else {
            let only = self::text(reason[0].seconds);
            text.push_str(&format!("Not known for {only}: {}.\n", reason[0].why));
            continue;
        };
        let (first, last) = (self::text(first.seconds), self::text(last.seconds));
        text.push_str(&format!("Not known for {first} to {last}: {}.\n", reason[0].why));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_written_in_their_unit() {
        assert_eq!(
            windows_text(),
            "1 s, 2 s, 5 s, 10 s, 30 s, 1 min, 2 min, 5 min, 10 min, 30 min, 1 h, 2 h, 6 h, 1 d"
        );
        assert_eq!(text(0), "0 s");
    }

    #[test]
    fn edges_are_known_between_pass_and_watched_time() {
        let can = |seconds| can_tell(seconds, Nanos::secs(60), Nanos::secs(3));
        assert_eq!((can(5), can(60)), (Ok(()), Ok(())));
        assert_eq!(can(2), Err("a scan pass took up to 3.00 s".to_owned()));
        assert_eq!(can(120), Err("only 60.0 s were watched".to_owned()));
    }

    #[test]
    fn missing_edges_share_a_sentence() {
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
