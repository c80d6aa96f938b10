//! An application of a run: starts it in its cgroup, exchanges lines with it, kills it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::plan::AppPlan;
use crate::placeholder::Values;
use crate::process::JOIN_CGROUPS;

/// A running application. Dropping it kills the application.
#[derive(Debug)]
pub(super) struct App {
    child: Child,
    input: Input,
    replies: Receiver<String>,
}

/// Where requests are sent.
#[derive(Debug)]
enum Input {
    Pipe(ChildStdin),
    Tcp(TcpStream),
}

/// Result of waiting for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// The expected reply arrived.
    Received,
    /// No reply yet.
    None,
    /// The application has ended.
    Ended,
}

impl App {
    /// Starts an application in the cgroups of `procs_files`. It prints a line with `ready` when it is ready.
    pub(super) fn start(
        plan: &AppPlan,
        values: &Values,
        procs_files: &[PathBuf],
        folder: &Path,
    ) -> Result<Self, String> {
        let stderr =
            fs::File::create(folder.join(format!("{}.err", plan.name))).map_err(|error| error.to_string())?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", JOIN_CGROUPS, "sh", &procs_files.len().to_string()])
            .args(procs_files);
        command
            .args(values.fill_all(&plan.command))
            .current_dir(folder)
            .process_group(0);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr);
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", plan.name))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let open = || -> Result<(Input, Receiver<String>), String> {
            match &plan.connect {
                None => {
                    let (stdin, stdout) = stdin.zip(stdout).ok_or("it has no standard input")?;
                    Ok((Input::Pipe(stdin), lines(stdout)))
                }
                Some(port) => {
                    let stream = connect(&values.fill(port), &mut child)?;
                    let reader = stream.try_clone().map_err(|error| error.to_string())?;
                    Ok((Input::Tcp(stream), lines(reader)))
                }
            }
        };
        match open() {
            Ok((input, replies)) => Ok(Self {
                child,
                input,
                replies,
            }),
            Err(error) => {
                drop((child.kill(), child.wait()));
                Err(format!("{}: {error}", plan.name))
            }
        }
    }

    /// Sends `text` to the application.
    pub(super) fn send(&mut self, text: &str) {
        // If the application has ended, `wait_for_reply` reports it.
        let _ = match &mut self.input {
            Input::Pipe(pipe) => pipe.write_all(text.as_bytes()).and_then(|()| pipe.flush()),
            Input::Tcp(stream) => stream.write_all(text.as_bytes()),
        };
    }

    /// Waits at most `timeout` for a line that contains `word`.
    pub(super) fn wait_for_reply(&mut self, word: &str, timeout: Duration) -> Reply {
        match self.replies.recv_timeout(timeout) {
            Ok(line) if line.contains(word) => Reply::Received,
            Ok(_) | Err(RecvTimeoutError::Timeout) => Reply::None,
            Err(RecvTimeoutError::Disconnected) => Reply::Ended,
        }
    }

    pub(super) fn kill(&mut self) {
        drop((self.child.kill(), self.child.wait()));
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A channel of the lines in `from`. It closes when the application ends.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// Tries to connect until the application accepts or has ended.
fn connect(port: &str, child: &mut Child) -> Result<TcpStream, String> {
    let port: u16 = port
        .parse()
        .map_err(|error| format!("{port:?} is no port: {error}"))?;
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => return Ok(stream),
            Err(_) if child.try_wait().is_ok_and(|ended| ended.is_none()) => {
                thread::sleep(Duration::from_millis(2))
            }
            Err(error) => return Err(format!("it ended before it accepted connections: {error}")),
        }
    }
}

/// The running applications by their index in the plan.
pub(super) type RunningApps = BTreeMap<usize, App>;
