//! Programs of a run: starts them in cgroups, waits for them, and kills them when dropped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Shell script that joins cgroups and then executes the program. So the program is in its cgroups from its
/// first instruction and has the process id of the shell.
pub(crate) const JOIN_CGROUPS: &str = r#"n=$1; shift
while [ "$n" -gt 0 ]; do echo $$ >"$1" || exit 125; shift; n=$((n-1)); done
exec "$@""#;

/// A started program. Dropping it sends SIGTERM, and SIGKILL 5 s later.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// A pidfd, readable when the program has ended.
    exit: OwnedFd,
    status: Option<ExitStatus>,
    output: PathBuf,
}

/// How to start a program.
#[derive(Debug)]
pub struct ProgramSpec<'a> {
    /// The program and its arguments.
    pub argv: &'a [String],
    /// Environment variables, in addition to those of this process.
    pub env: &'a BTreeMap<String, String>,
    /// Working directory.
    pub dir: &'a Path,
    /// The `cgroup.procs` files of the cgroups to join.
    pub procs_files: &'a [PathBuf],
    /// File for standard output and standard error.
    pub output: &'a Path,
}

impl ProgramSpec<'_> {
    /// Starts the program in its own process group, so that Ctrl-C on the terminal reaches only this process.
    ///
    /// # Errors
    /// When the output file or the process cannot be created. A program that does not exist ends with status
    /// 127.
    pub fn start(&self) -> io::Result<Program> {
        let log = File::create(self.output)?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", JOIN_CGROUPS, "sh", &self.procs_files.len().to_string()])
            .args(self.procs_files)
            .args(self.argv);
        command.envs(self.env).current_dir(self.dir).process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn()?;
        let exit = Pid::from_raw(child.id().try_into().unwrap_or(0))
            .ok_or(io::ErrorKind::NotFound.into())
            .and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?));
        match exit {
            Ok(exit) => Ok(Program {
                child,
                exit,
                status: None,
                output: self.output.to_owned(),
            }),
            Err(error) => {
                drop(child.kill());
                drop(child.wait());
                Err(error)
            }
        }
    }
}

impl Program {
    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program ends, at most for `span`. `None` when it still runs.
    ///
    /// # Errors
    /// When waiting fails.
    pub fn wait(&mut self, span: Duration) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let timeout = Timespec::try_from(span).unwrap_or(Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            });
            match poll(&mut [PollFd::new(&self.exit, PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// Sends `signal` and waits until the program ends. Kills it after `grace`.
    pub fn end(&mut self, signal: Signal, grace: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + grace;
        if !matches!(self.wait(Duration::ZERO), Ok(None)) {
            return self.status;
        }
        // The child was not waited for, so its process id cannot have been reused.
        if let Some(pid) = Pid::from_raw(self.child.id().try_into().unwrap_or(0)) {
            let _ = kill_process(pid, signal);
        }
        while Instant::now() < deadline {
            match self.wait(deadline.saturating_duration_since(Instant::now())) {
                Ok(None) => {}
                Ok(Some(status)) => return Some(status),
                Err(_) => sleep(Duration::from_millis(10)),
            }
        }
        drop(self.child.kill());
        self.status = self.child.wait().ok();
        self.status
    }

    /// Its output so far.
    #[must_use]
    pub fn printed(&self) -> String {
        fs::read(&self.output)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end(Signal::TERM, Duration::from_secs(5));
    }
}

/// Describes a failed exit, e.g. "was killed by signal 9". `None` for exit status 0. A signal is always a
/// failure.
#[must_use]
pub fn describe_failure(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(125), _) => Some("could not join its control group".to_owned()),
        (Some(127), _) => Some("was not found".to_owned()),
        (Some(code), _) => Some(format!("ended with status {code}")),
        (None, signal) => Some(format!("was killed by signal {}", signal.unwrap_or(0))),
    }
}

/// The last three lines of `text` as one line, for error messages.
#[must_use]
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "it printed nothing".to_owned();
    }
    lines[lines.len().saturating_sub(3)..].join(" | ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn run(script: &str) -> (Option<String>, String) {
        let dir = tempfile::tempdir().unwrap();
        let argv = ["sh", "-c", script].map(str::to_owned);
        let env = BTreeMap::from([("WORD".to_owned(), "hello".to_owned())]);
        let output = dir.path().join("out");
        let start = ProgramSpec {
            argv: &argv,
            env: &env,
            dir: dir.path(),
            procs_files: &[],
            output: &output,
        };
        let mut program = start.start().unwrap();
        let status = program.wait(Duration::from_secs(60)).unwrap().unwrap();
        (describe_failure(status), program.printed())
    }

    #[test]
    fn program_reports_output_status_and_signal() {
        assert_eq!(
            run("echo $WORD; echo there >&2"),
            (None, "hello\nthere\n".to_owned())
        );
        assert_eq!(run("exit 3").0.unwrap(), "ended with status 3");
        assert_eq!(run("kill -SEGV $$").0.unwrap(), "was killed by signal 11");
        assert_eq!(run("exec no-such-program-here").0.unwrap(), "was not found");
    }

    #[test]
    fn program_that_ignores_sigterm_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let argv = [
            "sh",
            "-c",
            "trap '' TERM; echo on; while :; do read -r x </dev/zero; done",
        ]
        .map(str::to_owned);
        let output = dir.path().join("out");
        let env = BTreeMap::new();
        let mut program = ProgramSpec {
            argv: &argv,
            env: &env,
            dir: dir.path(),
            procs_files: &[],
            output: &output,
        }
        .start()
        .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while program.printed().is_empty() && Instant::now() < deadline {
            sleep(Duration::from_millis(5));
        }
        let status = program.end(Signal::TERM, Duration::from_millis(50)).unwrap();
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn last_lines_are_joined_to_one() {
        assert_eq!(last_lines("a\nb\n\nc\nd\n"), "b | c | d");
        assert_eq!(last_lines(""), "it printed nothing");
    }
}
