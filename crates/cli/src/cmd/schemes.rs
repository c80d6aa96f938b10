//! `thermo schemes`: scheme files, explained and carried out.

use std::path::PathBuf;

use serde_json::{Value, json};
use thermo_core::scheme::SchemeStats;
use thermo_core::{Action, Nanos, Scheme};
use thermo_scheme::{checked_json, normal_form, sentence};

use crate::args::{Limits, Monitoring, Targets};
use crate::exit::Exit;
use crate::session::{Ending, Plan};
use crate::{output, scheme_file};

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
    monitoring: Monitoring,

    #[command(flatten)]
    limits: Limits,

    /// Stop after this time; a command that was started goes on
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Apply {
    fn run(self) -> anyhow::Result<Exit> {
        let plan = Plan {
            attrs: self.monitoring.attrs()?,
            schemes: scheme_file::read(&self.file)?,
            limits: self.limits,
            targets: self.targets,
            monitoring: self.monitoring,
            duration: self.duration,
            output: None,
        };
        let done = plan.carry_out()?;
        let totals = &done.outcome.sink.schemes;
        if self.json {
            output::json(&totals_json(totals))?;
        } else {
            output::text(&totals_text(totals))?;
        }
        let mut ending = Ending::of(done);
        ending.tell();
        ending.wait()
    }
}

fn totals_json(totals: &[(Action, SchemeStats)]) -> Value {
    let schemes = totals.iter().enumerate().map(|(index, (action, stats))| {
        json!({
            "index": index,
            "action": action.name(),
            "nr_tried": stats.nr_tried,
            "sz_tried": stats.sz_tried.0,
            "nr_applied": stats.nr_applied,
            "sz_applied": stats.sz_applied.0,
            "qt_exceeds": stats.qt_exceeds,
            "sz_changed": stats.sz_changed.0,
        })
    });
    json!({ "schema": 1, "schemes": schemes.collect::<Vec<_>>() })
}

fn totals_text(totals: &[(Action, SchemeStats)]) -> String {
    let one = |(action, stats): &(Action, SchemeStats)| {
        let SchemeStats {
            nr_tried,
            sz_tried,
            nr_applied,
            sz_applied,
            sz_changed,
            qt_exceeds,
            ..
        } = stats;
        format!(
            "{action}: tried {sz_tried} in {nr_tried} regions, applied to {sz_applied} in {nr_applied}, \
             {sz_changed} seen to have changed; the quota was used up {qt_exceeds} times\n"
        )
    };
    totals.iter().map(one).collect()
}
