//! Man pages: of each command, and those in packaging/man. mandoc checks them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{help_of_all_verbs, run, stderr};

/// Pages of sections 5 and 7, written by hand.
fn hand_written() -> Vec<PathBuf> {
    pages_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/man"))
}

fn pages_in(dir: &Path) -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|page| page.unwrap().path())
        .collect();
    pages.sort();
    pages
}

/// The pages of a command, below `dir`.
fn generated(dir: &Path, command: &Path) -> Vec<PathBuf> {
    let dir = dir.join(command.file_name().unwrap());
    let mut generate = Command::new(command);
    let output = generate
        .args(["gen", "man", "--date", "2026-11-26"])
        .arg(&dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    pages_in(&dir)
}

fn commands() -> [PathBuf; 4] {
    let thermo = Path::new(env!("CARGO_BIN_EXE_thermo"));
    let [nbd, upload] = ["thermo-nbd", "thermo-upload"].map(|name| {
        let path = thermo.with_file_name(name);
        assert!(
            path.exists(),
            "{} does not exist: run `cargo build -p {name}` first",
            path.display()
        );
        path
    });
    [thermo.to_owned(), nbd, upload, common::lab()]
}

fn file_name(page: &Path) -> String {
    page.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn every_verb_has_a_page_with_all_sections() {
    let dir = tempfile::tempdir().unwrap();
    let pages = generated(dir.path(), Path::new(env!("CARGO_BIN_EXE_thermo")));
    let expected: BTreeSet<String> = help_of_all_verbs(dir.path())
        .iter()
        .map(|(verb, _)| format!("{}.1", [&["thermo".to_owned()], &verb[..]].concat().join("-")))
        .collect();
    let found: BTreeSet<String> = pages.iter().map(|page| file_name(page)).collect();
    assert_eq!(found, expected);
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "EXAMPLES",
            "\"EXIT STATUS\"",
            "\"SEE ALSO\"",
        ] {
            assert!(
                text.contains(&format!("\n.SH {section}\n")),
                "{page:?} has no {section}"
            );
        }
    }
    let with_files = pages
        .iter()
        .filter(|page| fs::read_to_string(page).unwrap().contains("\n.SH FILES\n"));
    assert!(with_files.count() > 20);
}

#[test]
fn mandoc_accepts_every_page() {
    if Command::new("mandoc").arg("-V").output().is_err() {
        println!("SKIP: mandoc is not installed, so the man pages are not checked");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut pages = hand_written();
    pages.extend(
        commands()
            .iter()
            .flat_map(|command| generated(dir.path(), command)),
    );
    assert!(pages.len() > 50, "{pages:?}");
    let lint = Command::new("mandoc")
        .args(["-T", "lint", "-W", "warning"])
        .args(&pages)
        .output()
        .unwrap();
    // References to pages that are not installed on this machine are not warnings but of a lower level.
    assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));
}

/// Names like `thermo-schemes(5)` in a page.
fn references(text: &str) -> BTreeSet<String> {
    let text = text.replace("\\-", "-");
    let mut names = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [".Xr", name, section, ..] => names.insert(format!("{name}.{section}")),
            [".BR", name, section] => {
                let section = section.trim_matches(|letter: char| !letter.is_ascii_digit());
                names.insert(format!("{name}.{section}"))
            }
            _ => false,
        };
    }
    names
        .into_iter()
        .filter(|name| name.starts_with("thermo"))
        .collect()
}

#[test]
fn pages_refer_only_to_pages_that_exist() {
    let dir = tempfile::tempdir().unwrap();
    let mut pages = hand_written();
    pages.extend(
        commands()
            .iter()
            .flat_map(|command| generated(dir.path(), command)),
    );
    let existing: BTreeSet<String> = pages.iter().map(|page| file_name(page)).collect();
    let mut nr_references = 0;
    for page in &pages {
        let found = references(&fs::read_to_string(page).unwrap());
        nr_references += found.len();
        let missing: Vec<_> = found.difference(&existing).collect();
        assert!(missing.is_empty(), "{page:?} refers to {missing:?}");
    }
    assert!(nr_references > 100, "{nr_references}");
}

/// The text of a page of packaging/man.
fn hand_written_page(name: &str) -> String {
    let page = hand_written().into_iter().find(|page| file_name(page) == name);
    fs::read_to_string(page.unwrap()).unwrap()
}

/// Whether a page lists `key` as a heading of a list, alone or with others.
fn lists(page: &str, key: &str) -> bool {
    page.lines()
        .filter_map(|line| line.strip_prefix(".It Cm "))
        .any(|keys| keys.split(" , ").any(|listed| listed == key))
}

#[test]
fn schemes_page_has_every_key_and_action() {
    let page = hand_written_page("thermo-schemes.5");
    let everything = include_str!("../../../schemes/everything.toml");
    let mut keys = BTreeSet::new();
    add_keys(&everything.parse::<toml::Table>().unwrap().into(), &mut keys);
    assert!(keys.len() > 30, "{keys:?}");
    for key in &keys {
        let is_table = ["scheme", "quota", "watermarks"].contains(&key.as_str());
        let heading = format!("{key}]");
        let mentioned = page
            .lines()
            .any(|line| line == format!(".Cm {key}") || line.starts_with(&format!(".Cm {key} ")));
        assert!(
            lists(&page, key) || mentioned || is_table && page.contains(&heading),
            "thermo-schemes(5) has no {key}"
        );
    }
    for action in thermo_engine::Action::ALL {
        assert!(
            page.contains(&format!(".Cm {}", action.name())),
            "thermo-schemes(5) has no {}",
            action.name()
        );
    }
}

fn add_keys(value: &toml::Value, keys: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => table.iter().for_each(|(key, value)| {
            keys.insert(key.clone());
            add_keys(value, keys);
        }),
        toml::Value::Array(values) => values.iter().for_each(|value| add_keys(value, keys)),
        _ => {}
    }
}

/// The keys of a table of the agent's configuration: the error about an unknown key names them.
fn agent_keys(dir: &Path, table: &str) -> Vec<String> {
    fs::write(dir.join("agent.toml"), format!("{table}\nnonsense = \"\"\n")).unwrap();
    let output = run(dir, &["agent", "check", "agent.toml"]);
    let message = stderr(&output);
    let (_, expected) = message
        .split_once("expected one of ")
        .unwrap_or_else(|| panic!("{table}: {message}"));
    // `a`, `b`, `c`
    expected
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn agent_page_has_every_key() {
    let dir = tempfile::tempdir().unwrap();
    let page = hand_written_page("thermo-agent.toml.5");
    let mut nr_keys = 0;
    for table in [
        "",
        "[http]",
        "[history]",
        "[export]",
        "[guard]",
        "[kubernetes]",
        "[[policy]]",
        "[[policy]]\nname = \"a\"\n[policy.match]",
    ] {
        for key in agent_keys(dir.path(), table) {
            assert!(lists(&page, &key), "thermo-agent.toml(5) has no {key} of {table}");
            nr_keys += 1;
        }
    }
    assert!(nr_keys > 30, "{nr_keys}");
}

#[test]
fn gen_rejects_invalid_arguments() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (arguments, expected) in [
        (&["gen", "completions", "tcsh"][..], "bash, fish, zsh"),
        (
            &["gen", "man", "pages", "--date", "yesterday"],
            "give a date like 2026-11-26",
        ),
        (&["gen", "man", "pages"], "--date"),
        (
            &["gen", "man", "file", "--date", "2026-11-26"],
            "cannot create file",
        ),
    ] {
        let output = run(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            stderr(&output).contains(expected),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}
