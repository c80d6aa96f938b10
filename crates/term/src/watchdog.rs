//! The watchdog of systemd: a daemon that sends no `WATCHDOG=1` for `WatchdogSec=` is restarted
//! (sd_watchdog_enabled(3)).

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use thermo_units::Nanos;

/// The watchdog of systemd cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach the watchdog of systemd at $NOTIFY_SOCKET ({path}): {source}")]
pub struct WatchdogError {
    path: String,
    source: io::Error,
}

/// A connection to the watchdog of systemd.
#[derive(Debug)]
pub struct Watchdog {
    socket: UnixDatagram,
    path: OsString,
    interval: Nanos,
    next: Nanos,
}

impl Watchdog {
    /// The watchdog that the environment asks for; `None` if it asks for none.
    ///
    /// # Errors
    /// The socket of systemd cannot be used.
    pub fn from_env() -> Result<Option<Self>, WatchdogError> {
        let number = |name: &str| std::env::var(name).ok()?.parse().ok();
        let pid: Option<u64> = number("WATCHDOG_PID");
        let (Some(timeout_us), Some(path)) = (number("WATCHDOG_USEC"), std::env::var_os("NOTIFY_SOCKET"))
        else {
            return Ok(None);
        };
        if pid.is_some_and(|pid| pid != u64::from(std::process::id())) {
            return Ok(None);
        }
        Self::new(path, timeout_us).map(Some)
    }

    /// Tells systemd that the daemon is ready (`READY=1`, sd_notify(3)), if it asks to be told.
    ///
    /// # Errors
    /// The socket of systemd cannot be used.
    pub fn notify_ready() -> Result<(), WatchdogError> {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
            return Ok(());
        };
        let socket = Self::new(path.clone(), 0)?.socket;
        let sent = socket.send(b"READY=1");
        sent.map(drop).map_err(|source| watchdog_error(&path, source))
    }

    fn new(path: OsString, timeout_us: u64) -> Result<Self, WatchdogError> {
        let connect = || {
            let address = match path.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
                _ => SocketAddr::from_pathname(&path)?,
            };
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        match connect() {
            // Half the timeout, as sd_watchdog_enabled(3) recommends.
            Ok(socket) => Ok(Self {
                socket,
                interval: Nanos(timeout_us.saturating_mul(1000) / 2),
                next: Nanos::ZERO,
                path,
            }),
            Err(source) => Err(watchdog_error(&path, source)),
        }
    }

    /// Time of the next message.
    #[must_use]
    pub const fn next(&self) -> Nanos {
        self.next
    }

    /// Reports that the daemon is alive, if the time for that has come.
    ///
    /// # Errors
    /// The message cannot be sent.
    pub fn notify(&mut self, now: Nanos) -> Result<(), WatchdogError> {
        if now < self.next {
            return Ok(());
        }
        match self.socket.send(b"WATCHDOG=1") {
            Ok(_) => self.next = now + self.interval,
            // systemd is busy: there is time for a second attempt.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.next = now + Nanos(self.interval.0 / 4);
            }
            Err(source) => return Err(watchdog_error(&self.path, source)),
        }
        Ok(())
    }
}

fn watchdog_error(path: &OsString, source: io::Error) -> WatchdogError {
    let path = path.display().to_string();
    WatchdogError { path, source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn count(systemd: &UnixDatagram) -> usize {
        let mut text = [0; 64];
        let messages = std::iter::from_fn(|| systemd.recv(&mut text).ok().map(|len| text[..len].to_vec()));
        messages.filter(|text| text == b"WATCHDOG=1").count()
    }

    #[test]
    fn watchdog_is_notified_twice_per_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let abstract_name = format!("@thermo-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&abstract_name[1..]).unwrap();
        for (name, address) in [
            (
                path.clone().into_os_string(),
                SocketAddr::from_pathname(&path).unwrap(),
            ),
            (abstract_name.into(), abstract_address),
        ] {
            let systemd = UnixDatagram::bind_addr(&address).unwrap();
            systemd.set_nonblocking(true).unwrap();
            let mut watchdog = Watchdog::new(name, 2_000_000).unwrap();
            for ms in (1000..=3000).step_by(100) {
                watchdog.notify(Nanos::millis(ms)).unwrap();
            }
            assert_eq!(count(&systemd), 3);
        }
    }

    #[test]
    fn watchdog_without_listener_is_an_error() {
        let error = Watchdog::new("/no/such/socket".into(), 1)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("/no/such/socket"), "{error}");
    }
}
