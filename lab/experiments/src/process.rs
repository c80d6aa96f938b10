//! Programs of a run: started inside a group, waited for, and never left behind.

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

/// Enters groups, then becomes the program: the program is in them from its first instruction, and its process
/// id is the one that was started.
const ENTER: &str = r#"n=$1; shift
while [ "$n" -gt 0 ]; do echo $$ >"$1" || exit 125; shift; n=$((n-1)); done
exec "$@""#;

/// A program that runs. It ends with this value: first asked to, then killed.
#[derive(Debug)]
pub struct Program {
    child: Child,
    exit: OwnedFd,
    status: Option<ExitStatus>,
    output: PathBuf,
}

/// What to start.
#[derive(Debug)]
pub struct Start<'a> {
    /// The program and its arguments.
    pub words: &'a [String],
    /// Environment on top of ours.
    pub env: &'a BTreeMap<String, String>,
    /// The folder it starts in.
    pub dir: &'a Path,
    /// The files it enters groups by.
    pub doors: &'a [PathBuf],
    /// The file its output goes to.
    pub output: &'a Path,
}

impl Start<'_> {
    /// Starts it. It has a process group of its own: Ctrl-C on the terminal is ours to handle.
    ///
    /// # Errors
    /// When its output file or the process cannot be made. A program that does not exist ends with status 127.
    pub fn start(&self) -> io::Result<Program> {
        let log = File::create(self.output)?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", ENTER, "sh", &self.doors.len().to_string()])
            .args(self.doors)
            .args(self.words);
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
    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends, at most `span`; nothing if it still runs then.
    ///
    /// # Errors
    /// When the system cannot say.
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

    /// Sends it `signal` and waits until it ends; kills it after `grace`.
    pub fn end(&mut self, signal: Signal, grace: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + grace;
        if !matches!(self.wait(Duration::ZERO), Ok(None)) {
            return self.status;
        }
        // The process is our child and not waited for: the id cannot be another's.
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

    /// What it has printed so far.
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

/// How a program ended, in words; nothing if it ended well. A signal is never a good end, whatever the code.
#[must_use]
pub fn bad_end(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(125), _) => Some("could not enter its control group".to_owned()),
        (Some(127), _) => Some("was not found".to_owned()),
        (Some(code), _) => Some(format!("ended with status {code}")),
        (None, signal) => Some(format!("was killed by signal {}", signal.unwrap_or(0))),
    }
}

/// The last lines of `text`, in one line, for error messages.
#[must_use]
pub fn tail(text: &str) -> String {
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
        let words = ["sh", "-c", script].map(str::to_owned);
        let env = BTreeMap::from([("WORD".to_owned(), "hello".to_owned())]);
        let output = dir.path().join("out");
        let start = Start {
            words: &words,
            env: &env,
            dir: dir.path(),
            doors: &[],
            output: &output,
        };
        let mut program = start.start().unwrap();
        let status = program.wait(Duration::from_secs(60)).unwrap().unwrap();
        (bad_end(status), program.printed())
    }

    #[test]
    fn output_status_and_signals_are_seen() {
        assert_eq!(
            run("echo $WORD; echo there >&2"),
            (None, "hello\nthere\n".to_owned())
        );
        assert_eq!(run("exit 3").0.unwrap(), "ended with status 3");
        assert_eq!(run("kill -SEGV $$").0.unwrap(), "was killed by signal 11");
        assert_eq!(run("exec no-such-program-here").0.unwrap(), "was not found");
    }

    #[test]
    fn a_program_that_will_not_end_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let words = [
            "sh",
            "-c",
            "trap '' TERM; echo on; while :; do read -r x </dev/zero; done",
        ]
        .map(str::to_owned);
        let output = dir.path().join("out");
        let env = BTreeMap::new();
        let mut program = Start {
            words: &words,
            env: &env,
            dir: dir.path(),
            doors: &[],
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
    fn the_tail_is_one_line() {
        assert_eq!(tail("a\nb\n\nc\nd\n"), "b | c | d");
        assert_eq!(tail(""), "it printed nothing");
    }
}
