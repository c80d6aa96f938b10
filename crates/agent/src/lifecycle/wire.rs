//! What is said over the socket: one JSON object a line, each answered by one line. docs/guide/lifecycle.md documents it.
//!
//! ```
//! use thermo_agent::lifecycle::wire::Request;
//! use thermo_agent::lifecycle::State;
//!
//! let request = Request::parse(br#"{"verb":"set","app":"mail","state":"cached"}"#).unwrap();
//! assert_eq!(request, Request::Set { app: "mail".into(), state: State::Cached });
//! assert!(Request::parse(b"{}").unwrap_err().to_string().contains("verb"));
//! ```

use serde::Deserialize;
use serde_json::{Value, json};

use super::State;

/// The longest line that is read.
pub const LONGEST_LINE: usize = 4096;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// An application is in this state now.
    Set {
        /// Which.
        app: String,
        /// In which.
        state: State,
    },
    /// Where every application stands.
    Status,
    /// The decisions about an application.
    Why {
        /// Which.
        app: String,
    },
}

#[derive(Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase", deny_unknown_fields)]
enum RequestText {
    Set { app: String, state: String },
    Status {},
    Why { app: String },
}

/// Why a line is no request, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoRequest(String);

impl Request {
    /// Reads one line, without its end.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &[u8]) -> Result<Self, NoRequest> {
        let text: RequestText = serde_json::from_slice(line).map_err(|why| {
            NoRequest(format!(
                "this is no request: {why}. Send {{\"verb\":\"set\",\"app\":NAME,\"state\":STATE}}, \
                 {{\"verb\":\"status\"}} or {{\"verb\":\"why\",\"app\":NAME}} in one line"
            ))
        })?;
        Ok(match text {
            RequestText::Set { app, state } => {
                let state = state.parse().map_err(|why| NoRequest(format!("{why}")))?;
                Self::Set { app, state }
            }
            RequestText::Status {} => Self::Status,
            RequestText::Why { app } => Self::Why { app },
        })
    }

    /// The line for it, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        let value = match self {
            Self::Set { app, state } => json!({"verb": "set", "app": app, "state": state.name()}),
            Self::Status => json!({"verb": "status"}),
            Self::Why { app } => json!({"verb": "why", "app": app}),
        };
        format!("{value}\n")
    }
}

/// The answer to a request that was granted: `more` with `"schema":1,"ok":true`.
#[must_use]
pub fn granted(mut more: Value) -> Value {
    if let Some(object) = more.as_object_mut() {
        object.insert("schema".into(), 1.into());
        object.insert("ok".into(), true.into());
    }
    more
}

/// The answer to one that was not.
#[must_use]
pub fn refused(why: &str) -> Value {
    json!({"schema": 1, "ok": false, "error": why})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let app = "a \"b\"\n".to_owned();
        for request in [
            Request::Set {
                app: app.clone(),
                state: State::Perceptible,
            },
            Request::Status,
            Request::Why { app },
        ] {
            let line = request.line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Request::parse(line.trim_end().as_bytes()).unwrap(), request);
        }
    }

    #[test]
    fn what_is_no_request_is_told() {
        for (line, says) in [
            (&b""[..], "no request"),
            (b"hello", "no request"),
            (b"[1]", "no request"),
            (b"{\"verb\":\"kill\",\"app\":\"a\"}", "kill"),
            (b"{\"verb\":\"set\",\"app\":\"a\"}", "state"),
            (
                b"{\"verb\":\"set\",\"app\":\"a\",\"state\":\"dead\"}",
                "use foreground",
            ),
            (b"{\"verb\":\"set\",\"app\":7,\"state\":\"cached\"}", "string"),
            (b"{\"verb\":\"status\",\"more\":1}", "more"),
            (b"\xff\xfe", "no request"),
        ] {
            let told = Request::parse(line).unwrap_err().to_string();
            assert!(told.contains(says), "{told}");
        }
    }
}
