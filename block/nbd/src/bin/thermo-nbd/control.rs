//! The control socket. A client sends one line and receives one reply.
//!
//! Commands: `status`, `metrics`, `squeeze`, `set NAME=VALUE ...`. Every user who may open the socket may
//! send commands; the permissions of its folder control that. An error is reported as JSON with the key
//! `"error"`; nothing is changed then.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::json;
use thermo_kernel::unix_socket::{self, SocketPath};
use thermo_units::Bytes;

use crate::stats::ServerState;

/// Longest command line, in bytes.
const MAX_LINE: usize = 4096;
/// Timeout for a client to send its command, and for it to receive the reply.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Polling interval for new clients and for the end of the server.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A control socket that listens. Dropping it removes the socket.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: SocketPath,
}

impl ControlSocket {
    /// Listens at `path`.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn bind(path: &Path) -> anyhow::Result<Self> {
        let (listener, path) = unix_socket::bind(path)
            .and_then(|(listener, socket)| listener.set_nonblocking(true).map(|()| (listener, socket)))
            .with_context(|| format!("cannot listen at control socket {}", path.display()))?;
        Ok(Self { listener, path })
    }

    /// The folder of the socket.
    pub fn folder(&self) -> PathBuf {
        self.path.folder()
    }
}

/// A running control socket. Dropping it closes and removes the socket.
#[derive(Debug)]
pub struct Control {
    /// Removes the socket.
    _path: SocketPath,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Answers clients of `socket` in a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(socket: ControlSocket, state: Arc<ServerState>) -> anyhow::Result<Self> {
        let ControlSocket { listener, path } = socket;
        let stop = Arc::new(AtomicBool::new(false));
        let thread_stop = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("nbd-control".to_owned())
            .spawn(move || {
                while !thread_stop.load(Ordering::SeqCst) {
                    match listener.accept() {
                        // A client that disconnects early needs no reply.
                        Ok((stream, _)) => drop(exchange(stream, &state)),
                        Err(_) => std::thread::sleep(POLL_INTERVAL),
                    }
                }
            })?;
        Ok(Self {
            _path: path,
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
    }
}

fn exchange(stream: UnixStream, state: &ServerState) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let line = read_line(&stream, Instant::now() + TIMEOUT)?;
    let reply = match reply(line.trim(), state) {
        Ok(reply) => reply,
        Err(error) => json!({ "schema": 1, "error": format!("{error:#}") }).to_string(),
    };
    write_all(&stream, reply.as_bytes(), Instant::now() + TIMEOUT)
}

/// Reads a line of at most [`MAX_LINE`] bytes. The deadline is for the whole line: a client that sends a byte
/// at a time holds up others, and the end of the server, no longer than one that sends nothing.
fn read_line(mut stream: &UnixStream, deadline: Instant) -> io::Result<String> {
    let (mut line, mut bytes) = (Vec::new(), [0; 512]);
    while line.len() < MAX_LINE && !line.contains(&b'\n') {
        stream.set_read_timeout(Some(time_until(deadline)?))?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => line.extend_from_slice(&bytes[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let end = line.iter().position(|byte| *byte == b'\n');
    line.truncate(end.unwrap_or(MAX_LINE));
    String::from_utf8(line).map_err(io::Error::other)
}

fn write_all(mut stream: &UnixStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_until(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time until `deadline`, which is never zero.
fn time_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    Some(left)
        .filter(|left| !left.is_zero())
        .ok_or_else(|| io::ErrorKind::TimedOut.into())
}

fn reply(line: &str, state: &ServerState) -> anyhow::Result<String> {
    let mut tokens = line.split_whitespace();
    match (tokens.next(), tokens.collect::<Vec<_>>()) {
        (Some("status"), rest) if rest.is_empty() => Ok(state.json().to_string()),
        (Some("metrics"), rest) if rest.is_empty() => Ok(state.metrics()),
        (Some("squeeze"), rest) if rest.is_empty() => {
            let summary = state.bus.report_pressure("requested at the control socket");
            Ok(
                json!({ "schema": 1, "freed_bytes": summary.freed.0, "rate_limited": summary.rate_limited })
                    .to_string(),
            )
        }
        (Some("set"), settings) if !settings.is_empty() => {
            set(&settings, state)?;
            Ok(state.json().to_string())
        }
        _ => bail!("unknown command {line:?}. Use status, metrics, squeeze, or set NAME=VALUE"),
    }
}

// Applies all assignments or none.
fn set(assignments: &[&str], state: &ServerState) -> anyhow::Result<()> {
    let (mut settings, mut budget) = (state.pools.settings(), None);
    for assignment in assignments {
        let (name, value) = assignment
            .split_once('=')
            .with_context(|| format!("{assignment:?} is not NAME=VALUE"))?;
        let number = || {
            value
                .parse::<u64>()
                .with_context(|| format!("{name}={value} is not a number"))
        };
        match name {
            "max_buffer_pages" => settings.max_buffer_pages = number()?,
            "buffer_squeeze_duration_ms" => settings.buffer_squeeze_duration_ms = number()?,
            "budget" => budget = Some(Bytes::from_str(value).with_context(|| assignment.to_string())?),
            _ => bail!("{name} cannot be set. Use max_buffer_pages, buffer_squeeze_duration_ms or budget"),
        }
    }
    if let Some(budget) = budget {
        state.pools.set_budget(budget)?;
    }
    state.pools.configure(settings);
    Ok(())
}
