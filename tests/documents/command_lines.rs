//! Command lines of the documentation, for the unit tests of each command: does its parser accept them, and
//! is its page of flags what `--help` prints?
//!
//! A source file that the three commands include as a module, because only a command itself can reach its
//! parser. Nothing is run here: `tests/documents/run.py` does that.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Command, Parser};

/// The folder of the repository. Each command is a package two folders below it.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Stands for a process ID that the shell would insert.
const SUBSTITUTED: &str = "4242";

/// A command line, and where it was found.
#[derive(Debug)]
struct CommandLine {
    place: String,
    /// The program and its arguments.
    words: Vec<String>,
    /// True in running text: values may be missing, or be placeholders.
    is_mention: bool,
}

/// Checks that the parser accepts every command line of the program, in the Markdown files of the repository
/// and in the examples of the help texts.
///
/// # Panics
/// With one line for each command line that is refused, or if fewer than `at_least` are found.
pub fn assert_all_parse<P: Parser>(at_least: usize) {
    let command = P::command();
    let mut lines = examples_of(&command, command.get_name());
    for path in markdown_files(Path::new(ROOT)) {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(ROOT).unwrap().display().to_string();
        lines.extend(lines_of(&name, &text, command.get_name()));
    }
    assert!(lines.len() >= at_least, "only {} command lines", lines.len());
    let refused: Vec<String> = lines.iter().filter_map(refusal::<P>).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Why the parser refuses a command line.
fn refusal<P: Parser>(line: &CommandLine) -> Option<String> {
    let error = P::try_parse_from(&line.words).err()?;
    let is_allowed = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::InvalidValue
        | ErrorKind::ValueValidation
        | ErrorKind::TooFewValues
        | ErrorKind::WrongNumberOfValues
        | ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => line.is_mention,
        _ => false,
    };
    let reason = error.to_string();
    let reason = reason.lines().next().unwrap_or_default();
    (!is_allowed).then(|| format!("{}: {}: {reason}", line.place, line.words.join(" ")))
}

/// Checks that a page of the reference is what `--help` of each verb prints. With `UPDATE_DOCS=1` in the
/// environment, writes the page.
///
/// # Panics
/// If the page differs.
pub fn assert_page_is_current<P: Parser>(page: &str, intro: &str) {
    let mut command = P::command().term_width(100);
    command.build();
    let name = command.get_name().to_owned();
    let mut expected = format!("# `{name}`: every flag\n\n{intro}\n");
    write_help(&mut command, &name, &mut expected);
    let path = Path::new(ROOT).join(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{page} is not what --help prints: run  UPDATE_DOCS=1 cargo test -p {} documentation",
        env!("CARGO_PKG_NAME")
    );
}

/// Adds the help of a command and of its visible subcommands.
fn write_help(command: &mut Command, words: &str, page: &mut String) {
    let help = command.render_long_help().to_string();
    writeln!(page, "\n## {words}\n\n```text").unwrap();
    for line in help.trim_end().lines() {
        writeln!(page, "{}", line.trim_end()).unwrap();
    }
    page.push_str("```\n");
    for verb in command.get_subcommands_mut() {
        if !verb.is_hide_set() && verb.get_name() != "help" {
            let words = format!("{words} {}", verb.get_name());
            write_help(verb, &words, page);
        }
    }
}

/// The examples in the help texts of a command and of all its subcommands.
fn examples_of(command: &Command, program: &str) -> Vec<CommandLine> {
    let after = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let place = format!("{} --help", command.get_name());
    let own = after.lines().filter_map(|line| command_in(line.trim(), program));
    let mut found: Vec<CommandLine> = own.map(|words| line_at(&place, words, false)).collect();
    found.extend(
        command
            .get_subcommands()
            .flat_map(|verb| examples_of(verb, program)),
    );
    found
}

fn line_at(place: &str, words: Vec<String>, is_mention: bool) -> CommandLine {
    CommandLine {
        place: place.to_owned(),
        words,
        is_mention,
    }
}

/// The Markdown files below a folder. Changelogs and printed results are about the past.
fn markdown_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "results", "node_modules"].contains(&&*name)
        {
            found.extend(markdown_files(&path));
        } else if name.ends_with(".md") && name != "CHANGELOG.md" {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The command lines of a Markdown file: in its code blocks, and in code within its text.
fn lines_of(file: &str, text: &str, program: &str) -> Vec<CommandLine> {
    let (mut found, mut prose, mut block) = (Vec::new(), String::new(), None);
    for (number, line) in (1..).zip(text.lines()) {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut block, fence) {
            (None, Some(language)) => block = Some((number, language.trim(), Vec::new())),
            (None, None) => prose.extend([line, "\n"]),
            (Some((begin, language, lines)), Some(_)) => {
                let is_shell = ["", "console", "sh"].contains(language);
                let commands = is_shell.then(|| commands_of_block(lines, program));
                for command in commands.into_iter().flatten() {
                    found.push(line_at(&format!("{file}, block at line {begin}"), command, false));
                }
                block = None;
            }
            (Some((_, _, lines)), None) => lines.push(line.trim()),
        }
    }
    for code in prose.split('`').skip(1).step_by(2) {
        let words: Vec<String> = code.split_whitespace().map(str::to_owned).collect();
        // A word in capitals, or an ellipsis, stands for something else: only what precedes is checked.
        let known = words
            .iter()
            .position(|word| is_placeholder(word))
            .unwrap_or(words.len());
        if known > 1 && words[0] == program {
            found.push(line_at(file, words[..known].to_vec(), true));
        }
    }
    found
}

fn is_placeholder(word: &str) -> bool {
    word.contains('…') || word.starts_with(|first: char| first.is_ascii_uppercase() || "[{".contains(first))
}

/// The command lines of a code block. If one line has a prompt, the lines without prompt are output.
fn commands_of_block(lines: &[&str], program: &str) -> Vec<Vec<String>> {
    let joined = lines.join("\n").replace("\\\n", " ");
    let has_prompt = joined
        .lines()
        .any(|line| line.starts_with("$ ") || line.starts_with("# thermo"));
    let commands = joined.lines().filter_map(|line| {
        let bare = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
        if has_prompt { bare } else { Some(line) }
    });
    commands.filter_map(|line| command_in(line, program)).collect()
}

/// The call of the program in a line of shell, without the explanation that may follow after two spaces.
fn command_in(line: &str, program: &str) -> Option<Vec<String>> {
    let words = split(without_explanation(line));
    let begin = words.iter().position(|word| word == program)?;
    let starts_command = |word: &String| ["sudo", "[", "&&", "|", ";", "--"].contains(&word.as_str());
    if begin > 0 && !starts_command(&words[begin - 1]) {
        return None;
    }
    let ends_command = |word: &String| ["]", "&&", "|", ";", "&", ">", "2>", "<"].contains(&word.as_str());
    let call = words[begin..].iter().take_while(|word| !ends_command(word));
    Some(call.cloned().collect())
}

/// A line up to two spaces or a comment.
fn without_explanation(line: &str) -> &str {
    let end = [line.find("  "), line.find(" # ")].into_iter().flatten().min();
    line[..end.unwrap_or(line.len())].trim_end()
}

/// The words of a line of shell. `$(…)` becomes a number.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        match (quote, next) {
            (Some(open), _) if open == next => quote = None,
            (None, '\'' | '"') => {
                quote = Some(next);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None | Some('"'), '$') if rest.as_str().starts_with('(') => {
                rest.by_ref().find(|&end| end == ')');
                word.get_or_insert_default().push_str(SUBSTITUTED);
            }
            _ => word.get_or_insert_default().push(next),
        }
    }
    words.extend(word);
    words
}

#[test]
fn split_follows_quotes_and_substitutions() {
    let line = r#"sudo thermo fs --modules-on "$(pidof -s mysqld)" -- sh -c 'echo Y >/sys/x; …'   # why"#;
    let words = command_in(line, "thermo").unwrap();
    assert_eq!(
        words,
        [
            "thermo",
            "fs",
            "--modules-on",
            "4242",
            "--",
            "sh",
            "-c",
            "echo Y >/sys/x; …"
        ]
    );
    assert_eq!(
        command_in("nbdinfo -- [ thermo-nbd --export a=b ]", "thermo-nbd")
            .unwrap()
            .len(),
        3
    );
    assert_eq!(command_in("man thermo record", "thermo"), None);
}

#[test]
fn lines_are_found_in_blocks_and_in_text() {
    let text = "See `thermo report\nidle --last FILE`.\n```\n$ thermo top  now\nthermo is output\n```\n";
    let found = lines_of("a.md", text, "thermo");
    assert_eq!(found[0].words, ["thermo", "top"]);
    assert_eq!(found[1].words, ["thermo", "report", "idle", "--last"]);
    assert_eq!((found.len(), found[1].is_mention), (2, true));
}
