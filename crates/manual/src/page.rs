//! Man pages. clap_mangen writes the sections that follow from the declaration: NAME, SYNOPSIS, DESCRIPTION
//! and the options. This file adds EXAMPLES, from the help's examples, EXIT STATUS, FILES and SEE ALSO.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::Program;

/// The section of all pages of commands.
const SECTION: &str = "1";

/// A man page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its file name, like `thermo-report-heatmap.1`.
    pub file_name: String,
    /// Its text, in roff.
    pub text: String,
}

/// The pages of the program and of all its verbs that `--help` lists. `date` is the date in their footer,
/// `YYYY-MM-DD`.
///
/// # Errors
/// clap_mangen could not write a section.
pub fn pages(program: &Program, date: &str) -> io::Result<Vec<Page>> {
    let mut command = (program.command)().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(program, &command, &[], date, &mut pages)?;
    Ok(pages)
}

fn add_pages(
    program: &Program,
    command: &Command,
    parents: &[&Command],
    date: &str,
    pages: &mut Vec<Page>,
) -> io::Result<()> {
    pages.push(page(program, command, parents, date)?);
    let parents: Vec<&Command> = parents.iter().copied().chain([command]).collect();
    for verb in visible_verbs(command) {
        add_pages(program, verb, &parents, date, pages)?;
    }
    Ok(())
}

fn visible_verbs(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set())
}

fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(program: &Program, command: &Command, parents: &[&Command], date: &str) -> io::Result<Page> {
    let name = name_of(command);
    let version = command.get_version().or_else(|| parents.first()?.get_version());
    // clap's one-line usage. clap_mangen's own synopsis lists all options, in some verbs fifty.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let man = Man::new(command.clone().override_usage(usage))
        .title(name.to_uppercase())
        .section(SECTION)
        .date(date)
        .source(format!("thermocline {}", version.unwrap_or_default()))
        .manual("Thermocline");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if visible_verbs(command).next().is_some() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    add_examples(&mut roff, command);
    add_statuses(&mut roff, program, command, parents);
    add_files(&mut roff, program, name);
    add_related(&mut roff, program, command, parents);
    roff.to_writer(&mut text)?;
    Ok(Page {
        file_name: format!("{name}.{SECTION}"),
        text: with_one_break(&without_repeated_preamble(&String::from_utf8_lossy(&text))),
    })
}

/// clap_mangen leaves an empty line before "Possible values:" with two breaks, which mandoc rejects.
fn with_one_break(text: &str) -> String {
    text.replace("\n.br\n\n.br\n", "\n.sp\n")
}

/// roff writes the definition of the apostrophe before each section; the first is enough.
fn without_repeated_preamble(text: &str) -> String {
    let is_preamble = |line: &str| line.starts_with(".ie ") || line.starts_with(".el ");
    let title = text
        .lines()
        .position(|line| line.starts_with(".TH "))
        .unwrap_or(0);
    let lines = text.lines().enumerate();
    lines
        .filter(|(at, line)| *at < title || !is_preamble(line))
        .map(|(_, line)| line.to_owned() + "\n")
        .collect()
}

/// The commands below "Examples:" in the help.
fn add_examples(roff: &mut Roff, command: &Command) {
    let after = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let Some((_, examples)) = after.split_once("Examples:\n") else {
        return;
    };
    roff.control("SH", ["EXAMPLES"]);
    roff.control("EX", []);
    for example in examples.lines() {
        roff.text([roman(example.trim())]);
    }
    roff.control("EE", []);
}

fn add_statuses(roff: &mut Roff, program: &Program, command: &Command, parents: &[&Command]) {
    roff.control("SH", ["EXIT STATUS"]);
    // The help of `report` speaks for its verbs.
    let negative = std::iter::once(&command)
        .chain(parents.iter().rev())
        .find_map(|command| negative_answer(command));
    for (status, meaning) in program.statuses {
        let meaning = match &negative {
            Some(negative) if *status == "1" => negative.clone(),
            _ => (*meaning).to_owned(),
        };
        roff.control("TP", []);
        roff.text([bold(*status)]);
        roff.text([roman(meaning)]);
    }
    if command.get_positionals().any(clap::Arg::is_last_set) {
        roff.control("PP", []);
        roff.text([roman(
            "With a command after --, the exit status is that of this command.",
        )]);
    }
}

/// The sentence that begins with "Exit code 1:" in the help, without these words.
fn negative_answer(command: &Command) -> Option<String> {
    let about = command.get_long_about()?.to_string();
    let one_line = about.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, sentence) = one_line.split_once("Exit code 1: ")?;
    let end = sentence.find(". ").map_or(sentence.len(), |at| at + 1);
    let sentence = sentence.get(..end)?;
    let mut letters = sentence.chars();
    let first = letters.next()?.to_uppercase();
    let dot = if sentence.ends_with('.') { "" } else { "." };
    Some(format!("{first}{}{dot}", letters.as_str()))
}

/// Whether a row for `pages` belongs to the page `name`.
fn names(pages: &[&str], name: &str) -> bool {
    pages.iter().any(|page| {
        name.strip_prefix(page)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

fn add_files(roff: &mut Roff, program: &Program, name: &str) {
    let files: Vec<_> = program
        .files
        .iter()
        .filter(|file| names(file.pages, name))
        .collect();
    if files.is_empty() {
        return;
    }
    roff.control("SH", ["FILES"]);
    for file in files {
        roff.control("TP", []);
        roff.text([bold(file.path)]);
        roff.text([roman(file.meaning)]);
    }
}

/// The page above, those below, and the related ones.
fn add_related(roff: &mut Roff, program: &Program, command: &Command, parents: &[&Command]) {
    let mut related: Vec<(&str, &str)> = parents.iter().map(|parent| (name_of(parent), SECTION)).collect();
    related.extend(visible_verbs(command).map(|verb| (name_of(verb), SECTION)));
    let others = program
        .related
        .iter()
        .filter(|page| page.pages.is_empty() || names(page.pages, name_of(command)));
    related.extend(others.map(|page| (page.name, page.section)));
    related.retain(|page| *page != (name_of(command), SECTION));
    related.sort_by_key(|(name, section)| (*section, *name));
    roff.control("SH", ["SEE ALSO"]);
    for (at, (name, section)) in related.iter().enumerate() {
        let comma = if at + 1 < related.len() { "," } else { "" };
        let name = name.replace('-', "\\-");
        roff.control("BR", [name.as_str(), &format!("({section}){comma}")]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::{FileOf, RelatedPage};

    fn command() -> Command {
        let check = Command::new("check")
            .about("Check it")
            .long_about("Check it.\n\nExit code 1: it is\nbroken. More text.")
            .after_help("Examples:\n  tool check a.b\n  tool check --fast")
            .arg(clap::Arg::new("fast").long("fast").help("Check less"));
        Command::new("tool")
            .version("1.2")
            .about("A tool")
            .subcommand(check)
            .subcommand(Command::new("secret").hide(true))
    }

    const PROGRAM: Program = Program {
        command,
        statuses: &[("0", "Success."), ("1", "A negative answer.")],
        files: &[FileOf {
            pages: &["tool-check"],
            path: "/etc/tool",
            meaning: "Settings.",
        }],
        related: &[RelatedPage {
            pages: &[],
            name: "tool",
            section: "7",
        }],
    };

    fn text_of(name: &str) -> String {
        let pages = pages(&PROGRAM, "2026-01-02").unwrap();
        pages
            .into_iter()
            .find(|page| page.file_name == name)
            .unwrap()
            .text
    }

    #[test]
    fn every_visible_verb_has_a_page() {
        let pages = pages(&PROGRAM, "2026-01-02").unwrap();
        let names: Vec<_> = pages.iter().map(|page| page.file_name.as_str()).collect();
        assert_eq!(names, ["tool.1", "tool-check.1"]);
    }

    #[test]
    fn page_has_all_sections() {
        let text = text_of("tool-check.1");
        for expected in [
            ".TH TOOL-CHECK 1 2026-01-02 \"thermocline 1.2\" Thermocline",
            ".SH EXAMPLES\n.EX\ntool check a.b\ntool check \\-\\-fast\n.EE",
            "\\fB1\\fR\nIt is broken.\n",
            ".SH FILES\n.TP\n\\fB/etc/tool\\fR\nSettings.",
            ".SH \"SEE ALSO\"\n.BR tool (1),\n.BR tool (7)\n",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
        }
    }

    #[test]
    fn page_without_files_has_no_such_section() {
        let text = text_of("tool.1");
        assert!(!text.contains("FILES") && !text.contains("/etc/tool"), "{text}");
        assert!(text.contains(".BR tool\\-check (1),\n.BR tool (7)\n"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
