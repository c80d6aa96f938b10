//! Runs `thermo-nbd` as a child process and queries its control socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::last_line;
use crate::Error;

/// Timeout for the start of the server and for its replies.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval for checking whether the server accepts connections.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running server. Dropping it kills the server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    socket: PathBuf,
    control: PathBuf,
}

impl Server {
    /// Starts a server with its sockets in `folder` and moves it to the cgroups of `procs_files`.
    pub(super) fn start(
        program: &Path,
        folder: &Path,
        arguments: &[String],
        procs_files: &[PathBuf],
    ) -> Result<Self, Error> {
        let (socket, control) = (folder.join("socket"), folder.join("control"));
        let mut command = Command::new(program);
        command.arg("--unix").arg(&socket).arg("--control").arg(&control);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let log = std::fs::File::create(folder.join("log"))
            .map_err(|error| failed("create the server's log", &error))?;
        let child = command
            .stderr(log)
            .spawn()
            .map_err(|error| failed("start the server", &error))?;
        let mut server = Self {
            child,
            socket,
            control,
        };
        for file in procs_files {
            std::fs::write(file, server.child.id().to_string()).map_err(|error| {
                Error::Cgroup(format!("cannot move the server to {}: {error}", file.display()))
            })?;
        }
        server.wait_until_listening(folder)?;
        Ok(server)
    }

    fn wait_until_listening(&mut self, folder: &Path) -> Result<(), Error> {
        let deadline = Instant::now() + TIMEOUT;
        while !self.control.exists() || UnixStream::connect(&self.socket).is_err() {
            let ended = self.child.try_wait().ok().flatten().is_some();
            if ended || Instant::now() > deadline {
                let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                return Err(Error::Squeeze(format!(
                    "the server did not start: {}",
                    last_line(&log)
                )));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The server's status report.
    pub(super) fn status(&self) -> Result<serde_json::Value, Error> {
        self.request("status")
    }

    fn request(&self, request: &str) -> Result<serde_json::Value, Error> {
        let exchange = || {
            let mut stream = UnixStream::connect(&self.control)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.write_all(format!("{request}\n").as_bytes())?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            Ok::<_, std::io::Error>(reply)
        };
        let reply = exchange().map_err(|error| failed("query the server", &error))?;
        serde_json::from_str(&reply)
            .map_err(|error| Error::Squeeze(format!("the server's reply is no JSON: {error}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server has no state to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(operation: &str, error: &std::io::Error) -> Error {
    Error::Squeeze(format!("cannot {operation}: {error}"))
}
