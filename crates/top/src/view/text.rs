//! Texts that fit: sizes, ages, words.

use thermo_agent::api::{AgeBytes, Policy, Target};
use thermo_report::ages;
use thermo_units::{Bytes, printable};
use unicode_width::UnicodeWidthStr;

/// `412 MiB`.
pub(super) fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// `-412 MiB`.
pub(super) fn signed_size(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
}

/// `1 to 2 s`, `30 s to 1 min`, `≥ 1 d`.
pub(super) fn age_range(age: &AgeBytes) -> String {
    let from = ages::text(age.min_s);
    let Some(to) = age.max_s.map(ages::text) else {
        return format!("≥ {from}");
    };
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} to {to}"),
        _ => format!("{from} to {to}"),
    }
}

/// `text` without what could change the terminal, in one line.
pub(super) fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    printable(&words.join(" ")).into_owned()
}

/// Columns that `text` takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// `text` in at most `max` columns. It is cut behind a word, or within the first word if there is no room.
pub(super) fn fit(text: &str, max: usize) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    let mut cut = String::new();
    for c in text.chars() {
        if width(&cut) + width(c.encode_utf8(&mut [0; 4])) + 1 > max {
            break;
        }
        cut.push(c);
    }
    if let Some((words, _)) = cut.rsplit_once(' ').filter(|(words, _)| width(words) * 2 >= max) {
        cut = words.trim_end_matches([',', ':', ' ']).to_owned();
    }
    if max == 0 { cut } else { cut + "…" }
}

/// `text` in lines of at most `max` columns, broken between words.
pub(super) fn wrap(text: &str, max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = fit(word, max);
        match lines.last_mut() {
            Some(last) if width(last) + 1 + width(&word) <= max => {
                last.push(' ');
                last.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// The first of `parts` that fit in `max` columns together, and the number of them.
pub(super) fn join(parts: &[String], separator: &str, max: usize) -> (String, usize) {
    let mut joined = String::new();
    for (nth, part) in parts.iter().enumerate() {
        let more = if nth == 0 {
            part.clone()
        } else {
            format!("{separator}{part}")
        };
        if nth > 0 && width(&joined) + width(&more) > max {
            return (joined, nth);
        }
        joined.push_str(&more);
    }
    (joined, parts.len())
}

/// What a policy does now, as a word, and the reason if it is not `running`.
pub(super) fn policy_state(policy: &Policy) -> (&'static str, Option<&str>) {
    match (&policy.error, &policy.suspended) {
        (Some(why), _) => ("error", Some(why)),
        (None, why) if policy.paused => ("paused", why.as_deref()),
        (None, Some(why)) => ("suspended", Some(why)),
        (None, None) => ("running", None),
    }
}

/// What happens to a target now, as for [`policy_state`].
pub(super) fn target_state<'a>(
    target: &'a Target,
    policy: Option<&'a Policy>,
) -> (&'static str, Option<&'a str>) {
    let of_policy = policy.map_or(("running", None), policy_state);
    match &target.suspended {
        Some(why) if of_policy.0 == "running" => ("suspended", Some(why)),
        Some(why) => (of_policy.0, of_policy.1.or(Some(why))),
        None => of_policy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_ranges_name_a_unit_once() {
        let text = |min_s, max_s| {
            age_range(&AgeBytes {
                min_s,
                max_s,
                bytes: 0,
            })
        };
        assert_eq!(text(0, Some(1)), "0 to 1 s");
        assert_eq!(text(30, Some(60)), "30 s to 1 min");
        assert_eq!(text(120, Some(300)), "2 to 5 min");
        assert_eq!(text(86_400, None), "≥ 1 d");
    }

    #[test]
    fn fit_cuts_behind_words() {
        assert_eq!(fit("mariadb.service", 10), "mariadb.s…");
        assert_eq!(fit("refaults exceed the bound", 18), "refaults exceed…");
        assert_eq!(fit("short", 5), "short");
        assert_eq!(
            (fit("日本語", 4), fit("abc", 0)),
            ("日…".to_owned(), String::new())
        );
    }

    #[test]
    fn wrap_breaks_between_words() {
        assert_eq!(wrap("one two  three", 8), ["one two", "three"]);
        assert_eq!(wrap("", 8), [""; 0]);
        assert_eq!(wrap("a-very-long-word b", 6), ["a-ver…", "b"]);
    }

    #[test]
    fn join_stops_where_there_is_no_room() {
        let parts = ["abc", "de", "f"].map(str::to_owned);
        assert_eq!(join(&parts, ", ", 8), ("abc, de".to_owned(), 2));
        assert_eq!(join(&parts, ", ", 1), ("abc".to_owned(), 1));
    }

    #[test]
    fn paused_policy_is_not_suspended() {
        let mut policy = Policy {
            suspended: Some("refaults".to_owned()),
            ..Policy::default()
        };
        let mut target = Target::default();
        assert_eq!(
            target_state(&target, Some(&policy)),
            ("suspended", Some("refaults"))
        );
        policy.paused = true;
        target.suspended = Some("paused by a user".to_owned());
        assert_eq!(target_state(&target, Some(&policy)), ("paused", Some("refaults")));
        policy.suspended = None;
        assert_eq!(
            target_state(&target, Some(&policy)),
            ("paused", Some("paused by a user"))
        );
        assert_eq!(
            target_state(&target, None),
            ("suspended", Some("paused by a user"))
        );
        policy.error = Some("no swap".to_owned());
        assert_eq!(policy_state(&policy), ("error", Some("no swap")));
    }

    #[test]
    fn line_escapes_control_characters() {
        assert_eq!(line("a\nb\t\x1b[31m"), "a b \\x1b[31m");
    }
}
