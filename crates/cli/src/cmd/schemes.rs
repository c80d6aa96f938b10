//! `thermo schemes`: explains scheme files, and applies them.

use std::path::PathBuf;

use serde_json::{Value, json};
use thermo_engine::Scheme;
use thermo_engine::scheme::SchemeStats;
use thermo_schemes::{checked_json, describe, normal_form};
use thermo_term::exit::Exit;
use thermo_term::output;

use crate::action_words::verified_effect;
use crate::args::{RunOpts, Targets};
use crate::scheme_file;
use crate::session::{NetSavings, SchemeTotal, Teardown, add_savings_to_json};

/// Explain scheme files, or apply them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo schemes check schemes/everything.toml
  thermo schemes apply schemes/proactive_reclaim.damos --pid 4242 --dry-run")]
pub struct Schemes {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Check(Check),
    Apply(Box<Apply>),
}

impl Schemes {
    /// Runs the verb.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Check(verb) => verb.run(),
            Verb::Apply(verb) => verb.run(),
        }
    }
}

/// Explain each scheme of a file: as a sentence, and in the normal form of scheme files.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo schemes check schemes/proactive_reclaim.damos
  thermo schemes check my.toml --json")]
struct Check {
    /// DAMOS lines, damo's JSON, or TOML
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    fn run(self) -> anyhow::Result<Exit> {
        let schemes = scheme_file::read(&self.file)?;
        if self.json {
            output::json(&checked_json(&schemes))?;
        } else {
            let explained: Vec<String> = schemes.iter().map(explain).collect();
            output::text(&explained.join("\n"))?;
        }
        Ok(Exit::Done)
    }
}

fn explain(scheme: &Scheme) -> String {
    let normal: String = normal_form(scheme)
        .trim_end()
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    format!("{}\n{normal}", describe(scheme))
}

/// Apply the schemes of a file, and print the totals of the run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo schemes apply schemes/proactive_reclaim.damos --pid 4242 --dry-run
  thermo schemes apply schemes/stat.damos --duration 10s --json -- ./server")]
struct Apply {
    /// DAMOS lines, damo's JSON, or TOML
    file: PathBuf,

    #[command(flatten)]
    targets: Targets,

    #[command(flatten)]
    run: RunOpts,
}

impl Apply {
    fn run(self) -> anyhow::Result<Exit> {
        let schemes = scheme_file::read(&self.file)?;
        let (changes_memory, as_json) = (!self.run.limits.dry_run, self.run.json);
        let attrs = self.run.monitoring.attrs()?;
        let plan = self.run.plan(self.targets, attrs, schemes.clone());
        let done = plan.run()?;
        let sink = &done.outcome.sink;
        let totals = with_index(&schemes, &sink.schemes);
        let savings = sink.savings.filter(|_| changes_memory);
        if as_json {
            output::json(&totals_json(&totals, savings))?;
        } else {
            output::text(&(done.outcome.heading() + &totals_text(&totals, savings)))?;
        }
        let mut teardown = Teardown::new(done);
        teardown.report();
        teardown.wait()
    }
}

/// The totals, each with the index of its scheme in the file. `--best-effort` skips all schemes of an action
/// that this machine does not support, so an index may be missing.
fn with_index<'a>(file: &[Scheme], totals: &'a [SchemeTotal]) -> Vec<(usize, &'a SchemeTotal)> {
    let was_applied = |scheme: &Scheme| totals.iter().any(|total| total.action == scheme.action);
    let applied = (0..).zip(file).filter(|(_, scheme)| was_applied(scheme));
    applied.map(|(index, _)| index).zip(totals).collect()
}

fn totals_json(totals: &[(usize, &SchemeTotal)], savings: Option<NetSavings>) -> Value {
    let schemes = totals.iter().map(|(index, total)| {
        let stats = &total.stats;
        json!({
            "index": index,
            "action": total.action.name(),
            "nr_tried": stats.nr_tried,
            "sz_tried": stats.sz_tried.0,
            "sz_distinct": total.distinct.as_ref().map(|distinct| distinct.bytes().0),
            "nr_applied": stats.nr_applied,
            "sz_applied": stats.sz_applied.0,
            "qt_exceeds": stats.qt_exceeds,
            "sz_changed": stats.sz_changed.0,
            "skipped": total.skipped_json(),
        })
    });
    let mut object = json!({ "schema": 1, "schemes": schemes.collect::<Vec<_>>() });
    add_savings_to_json(&mut object, savings);
    object
}

fn totals_text(totals: &[(usize, &SchemeTotal)], savings: Option<NetSavings>) -> String {
    let text = |(index, total): &(usize, &SchemeTotal)| {
        let action = total.action;
        let SchemeStats {
            nr_tried,
            sz_tried,
            nr_applied,
            sz_applied,
            sz_changed,
            qt_exceeds,
            ..
        } = &total.stats;
        let distinct = total.distinct.as_ref();
        let distinct = distinct.map_or_else(String::new, |distinct| {
            format!(" ({} of them distinct)", distinct.bytes())
        });
        let verified = verified_effect(action).map_or_else(String::new, |effect| {
            format!(", {sz_changed} verified as {effect}")
        });
        format!(
            "scheme {index} ({action}): tried {sz_tried}{distinct} in {nr_tried} regions, applied to {sz_applied} in \
             {nr_applied} regions{verified}; quota used up in {qt_exceeds} windows\n{}",
            total.skipped_text("  skipped ")
        )
    };
    let text: String = totals.iter().map(text).collect();
    text + &savings.map(|savings| savings.text()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use thermo_engine::Action;
    use thermo_engine::ops::{Skip, TargetId};
    use thermo_units::{AddrRange, Bytes};

    fn total(action: Action) -> SchemeTotal {
        let mut total = SchemeTotal::new(&Scheme::new(action));
        total.skipped = BTreeMap::from([(Skip::Young, Bytes::mib(2))]);
        total
    }

    #[test]
    fn skipped_schemes_do_not_shift_the_index() {
        let actions = [
            Action::Stat,
            Action::Collapse,
            Action::Pageout,
            Action::Collapse,
            Action::Stat,
        ];
        let file = actions.map(Scheme::new);
        let done = [Action::Stat, Action::Pageout, Action::Stat].map(total);
        let json = totals_json(&with_index(&file, &done), None);
        let index = |nth: usize| json["schemes"][nth]["index"].clone();
        assert_eq!([index(0), index(1), index(2)], [0, 2, 4]);
        assert_eq!(json["schemes"][1]["action"], "pageout");
        assert_eq!(json["net_saved_bytes"], Value::Null);
    }

    #[test]
    fn repeated_matches_have_distinct_bytes_too() {
        let mut total = total(Action::Stat);
        total.stats.sz_tried = Bytes::mib(9);
        let distinct = total.distinct.as_mut().expect("stat only counts");
        distinct.insert(TargetId(0), AddrRange::new(0, 3 << 20));
        distinct.insert(TargetId(0), AddrRange::new(1 << 20, 3 << 20));
        let done = [total];
        let totals = with_index(&[Scheme::new(Action::Stat)], &done);
        assert_eq!(totals_json(&totals, None)["schemes"][0]["sz_distinct"], 3 << 20);
        let text = totals_text(&totals, None);
        assert!(
            text.contains("tried 9.00 MiB (3.00 MiB of them distinct) in"),
            "{text}"
        );
        assert!(!text.contains("verified"), "stat changes nothing: {text}");
    }

    #[test]
    fn skip_reasons_and_savings_are_printed() {
        let done = [total(Action::Pageout)];
        let savings = NetSavings {
            rss_before: Bytes::mib(9),
            rss_after: Bytes::mib(4),
            zram_before: Bytes::ZERO,
            zram_after: Bytes::mib(1),
            swap_cache_before: Bytes::ZERO,
            swap_cache_after: Bytes::ZERO,
        };
        let totals = with_index(&[Scheme::new(Action::Pageout)], &done);
        let json = totals_json(&totals, Some(savings));
        assert_eq!(json["net_saved_bytes"], 4 << 20);
        let reasons = json!([{ "reason": "young", "bytes": 2 << 20 }]);
        assert_eq!(json["schemes"][0]["skipped"], reasons);
        let text = totals_text(&totals, Some(savings));
        assert!(
            text.contains("skipped 2.00 MiB: young\nnet saving 4.00 MiB"),
            "{text}"
        );
        assert!(text.contains("verified as paged out"), "{text}");
    }
}
