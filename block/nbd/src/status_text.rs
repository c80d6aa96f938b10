//! Replies of the control socket, and their text for people. The server writes them as JSON.

use serde_json::Value;
use thermo_units::Bytes;

/// Why a reply has no status.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// It cannot be parsed.
    #[error("the reply is not JSON")]
    NotJson(#[source] serde_json::Error),
    /// The server refused the command.
    #[error("{0}")]
    Refused(String),
}

/// Parses the reply of a server.
///
/// # Errors
/// It is not JSON, or the server refused the command.
pub fn parse_reply(reply: &str) -> Result<Value, ReplyError> {
    let status: Value = serde_json::from_str(reply).map_err(ReplyError::NotJson)?;
    match status["error"].as_str() {
        Some(error) => Err(ReplyError::Refused(error.to_owned())),
        None => Ok(status),
    }
}

/// The memory that a squeeze released, as text.
#[must_use]
pub fn released(status: &Value) -> String {
    format!("{} released", bytes(status, "freed_bytes"))
}

/// A number with its noun: `1 client`, `2 clients`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

fn field(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or_default()
}

fn bytes(status: &Value, name: &str) -> Bytes {
    Bytes(field(status, name))
}

/// The whole status, as text.
#[must_use]
pub fn whole(status: &Value) -> String {
    let failed = status["failed_exports"].as_array().into_iter().flatten();
    let failed: String = failed
        .filter_map(Value::as_str)
        .map(|name| format!("export {name:?} lost acknowledged writes: every flush fails until the server starts again. Check its storage\n"))
        .collect();
    format!(
        "{failed}connected: {}, {}; accepted {}, refused {}, connection errors {}\nrequests {}, read {}, written {}\n{}",
        counted(field(status, "connections"), "client"),
        counted(field(status, "vhost_clients"), "virtual machine"),
        field(status, "accepted"),
        field(status, "refused"),
        field(status, "connection_errors"),
        field(status, "requests"),
        bytes(status, "read_bytes"),
        bytes(status, "written_bytes"),
        memory(status)
    )
}

/// The part about memory, as text.
#[must_use]
pub fn memory(status: &Value) -> String {
    format!(
        "buffers use {} of {}, peak {}; {} waits for memory\nmax_buffer_pages {}, buffer_squeeze_duration_ms {}",
        bytes(status, "used_bytes"),
        bytes(status, "budget_bytes"),
        bytes(status, "peak_bytes"),
        field(status, "waits_for_memory"),
        field(status, "max_buffer_pages"),
        field(status, "buffer_squeeze_duration_ms")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noun_follows_its_number() {
        assert_eq!(
            [0, 1, 2].map(|number| counted(number, "client")),
            ["0 clients", "1 client", "2 clients"]
        );
    }
}
