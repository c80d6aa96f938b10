//! A block server for NBD (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>) and
//! vhost-user-blk. Its buffers come from [`thermo_pool`]: many exports share one byte budget. When the budget
//! is used up, clients wait; under memory pressure, free buffers are released.
//!
//! * [`protocol`]: the NBD protocol as functions of bytes, without sockets or files.
//! * [`Export`]: a named file, block device or sparse memory.
//! * [`ExportSpec`]: the definition of an export as text.
//! * [`Sockets`]: open sockets, before the server starts.
//! * [`Server`]: accepts clients on Unix and TCP sockets, serves all with a few workers, and shuts down
//!   gracefully.
//! * [`Encryption`]: TLS with certificates.
//! * [`Listen::VhostUser`]: an export as the disk of a virtual machine, with buffers of the same budget.
//!
//! Supported NBD features: fixed newstyle negotiation (`EXPORT_NAME`, `INFO`, `GO`, `LIST`, `ABORT`,
//! `STARTTLS`), simple and structured replies, `base:allocation`, read, write, flush, trim, write zeroes,
//! cache, FUA, and several connections to one export, where a flush covers all connections. Requests of any
//! length are processed in chunks of [`CHUNK_SIZE`], so no client can make the server allocate more.

mod client;
mod export;
#[doc(hidden)]
pub mod fuzzing;
mod lock;
pub mod protocol;
mod server;
pub mod status_text;
mod tls;
mod vhost;
mod wire;
mod worker;

pub use client::read_job::CHUNK_SIZE;
pub use export::spec::{ExportSpec, OptionError};
pub use export::{Export, ExportError};
pub use server::{Limits, Listen, Server, ServerError, Sockets, Status};
pub use tls::{Encryption, TlsError};
