//! Shell completions. The script for a shell asks the command itself at each Tab: it runs the command with
//! the variable `THERMO_COMPLETE` and the words so far, and the command answers from its clap declaration.
//!
//! A flag or argument whose values depend on the machine names its candidates in its declaration: `#[arg(add
//! = completions::pids())]`. Where candidates cannot be read there are none; nothing is printed into the
//! line that the user is typing.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Shells, Zsh};
use clap_complete::{ArgValueCandidates, CompletionCandidate};
use thermo_kernel::{cgroup, proc};

/// The variable of the environment by which a shell asks.
const VARIABLE: &str = "THERMO_COMPLETE";

const SHELLS: Shells<'static> = Shells(&[&Bash, &Fish, &Zsh]);

/// A shell that has completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Shell {
    Bash,
    Fish,
    Zsh,
}

impl Shell {
    fn completer(self) -> &'static dyn EnvCompleter {
        match self {
            Self::Bash => &Bash,
            Self::Fish => &Fish,
            Self::Zsh => &Zsh,
        }
    }
}

/// Answers the request of a shell, if this is one, and then ends the process. `main` calls it first, before
/// there is another thread.
pub fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(command)
        .var(VARIABLE)
        .shells(SHELLS)
        .complete();
}

/// The script that makes `shell` ask the command `name`, which it finds on PATH.
///
/// # Errors
/// clap_complete could not write it.
pub fn script(shell: Shell, name: &str) -> io::Result<String> {
    let mut text = Vec::new();
    shell
        .completer()
        .write_registration(VARIABLE, name, name, name, &mut text)?;
    let mut text = String::from_utf8_lossy(&text).trim_start().to_owned();
    if shell == Shell::Zsh {
        // zsh loads the file at the first Tab and runs it as the function `_NAME`. Registering is not enough
        // then: this first request needs an answer too.
        let function = name.replace('-', "_");
        text += &format!(
            "if [[ ${{funcstack[1]}} = _{name} ]]; then\n    _clap_dynamic_completer_{function} \"$@\"\nfi\n"
        );
    }
    Ok(text)
}

/// Candidates from a function, for the declaration of a flag or argument.
#[must_use]
pub fn from_function(names: fn() -> Vec<String>) -> ArgValueCandidates {
    ArgValueCandidates::new(move || names().into_iter().map(CompletionCandidate::new).collect())
}

/// Candidates that are always the same.
#[must_use]
pub fn from_names<I>(names: I) -> ArgValueCandidates
where
    I: IntoIterator<Item = &'static str>,
{
    let names: Vec<&str> = names.into_iter().collect();
    ArgValueCandidates::new(move || names.iter().map(CompletionCandidate::new).collect())
}

/// The processes of the machine that have memory, with their names.
#[must_use]
pub fn pids() -> ArgValueCandidates {
    ArgValueCandidates::new(|| pids_of(Path::new("/")))
}

/// The names of the programs that run, as ps shows them.
#[must_use]
pub fn programs() -> ArgValueCandidates {
    from_function(|| {
        let running = pids_of(Path::new("/"));
        let names = running.iter().filter_map(|one| one.get_help());
        names
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    })
}

/// The units that have processes.
#[must_use]
pub fn units() -> ArgValueCandidates {
    from_function(|| cgroup::units(Path::new("/")))
}

/// The control groups that have processes, by their paths below the mount.
#[must_use]
pub fn cgroups() -> ArgValueCandidates {
    from_function(|| cgroup::populated(Path::new("/")))
}

fn pids_of(root: &Path) -> Vec<CompletionCandidate> {
    let pids = proc::pids(root).unwrap_or_default();
    let candidate = |pid: u32| {
        // Kernel threads have no memory, and their first line of /proc/PID/statm is zeros.
        let memory = proc::text(root, pid, "statm").ok()?;
        let name = proc::text(root, pid, "comm").ok()?;
        let has_memory = !memory.starts_with("0 ");
        has_memory.then(|| CompletionCandidate::new(pid.to_string()).help(Some(printable(&name).into())))
    };
    pids.into_iter().filter_map(candidate).collect()
}

/// Programs choose their names: control characters must not reach the shell.
fn printable(name: &str) -> String {
    name.trim_end()
        .chars()
        .filter(|letter| !letter.is_control())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    #[test]
    fn processes_have_names_and_kernel_threads_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        for (pid, statm, comm) in [(7, "100 20 3\n", "red\u{1b}is\n"), (8, "0 0 0\n", "kthreadd\n")] {
            let dir = root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("statm"), statm).unwrap();
            fs::write(dir.join("comm"), comm).unwrap();
        }
        let found = pids_of(root.path());
        let shown: Vec<_> = found
            .iter()
            .map(|one| {
                (
                    one.get_value().to_str().unwrap(),
                    one.get_help().unwrap().to_string(),
                )
            })
            .collect();
        assert_eq!(shown, [("7", "redis".to_owned())]);
    }

    #[test]
    fn scripts_ask_the_command_on_path() {
        for (shell, ask) in [
            (
                Shell::Bash,
                "THERMO_COMPLETE=\"bash\" \\\n        \"thermo-lab\" -- \"${words[@]}\"",
            ),
            (Shell::Fish, "THERMO_COMPLETE=fish thermo-lab --"),
            (
                Shell::Zsh,
                "THERMO_COMPLETE=\"zsh\" \\\n        thermo-lab -- \"${words[@]}\"",
            ),
        ] {
            let script = script(shell, "thermo-lab").unwrap();
            assert!(script.contains(ask), "{shell:?}: {script}");
        }
        assert!(
            script(Shell::Zsh, "thermo-lab")
                .unwrap()
                .starts_with("#compdef thermo-lab\n")
        );
    }
}
