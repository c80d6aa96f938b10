//! The other end of the socket: asks the daemon.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::wire::Request;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers there.
    #[error(
        "no life cycle daemon answers at {}: {source}. Start it with `thermo lifecycle run CONFIG`, or name its socket with --socket",
        .path.display()
    )]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It broke off.
    #[error("the life cycle daemon at {} did not answer: {source}", .path.display())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It said no.
    #[error("{0}")]
    Refused(String),
}

/// A connection to the daemon, for many requests.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Nobody answers there.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let connected = UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
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

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The daemon says no, or nothing.
    pub fn ask(&mut self, request: &Request) -> Result<Value, ClientError> {
        let answer = self
            .exchange(&request.line())
            .map_err(|source| ClientError::NoAnswer {
                path: self.path.clone(),
                source,
            })?;
        if answer["ok"] == true {
            return Ok(answer);
        }
        let why = answer["error"]
            .as_str()
            .unwrap_or("the daemon said no and not why");
        Err(ClientError::Refused(why.to_owned()))
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
