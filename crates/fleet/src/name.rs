//! Where a file lies below the root of the store.

use crate::{FileFacts, FleetError};

/// Maximum length of a cleaned name. A file name may have 255 bytes on Linux; the rest of it takes 35.
const MAX_NAME: usize = 200;

/// The path of the file below the root: `date=YYYY-MM-DD/cluster=CLUSTER/NODE.SECONDS.v1.parquet`. The date
/// is the UTC day of the window's start, and SECONDS its Unix time. The path depends only on cluster, node
/// and window.
///
/// # Errors
/// The window is impossible ([`FileFacts::check`]), or lies beyond the calendar.
pub fn file_name(facts: &FileFacts) -> Result<String, FleetError> {
    facts.check()?;
    let beyond = || FleetError::Window {
        window_start_ms: facts.window_start_ms,
        window_ms: facts.window_ms,
        why: "the start lies beyond the year 9999",
    };
    let start = i64::try_from(facts.window_start_ms).map_err(|_| beyond())?;
    let start = jiff::Timestamp::from_millisecond(start).map_err(|_| beyond())?;
    Ok(format!(
        "date={}/cluster={}/{}.{}.v1.parquet",
        start.strftime("%Y-%m-%d"),
        clean_name(&facts.cluster),
        clean_name(&facts.node),
        start.as_second(),
    ))
}

/// `name` with each character outside `[A-Za-z0-9._-]` replaced by `_`, cut after 200 characters.
///
/// Spark ignores files whose names begin with `.` or `_`, so `n` is put before such a name, and stands for an
/// empty one.
#[must_use]
pub fn clean_name(name: &str) -> String {
    let is_kept = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let letters = name
        .chars()
        .map(|letter| if is_kept(letter) { letter } else { '_' });
    let cleaned: String = letters.take(MAX_NAME).collect();
    match cleaned.chars().next() {
        None | Some('.' | '_') => format!("n{cleaned}"),
        Some(_) => cleaned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(node: &str, window_start_ms: u64) -> FileFacts {
        FileFacts {
            cluster: "eu west/1".into(),
            node: node.into(),
            window_start_ms,
            window_ms: 3_600_000,
            ..FileFacts::default()
        }
    }

    #[test]
    fn name_is_a_function_of_cluster_node_and_window() {
        // 2026-11-02 23:00:00 UTC.
        let facts = facts("node-7.example", 1_793_660_400_000);
        let name = "date=2026-11-02/cluster=eu_west_1/node-7.example.1793660400.v1.parquet";
        assert_eq!(file_name(&facts).expect("a name"), name);
        let later = FileFacts {
            written_ms: 5,
            interval_ms: 7,
            link: "https://node-7".into(),
            ..facts
        };
        assert_eq!(file_name(&later).expect("a name"), name);
    }

    #[test]
    fn names_are_cleaned() {
        for (name, cleaned) in [
            ("db-1.example.com", "db-1.example.com"),
            ("../../etc", "n.._.._etc"),
            ("größe", "gr__e"),
            ("über", "n_ber"),
            ("_", "n_"),
            ("", "n"),
            ("a b\n=c", "a_b__c"),
        ] {
            assert_eq!(clean_name(name), cleaned, "{name}");
        }
        assert_eq!(clean_name(&"x".repeat(300)).len(), 200);
    }

    #[test]
    fn impossible_windows_are_refused() {
        let error = |facts: &FileFacts| file_name(facts).expect_err("refused").to_string();
        assert_eq!(
            error(&facts("a", 3_600_001)),
            "a window of 3600000 ms from 3600001 ms on is impossible: a window starts at a multiple of its \
             length"
        );
        let odd = FileFacts {
            window_ms: 1500,
            ..facts("a", 0)
        };
        assert!(error(&odd).ends_with("a window lasts whole seconds, at least one"));
        let far = u64::MAX / 3_600_000 * 3_600_000;
        assert!(error(&facts("a", far)).ends_with("the start lies beyond the year 9999"));
    }
}
