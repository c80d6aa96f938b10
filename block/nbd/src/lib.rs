//! A block server that speaks NBD (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>), and
//! vhost-user-blk with virtual machines, and whose buffers come from [`thermo_pool`]: many exports, one byte budget,
//! backpressure instead of the OOM killer, memory back under pressure.
//!
//! * [`protocol`] is the protocol as functions of bytes: no sockets, no files.
//! * [`Export`] is a file, a block device or sparse memory under a name.
//! * [`Server`] accepts clients on Unix and TCP sockets, serves all with a few workers, and ends gracefully.
//! * [`Encryption`] is TLS with certificates.
//! * [`Listen::VhostUser`] is an export as the disk of a virtual machine, with buffers of the same budget.
//!
//! Of the protocol: fixed newstyle negotiation (`EXPORT_NAME`, `INFO`, `GO`, `LIST`, `ABORT`, `STARTTLS`), simple and
//! structured replies, `base:allocation`, read, write, flush, trim, write zeroes, cache, FUA, and several connections
//! to one export with a flush that covers all of them. A request of any length is done in pieces of [`CHUNK`], so no
//! client can make the server allocate more.

mod client;
mod export;
pub mod protocol;
mod server;
mod tls;
mod vhost;
mod wire;
mod worker;

pub use client::read_job::CHUNK;
pub use export::{Export, ExportError};
pub use server::{Limits, Listen, Server, ServerError, Status};
pub use tls::{Encryption, TlsError};
