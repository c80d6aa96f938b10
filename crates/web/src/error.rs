//! Why the server cannot start, and why a request is refused.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use thermo_agent::api::Refusal;

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The UNIX socket cannot be made.
    #[error("cannot listen at {}: {source}", .path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The port cannot be used.
    #[error("cannot listen at {address}: {source}. Give another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// Others could reach the address, and nothing protects it.
    #[error(
        "{0} can be reached from other machines: give a certificate with its key and a file with a read token as \
         well, or listen at 127.0.0.1"
    )]
    Unprotected(SocketAddr),
    /// An inherited descriptor is no listening stream socket.
    #[error("an inherited descriptor is not a listening UNIX or TCP socket ({0}): check the .socket unit")]
    Inherited(io::Error),
    /// A token file cannot be used.
    #[error("cannot use the token file {}: {why}", .path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The reason, with the way out.
        why: String,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot use {} for TLS: {why}", .path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The thread or its event loop cannot be started.
    #[error("cannot start the thread of the HTTP server: {0}")]
    Thread(io::Error),
}

/// Why a request is refused: `{"error":"sentence"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::NotFound(_) => StatusCode::NOT_FOUND,
            Refusal::Invalid(_) => StatusCode::BAD_REQUEST,
            Refusal::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, refusal.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({"error": self.message}))).into_response();
        let (name, value) = match self.status {
            StatusCode::UNAUTHORIZED => (header::WWW_AUTHENTICATE, "Bearer"),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => (header::RETRY_AFTER, "1"),
            _ => return response,
        };
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
        response
    }
}
