//! The scheme that the advice amounts to, and the commands to try it and to undo it.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use thermo_actions::preset;
use thermo_engine::Scheme;
use thermo_engine::scheme::Watermarks;
use thermo_report::advice::Advice;
use thermo_units::{Nanos, printable};

use crate::output_file;

/// Writes the scheme of `advice` to `path`. Returns false if it advises none.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(path: &Path, advice: &Advice, targets: &str) -> anyhow::Result<bool> {
    let Some(min_age_s) = advice.advice.min_age_s else {
        return Ok(false);
    };
    let text = text(min_age_s, &advice.advice.why, targets);
    output_file::write(path, |file| {
        file.write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    })?;
    Ok(true)
}

fn text(min_age_s: u64, why: &str, targets: &str) -> String {
    let reclaim = preset::Reclaim {
        min_age: Nanos::secs(min_age_s),
        ..preset::Reclaim::default()
    };
    // The advice is for these programs, whatever is free on the machine.
    let scheme = Scheme {
        watermarks: Watermarks::default(),
        ..reclaim.scheme()
    };
    // The comment is one line: names in it may hold anything.
    let comment = printable(why).replace('\n', " ");
    let normal = thermo_schemes::normal_form(&scheme);
    let targets = printable(targets).replace('\n', " ");
    format!("# Advised for {targets}:\n# {comment}\n{normal}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_engine::Action;
    use thermo_engine::scheme::{Age, WatermarkMetric};

    #[test]
    fn scheme_file_reads_back() {
        let text = text(120, "Page out\nwhat is idle.", "pid 7\nx");
        assert!(
            text.starts_with("# Advised for pid 7 x:\n# Page out what"),
            "{text}"
        );
        let schemes = thermo_schemes::parse("advised.toml", &text).unwrap();
        let [scheme] = &schemes[..] else { panic!("{text}") };
        assert_eq!(scheme.action, Action::Pageout);
        assert_eq!(scheme.pattern.age.min, Age::Time(Nanos::secs(120)));
        assert_eq!(scheme.watermarks.metric, WatermarkMetric::None);
        assert_eq!(scheme.quota.time, Nanos::millis(10));
    }
}
