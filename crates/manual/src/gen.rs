//! The verb `gen`: writes the files that packages install. Each command has it, and its help does not list
//! it.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use thermo_term::exit::Exit;
use thermo_term::output;

use crate::completions::{self, Shell};
use crate::{Program, page};

/// Write man pages or shell completions of this command.
#[derive(Debug, clap::Args)]
pub struct Gen {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// Write the man page of each verb.
    Man {
        /// Directory for the pages; it is created
        dir: PathBuf,
        /// Date in the pages: YYYY-MM-DD, like the output of `date +%F`
        #[arg(long, value_name = "DATE", value_parser = date)]
        date: String,
    },
    /// Print the completions for a shell.
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Gen {
    /// Writes the files of `program`.
    ///
    /// # Errors
    /// A page could not be written.
    pub fn run(&self, program: &Program) -> anyhow::Result<Exit> {
        match &self.kind {
            Kind::Man { dir, date } => {
                fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
                for page in page::pages(program, date)? {
                    let path = dir.join(&page.file_name);
                    fs::write(&path, page.text)
                        .with_context(|| format!("cannot write {}", path.display()))?;
                }
            }
            Kind::Completions { shell } => {
                output::text(&completions::script(*shell, (program.command)().get_name())?)?;
            }
        }
        Ok(Exit::Done)
    }
}

fn date(text: &str) -> Result<String, String> {
    let fits = |(letter, pattern): (u8, u8)| {
        if pattern == b'-' {
            letter == b'-'
        } else {
            letter.is_ascii_digit()
        }
    };
    let is_date = text.len() == 10 && text.bytes().zip(*b"YYYY-MM-DD").all(fits);
    if is_date {
        Ok(text.to_owned())
    } else {
        Err("give a date like 2026-11-26".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dates_are_dates() {
        assert_eq!(date("2026-11-26"), Ok("2026-11-26".to_owned()));
        for text in ["", "2026-11-2", "26-11-2026", "2026/11/26", "2026-11-26 "] {
            assert!(date(text).is_err(), "{text}");
        }
    }
}
