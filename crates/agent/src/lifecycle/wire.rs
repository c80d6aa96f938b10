//! The socket's protocol: each request is one JSON object on one line, each answer too.
//! docs/guide/lifecycle.md documents it.
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

/// Maximum length of a request in bytes, without the line end.
pub const MAX_LINE: usize = 4096;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Set the state of an application.
    Set {
        /// Name of the application.
        app: String,
        /// New state.
        state: State,
    },
    /// Get the status of all applications.
    Status,
    /// Get the decisions about an application.
    Why {
        /// Name of the application.
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

/// Why a line is not a valid request, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequest(String);

impl Request {
    /// Parses one line, without the line end.
    ///
    /// # Errors
    /// The line is not a valid request.
    pub fn parse(line: &[u8]) -> Result<Self, InvalidRequest> {
        let text: RequestText = serde_json::from_slice(line).map_err(|error| {
            InvalidRequest(format!(
                "invalid request: {error}. Send {{\"verb\":\"set\",\"app\":NAME,\"state\":STATE}}, \
                 {{\"verb\":\"status\"}} or {{\"verb\":\"why\",\"app\":NAME}} on one line"
            ))
        })?;
        Ok(match text {
            RequestText::Set { app, state } => {
                let state = state
                    .parse()
                    .map_err(|error| InvalidRequest(format!("{error}")))?;
                Self::Set { app, state }
            }
            RequestText::Status {} => Self::Status,
            RequestText::Why { app } => Self::Why { app },
        })
    }

    /// The request as a line, with the line end.
    #[must_use]
    pub fn to_line(&self) -> String {
        let value = match self {
            Self::Set { app, state } => json!({"verb": "set", "app": app, "state": state.name()}),
            Self::Status => json!({"verb": "status"}),
            Self::Why { app } => json!({"verb": "why", "app": app}),
        };
        format!("{value}\n")
    }
}

/// The answer to a successful request: `fields` with `"schema":1,"ok":true`.
#[must_use]
pub fn ok_answer(mut fields: Value) -> Value {
    if let Some(object) = fields.as_object_mut() {
        object.insert("schema".into(), 1.into());
        object.insert("ok".into(), true.into());
    }
    fields
}

/// The answer to an invalid or refused request, with the reason in a sentence.
#[must_use]
pub fn error_answer(error: &str) -> Value {
    json!({"schema": 1, "ok": false, "error": error})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn request_parses_its_own_line() {
        let app = "a \"b\"\n".to_owned();
        for request in [
            Request::Set {
                app: app.clone(),
                state: State::Perceptible,
            },
            Request::Status,
            Request::Why { app },
        ] {
            let line = request.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Request::parse(line.trim_end().as_bytes()).unwrap(), request);
        }
    }

    #[test]
    fn request_rejects_invalid_line() {
        for (line, expected) in [
            (&b""[..], "invalid request"),
            (b"hello", "invalid request"),
            (b"[1]", "invalid request"),
            (b"{\"verb\":\"kill\",\"app\":\"a\"}", "kill"),
            (b"{\"verb\":\"set\",\"app\":\"a\"}", "state"),
            (
                b"{\"verb\":\"set\",\"app\":\"a\",\"state\":\"dead\"}",
                "use foreground",
            ),
            (b"{\"verb\":\"set\",\"app\":7,\"state\":\"cached\"}", "string"),
            (b"{\"verb\":\"status\",\"more\":1}", "more"),
            (b"\xff\xfe", "invalid request"),
        ] {
            let error = Request::parse(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
