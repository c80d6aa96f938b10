//! An application of a run: started in its group, spoken to, killed.

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

/// As for programs of other experiments: in the groups from its first instruction on.
const ENTER: &str = r#"n=$1; shift
while [ "$n" -gt 0 ]; do echo $$ >"$1" || exit 125; shift; n=$((n-1)); done
exec "$@""#;

/// One that runs; it ends with this value.
#[derive(Debug)]
pub(super) struct App {
    child: Child,
    to: Voice,
    from: Receiver<String>,
}

#[derive(Debug)]
enum Voice {
    Pipe(ChildStdin),
    Tcp(TcpStream),
}

/// What waiting for an answer came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// It answered.
    Answer,
    /// Not yet.
    Nothing,
    /// It has ended.
    Ended,
}

impl App {
    /// Starts it in the groups of `doors`. It is ready when it answers `ready`.
    pub(super) fn start(
        plan: &AppPlan,
        values: &Values,
        doors: &[PathBuf],
        folder: &Path,
    ) -> Result<Self, String> {
        let said =
            fs::File::create(folder.join(format!("{}.err", plan.name))).map_err(|why| why.to_string())?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", ENTER, "sh", &doors.len().to_string()])
            .args(doors);
        command
            .args(values.fill_all(&plan.command))
            .current_dir(folder)
            .process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said);
        let mut child = command
            .spawn()
            .map_err(|why| format!("cannot start {}: {why}", plan.name))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let speak = || -> Result<(Voice, Receiver<String>), String> {
            match &plan.connect {
                None => {
                    let (stdin, stdout) = stdin.zip(stdout).ok_or("it has no standard input")?;
                    Ok((Voice::Pipe(stdin), lines(stdout)))
                }
                Some(port) => {
                    let stream = connect(&values.fill(port), &mut child)?;
                    let reader = stream.try_clone().map_err(|why| why.to_string())?;
                    Ok((Voice::Tcp(stream), lines(reader)))
                }
            }
        };
        match speak() {
            Ok((to, from)) => Ok(Self { child, to, from }),
            Err(why) => {
                drop((child.kill(), child.wait()));
                Err(format!("{}: {why}", plan.name))
            }
        }
    }

    /// Says something to it.
    pub(super) fn say(&mut self, text: &str) {
        // One that has ended is found out when it does not answer.
        let _ = match &mut self.to {
            Voice::Pipe(pipe) => pipe.write_all(text.as_bytes()).and_then(|()| pipe.flush()),
            Voice::Tcp(stream) => stream.write_all(text.as_bytes()),
        };
    }

    /// Waits for a line that holds `word`.
    pub(super) fn hear(&mut self, word: &str, time: Duration) -> Heard {
        match self.from.recv_timeout(time) {
            Ok(line) if line.contains(word) => Heard::Answer,
            Ok(_) | Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::Ended,
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

/// Its lines; the channel closes when it ends.
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

/// Tries until it answers or has ended.
fn connect(port: &str, child: &mut Child) -> Result<TcpStream, String> {
    let port: u16 = port
        .parse()
        .map_err(|why| format!("{port:?} is no port: {why}"))?;
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => return Ok(stream),
            Err(_) if child.try_wait().is_ok_and(|ended| ended.is_none()) => {
                thread::sleep(Duration::from_millis(2))
            }
            Err(why) => return Err(format!("it ended before it listened: {why}")),
        }
    }
}

/// The applications that run, by their place in the plan.
pub(super) type Running = BTreeMap<usize, App>;
