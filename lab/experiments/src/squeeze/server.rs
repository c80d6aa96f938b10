//! `thermo-nbd` as a process of its own, asked over its control socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::last_words;
use crate::Error;

/// A server that does not come up in this time never will.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// A running server; ended when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    socket: PathBuf,
    control: PathBuf,
}

impl Server {
    /// Starts one below `folder` with `arguments`, in the group whose doors are given.
    pub(super) fn start(
        program: &Path,
        folder: &Path,
        arguments: &[String],
        doors: &[PathBuf],
    ) -> Result<Self, Error> {
        let (socket, control) = (folder.join("socket"), folder.join("control"));
        let mut command = Command::new(program);
        command.arg("--unix").arg(&socket).arg("--control").arg(&control);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let log = std::fs::File::create(folder.join("log"))
            .map_err(|error| wrong("make the server's log", &error))?;
        let child = command
            .stderr(log)
            .spawn()
            .map_err(|error| wrong("start the server", &error))?;
        let mut server = Self {
            child,
            socket,
            control,
        };
        for door in doors {
            std::fs::write(door, server.child.id().to_string()).map_err(|error| {
                Error::Group(format!("cannot move the server to {}: {error}", door.display()))
            })?;
        }
        server.wait_until_it_listens(folder)?;
        Ok(server)
    }

    fn wait_until_it_listens(&mut self, folder: &Path) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        while !self.control.exists() || UnixStream::connect(&self.socket).is_err() {
            let ended = self.child.try_wait().ok().flatten().is_some();
            if ended || Instant::now() > deadline {
                let said = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                return Err(Error::Squeeze(format!(
                    "the server does not come up: {}",
                    last_words(&said)
                )));
            }
            sleep(LOOK);
        }
        Ok(())
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What it does, as it tells.
    pub(super) fn status(&self) -> Result<serde_json::Value, Error> {
        self.ask("status")
    }

    fn ask(&self, question: &str) -> Result<serde_json::Value, Error> {
        let converse = || {
            let mut stream = UnixStream::connect(&self.control)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(format!("{question}\n").as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = converse().map_err(|error| wrong("ask the server", &error))?;
        serde_json::from_str(&answer)
            .map_err(|error| Error::Squeeze(format!("the server's answer is no JSON: {error}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing that would have to be kept.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wrong(what: &str, error: &std::io::Error) -> Error {
    Error::Squeeze(format!("cannot {what}: {error}"))
}
