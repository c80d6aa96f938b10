//! `thermo schemes`: scheme files, explained and carried out.

use std::path::PathBuf;

use serde_json::{Value, json};
use thermo_engine::Scheme;
use thermo_engine::scheme::SchemeStats;
use thermo_schemes::{checked_json, normal_form, sentence};
use thermo_term::exit::Exit;
use thermo_term::output;

use crate::args::{Course, Targets};
use crate::scheme_file;
use crate::session::{Ending, Saving, Total, add_to_json};

/// Explain scheme files, or carry them out.
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
    /// Does what was asked.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Check(verb) => verb.run(),
            Verb::Apply(verb) => verb.run(),
        }
    }
}

/// Say each scheme of a file as a sentence, and as it would be written here.
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
    let written: String = normal_form(scheme)
        .trim_end()
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    format!("{}\n{written}", sentence(scheme))
}

/// Carry out the schemes of a file, and tell what they did.
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
    course: Course,
}

impl Apply {
    fn run(self) -> anyhow::Result<Exit> {
        let schemes = scheme_file::read(&self.file)?;
        let (is_done, as_json) = (!self.course.limits.dry_run, self.course.json);
        let attrs = self.course.monitoring.attrs()?;
        let plan = self.course.plan(self.targets, attrs, schemes.clone());
        let done = plan.carry_out()?;
        let sink = &done.outcome.sink;
        let totals = numbered(&schemes, &sink.schemes);
        let saving = sink.saving.filter(|_| is_done);
        if as_json {
            output::json(&totals_json(&totals, saving))?;
        } else {
            output::text(&totals_text(&totals, saving))?;
        }
        let mut ending = Ending::of(done);
        ending.tell();
        ending.wait()
    }
}

/// What the schemes did, each with its place in the file: those of an action that this machine cannot do may have been
/// left out, all of them.
fn numbered<'a>(file: &[Scheme], totals: &'a [Total]) -> Vec<(usize, &'a Total)> {
    let was_done = |scheme: &Scheme| totals.iter().any(|total| total.action == scheme.action);
    let places = (0..).zip(file).filter(|(_, scheme)| was_done(scheme));
    places.map(|(index, _)| index).zip(totals).collect()
}

fn totals_json(totals: &[(usize, &Total)], saving: Option<Saving>) -> Value {
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
    let mut told = json!({ "schema": 1, "schemes": schemes.collect::<Vec<_>>() });
    add_to_json(&mut told, saving);
    told
}

fn totals_text(totals: &[(usize, &Total)], saving: Option<Saving>) -> String {
    let one = |(_, total): &(usize, &Total)| {
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
        format!(
            "{action}: tried {sz_tried}{distinct} in {nr_tried} regions, applied to {sz_applied} in {nr_applied}, \
             {sz_changed} seen to have changed; the quota was used up {qt_exceeds} times\n{}",
            total.skipped_text("  left alone ")
        )
    };
    let told: String = totals.iter().map(one).collect();
    told + &saving.map(|saving| saving.text()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use thermo_engine::Action;
    use thermo_engine::ops::{Skip, TargetId};
    use thermo_units::{AddrRange, Bytes};

    fn total(action: Action) -> Total {
        let mut total = Total::of(&Scheme::new(action));
        total.skipped = BTreeMap::from([(Skip::Young, Bytes::mib(2))]);
        total
    }

    #[test]
    fn a_scheme_keeps_its_place_in_the_file_when_others_are_left_out() {
        let actions = [
            Action::Stat,
            Action::Collapse,
            Action::Pageout,
            Action::Collapse,
            Action::Stat,
        ];
        let file = actions.map(Scheme::new);
        let done = [Action::Stat, Action::Pageout, Action::Stat].map(total);
        let told = totals_json(&numbered(&file, &done), None);
        let index = |nth: usize| told["schemes"][nth]["index"].clone();
        assert_eq!([index(0), index(1), index(2)], [0, 2, 4]);
        assert_eq!(told["schemes"][1]["action"], "pageout");
        assert_eq!(told["net_saved_bytes"], Value::Null);
    }

    #[test]
    fn what_is_matched_again_and_again_is_told_once_as_well() {
        let mut total = total(Action::Stat);
        total.stats.sz_tried = Bytes::mib(9);
        let distinct = total.distinct.as_mut().expect("stat only counts");
        distinct.insert(TargetId(0), AddrRange::new(0, 3 << 20));
        distinct.insert(TargetId(0), AddrRange::new(1 << 20, 3 << 20));
        let done = [total];
        let totals = numbered(&[Scheme::new(Action::Stat)], &done);
        assert_eq!(totals_json(&totals, None)["schemes"][0]["sz_distinct"], 3 << 20);
        let told = totals_text(&totals, None);
        assert!(
            told.contains("tried 9.00 MiB (3.00 MiB of them distinct) in"),
            "{told}"
        );
    }

    #[test]
    fn why_not_for_the_rest_and_what_was_saved_are_told() {
        let done = [total(Action::Pageout)];
        let saving = Saving {
            rss_before: Bytes::mib(9),
            rss_after: Bytes::mib(4),
            zram_before: Bytes::ZERO,
            zram_after: Bytes::mib(1),
        };
        let totals = numbered(&[Scheme::new(Action::Pageout)], &done);
        let told = totals_json(&totals, Some(saving));
        assert_eq!(told["net_saved_bytes"], 4 << 20);
        let reasons = json!([{ "reason": "young", "bytes": 2 << 20 }]);
        assert_eq!(told["schemes"][0]["skipped"], reasons);
        let told = totals_text(&totals, Some(saving));
        assert!(
            told.contains("left alone 2.00 MiB young\nnet saving 4.00 MiB"),
            "{told}"
        );
    }
}
