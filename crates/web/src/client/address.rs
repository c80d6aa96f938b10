//! Where an agent listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of an agent: `/run/thermo/agent.sock`, or `http://127.0.0.1:9797`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A UNIX socket.
    Unix(PathBuf),
    /// A TCP port without TLS.
    Http {
        /// Name or IP address.
        host: String,
        /// Port.
        port: u16,
    },
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address of an agent: give the path of its socket, or http://127.0.0.1:PORT")]
pub struct InvalidAddress(String);

impl Address {
    /// The value of the `Host` header.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Unix(_) => "localhost".to_owned(),
            Self::Http { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Http { host, port } => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(formatter),
            Self::Http { .. } => write!(formatter, "http://{}", self.host()),
        }
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress(text.to_owned());
        let Some(authority) = text.strip_prefix("http://") else {
            if text.is_empty() || text.contains("://") {
                return Err(invalid());
            }
            return Ok(Self::Unix(text.into()));
        };
        let (host, port) = authority
            .trim_end_matches('/')
            .rsplit_once(':')
            .ok_or_else(invalid)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().map_err(|_| invalid())?;
        if host.is_empty() || host.contains('/') {
            return Err(invalid());
        }
        Ok(Self::Http {
            host: host.to_owned(),
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn address_prints_what_it_parses() {
        for text in [
            "/run/thermo/agent.sock",
            "http://127.0.0.1:9797",
            "http://[::1]:80",
            "s",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn address_rejects_what_no_agent_has() {
        for text in [
            "",
            "https://localhost:1",
            "http://localhost",
            "http://:80",
            "http://h:99999",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("127.0.0.1:PORT"), "{error}");
        }
    }
}
