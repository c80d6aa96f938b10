//! Errors of the daemon.

use std::io;
use std::path::PathBuf;

use thermo_term::watchdog::WatchdogError;

use crate::lifecycle::config::ConfigError;

/// Why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another daemon uses the socket.
    #[error("a life cycle daemon already runs at {}: stop it, or choose another socket with --socket", .0.display())]
    AlreadyRunning(PathBuf),
    /// The socket cannot be created.
    #[error("cannot create the socket {}: {source}", .path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A thread has panicked; the panic was printed. Without it the daemon would look healthy and do nothing.
    #[error(
        "the thread {0:?} of the life cycle daemon has panicked (see the message above): start the daemon again, \
         and report the message as a bug"
    )]
    ThreadPanicked(String),
    /// The watchdog of systemd cannot be reached.
    #[error(transparent)]
    Watchdog(#[from] WatchdogError),
    /// A thread or file descriptor cannot be created.
    #[error("cannot start the life cycle daemon: {0}")]
    System(#[from] io::Error),
}
