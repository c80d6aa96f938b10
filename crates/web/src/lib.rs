//! The agent over HTTP, for programs and people: JSON API, metrics, live stream and dashboard.
//!
//! [`Server`] serves a [`Service`](thermo_agent::api::Service); it knows nothing else of the agent.
//! [`client::Client`] asks a running server. The routes are in `routes`, who may use them in `auth`, and what
//! protects the server from its clients in `guard` and `limits`. docs/reference/api.md is the reference.

// Answers whoever connects: an index that could panic or a cast that could lose bits is an error here
// (CONTRIBUTING.md, Style).
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::string_slice))]

pub mod assets;
mod auth;
pub mod client;
mod connection;
mod encoded;
mod error;
mod guard;
mod limits;
mod listen;
pub mod metrics;
mod outbox;
mod routes;
mod server;

pub use self::error::WebError;
pub use self::routes::openapi;
pub use self::server::{Server, ServerConfig, TlsFiles};
