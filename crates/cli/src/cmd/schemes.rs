//! `thermo schemes`: scheme files, explained and carried out.

use std::path::PathBuf;

use thermo_core::Scheme;
use thermo_scheme::{checked_json, normal_form, sentence};

use crate::exit::Exit;
use crate::{output, scheme_file};

/// Explain scheme files, or carry them out.
#[derive(Debug, clap::Args)]
pub struct Schemes {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Check(Check),
}

impl Schemes {
    /// Does what was asked.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Verb::Check(verb) => verb.run(),
        }
    }
}

/// Say each scheme of a file as a sentence, and as it would be written here.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo schemes check schemes/proactive-reclaim.damos
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
    let written: String =
        normal_form(scheme).trim_end().lines().map(|line| format!("    {line}\n")).collect();
    format!("{}\n{written}", sentence(scheme))
}
