//! A block server that speaks NBD (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>) and whose
//! buffers come from [`thermo_pool`]: many exports, one byte budget, memory back under pressure.
//!
//! * [`handshake`] and [`request`] are the protocol as functions of bytes: no sockets, no files.
//! * [`Export`] is a file or block device under a name.
//! * [`Server`] accepts clients on Unix and TCP sockets, a thread for each, and ends gracefully.
//!
//! Of the protocol: fixed newstyle negotiation (`EXPORT_NAME`, `INFO`, `GO`, `LIST`, `ABORT`), simple replies, read,
//! write, flush, trim, write zeroes, FUA, and several connections to one export with a flush that covers all of
//! them. A request of any length is done in pieces of [`CHUNK`], so no client can make the server allocate more.
//! Structured replies and TLS are not offered; clients that ask are told so and go on without.

mod connection;
mod export;
pub mod handshake;
pub mod request;
mod server;
mod stream;

pub use connection::CHUNK;
pub use export::{Export, ExportError};
pub use server::{Limits, Listen, Server, ServerError, Status};
