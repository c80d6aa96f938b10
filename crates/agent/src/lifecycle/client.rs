//! Client of the daemon's socket.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::wire::Request;

/// Timeout of a read from and a write to the socket.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Connecting to the socket failed.
    #[error(
        "cannot connect to the life cycle daemon at {}: {source}. Start it with `thermo lifecycle run CONFIG`, or give its socket with --socket",
        .path.display()
    )]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The connection failed before the answer was complete.
    #[error("the life cycle daemon at {} did not answer: {source}", .path.display())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon refused the request, for this reason.
    #[error("{0}")]
    Refused(String),
}

/// A connection to the daemon. It can be used for many requests.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Client {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`] if the connection cannot be made.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let connected = UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Ok(stream)
        });
        let path = path.to_owned();
        match connected {
            Ok(stream) => Ok(Self {
                stream: BufReader::new(stream),
                path,
            }),
            Err(source) => Err(ClientError::NoDaemon { path, source }),
        }
    }

    /// Sends `request` and waits for the answer.
    ///
    /// # Errors
    /// The daemon refuses the request, or does not answer within 30 s.
    pub fn ask(&mut self, request: &Request) -> Result<Value, ClientError> {
        let answer = self
            .exchange(&request.to_line())
            .map_err(|source| ClientError::NoAnswer {
                path: self.path.clone(),
                source,
            })?;
        if answer.get("ok").is_some_and(|ok| ok == true) {
            return Ok(answer);
        }
        let reason = answer
            .get("error")
            .and_then(Value::as_str)
            .unwrap_or("the daemon refused the request without a reason");
        Err(ClientError::Refused(reason.to_owned()))
    }

    fn exchange(&mut self, line: &str) -> io::Result<Value> {
        self.stream.get_mut().write_all(line.as_bytes())?;
        let mut answer = String::new();
        if self.stream.read_line(&mut answer)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    }
}
