//! The control socket: a line comes, an answer goes, and that is all of a conversation.
//!
//! `status`, `metrics`, `squeeze`, `set NAME VALUE …`. Whoever may open the socket may ask; its folder decides who that
//! is. An answer is JSON with `"error"` in it when something was wrong, and then nothing was changed.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::json;
use thermo_units::Bytes;

use crate::stats::Facts;

/// A line that is longer is no command of ours.
const LONGEST: u64 = 4096;
/// Who asks has so long to do it.
const PATIENCE: Duration = Duration::from_secs(2);
/// How soon it is seen that the server ends.
const LOOK: Duration = Duration::from_millis(50);

/// Listens; dropping it ends that and removes the socket.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Answers at `path`.
    ///
    /// # Errors
    /// Nothing can listen there.
    pub fn start(path: &Path, facts: Arc<Facts>) -> anyhow::Result<Self> {
        if UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            // Left behind by one that was killed.
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .with_context(|| format!("cannot listen at {} for questions", path.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("nbd-control".to_owned())
            .spawn(move || {
                while !theirs.load(Ordering::SeqCst) {
                    match listener.accept() {
                        // Who hangs up before the answer wanted none.
                        Ok((stream, _)) => drop(converse(stream, &facts)),
                        Err(_) => std::thread::sleep(LOOK),
                    }
                }
            })?;
        Ok(Self {
            path: path.to_owned(),
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn converse(stream: UnixStream, facts: &Facts) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(&stream).take(LONGEST).read_line(&mut line)?;
    let answer = match answer(line.trim(), facts) {
        Ok(answer) => answer,
        Err(error) => json!({ "schema": 1, "error": format!("{error:#}") }).to_string(),
    };
    (&stream).write_all(answer.as_bytes())
}

fn answer(line: &str, facts: &Facts) -> anyhow::Result<String> {
    let mut words = line.split_whitespace();
    match (words.next(), words.collect::<Vec<_>>()) {
        (Some("status"), rest) if rest.is_empty() => Ok(facts.json().to_string()),
        (Some("metrics"), rest) if rest.is_empty() => Ok(facts.metrics()),
        (Some("squeeze"), rest) if rest.is_empty() => {
            let round = facts.bus.report_pressure("asked for");
            Ok(json!({ "schema": 1, "freed_bytes": round.freed.0, "too_soon": round.too_soon }).to_string())
        }
        (Some("set"), settings) if !settings.is_empty() => {
            set(&settings, facts)?;
            Ok(facts.json().to_string())
        }
        _ => bail!("{line:?} is not known: ask for status, metrics, squeeze, or set NAME=VALUE"),
    }
}

// All of them, or none.
fn set(assignments: &[&str], facts: &Facts) -> anyhow::Result<()> {
    let (mut settings, mut budget) = (facts.pools.settings(), None);
    for assignment in assignments {
        let (name, value) = assignment
            .split_once('=')
            .with_context(|| format!("{assignment:?} is not NAME=VALUE"))?;
        let number = || {
            value
                .parse::<u64>()
                .with_context(|| format!("{name}={value} is no number"))
        };
        match name {
            "max_buffer_pages" => settings.max_buffer_pages = number()?,
            "buffer_squeeze_duration_ms" => settings.buffer_squeeze_duration_ms = number()?,
            "budget" => budget = Some(Bytes::from_str(value).with_context(|| assignment.to_string())?),
            _ => bail!("{name} cannot be set; max_buffer_pages, buffer_squeeze_duration_ms and budget can"),
        }
    }
    if let Some(budget) = budget {
        facts.pools.set_budget(budget)?;
    }
    facts.pools.configure(settings);
    Ok(())
}
