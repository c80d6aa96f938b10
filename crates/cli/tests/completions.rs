//! Completions in the shells themselves: each asks `thermo` through the script of `thermo gen completions`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{run, spawn_command_quiet};

/// A shell, or `None` with a SKIP line.
fn installed(shell: &str) -> Option<Command> {
    if Command::new(shell).args(["-c", "exit"]).output().is_ok() {
        return Some(Command::new(shell));
    }
    println!("SKIP: {shell} is not installed, so its completions are not tested");
    None
}

/// Writes the script for `shell` to the file `name`, as packages install it.
fn write_script(dir: &Path, shell: &str, name: &str) -> PathBuf {
    let output = run(dir, &["gen", "completions", shell]);
    assert!(output.status.success());
    let path = dir.join(name);
    fs::write(&path, output.stdout).unwrap();
    path
}

/// Runs `shell` with the command under test first on PATH. An interactive shell that waits for ever is ended.
fn output_of(mut shell: Command, dir: &Path, arguments: &[&str]) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_thermo")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let program = shell.get_program().to_owned();
    shell = Command::new("timeout");
    let shell = shell.arg("60").arg(program).args(arguments);
    let output: Output = shell
        .current_dir(dir)
        .env("PATH", path)
        .env("HOME", dir)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &common::stderr(&output)
}

/// A process whose ID is to be completed.
fn process() -> common::Guard {
    let mut sleep = Command::new("sleep");
    sleep.arg("600");
    spawn_command_quiet(sleep)
}

#[test]
fn bash_completes_processes_and_actions() {
    let Some(shell) = installed("bash") else { return };
    let dir = tempfile::tempdir().unwrap();
    let process = process();
    write_script(dir.path(), "bash", "thermo");
    let complete = "source ./thermo
        complete_words() {
            COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
            _clap_complete_thermo thermo \"${@: -1}\" \"${@: -2:1}\"
            printf '%s\\n' \"${COMPREPLY[@]}\"
        }
        complete -p thermo
        complete_words thermo record --pid ''
        complete_words thermo hint page";
    let text = output_of(shell, dir.path(), &["--norc", "-c", complete]);
    let pid = process.0.id().to_string();
    for expected in [pid.as_str(), "pageout"] {
        assert!(text.lines().any(|line| line == expected), "{expected}: {text}");
    }
    assert!(text.contains("-F _clap_complete_thermo thermo"), "{text}");
}

#[test]
fn fish_completes_processes_and_verbs() {
    let Some(shell) = installed("fish") else { return };
    let dir = tempfile::tempdir().unwrap();
    let process = process();
    write_script(dir.path(), "fish", "thermo.fish");
    let complete = "source ./thermo.fish; complete -C 'thermo record --pid '; complete -C 'thermo rec'";
    let text = output_of(shell, dir.path(), &["-N", "-c", complete]);
    for expected in [
        format!("{}\tsleep", process.0.id()),
        "record\tMonitor processes".to_owned(),
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(&expected)),
            "{expected}: {text}"
        );
    }
}

/// A zsh in a terminal of its own, which loads the script from `fpath` at the first Tab.
#[test]
fn zsh_completes_processes_at_the_first_tab() {
    let Some(shell) = installed("zsh") else { return };
    let dir = tempfile::tempdir().unwrap();
    let process = process();
    write_script(dir.path(), "zsh", "_thermo");
    let pid = process.0.id().to_string();
    let (begin, _) = pid.split_at(pid.len() - 1);
    let folder = dir.path().display();
    // The shell echoes what is typed: `rea''dy` is not the word that is waited for. Several processes may
    // begin with the same digits, and are listed then.
    let script = format!(
        "zmodload zsh/zpty
         zpty shell zsh -f -i
         zpty -w shell \"PS1=; fpath=({folder} \\$fpath); autoload -Uz compinit; compinit -u -D; print rea''dy\"
         zpty -r shell text '*ready*'
         zpty -w -n shell $'thermo record --pid {begin}\\t\\t'
         zpty -r shell text '*{pid}*' && print completed: $text"
    );
    let text = output_of(shell, dir.path(), &["-f", "-c", &script]);
    assert!(text.contains("completed: ") && text.contains(&pid), "{text}");
}

#[test]
fn hidden_verbs_are_not_completed() {
    let dir = tempfile::tempdir().unwrap();
    let mut ask = common::thermo(dir.path(), &["--", "thermo", ""]);
    let output = ask.env("THERMO_COMPLETE", "fish").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("record\t") && text.contains("agent\t"), "{text}");
    for hidden in ["gen", "nbd", "eval"] {
        assert!(
            !text.lines().any(|line| line.split('\t').next() == Some(hidden)),
            "{text}"
        );
    }
}
