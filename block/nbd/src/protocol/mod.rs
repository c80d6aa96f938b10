//! The NBD protocol (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>) as functions of
//! bytes: no sockets, files or threads, so that every reply can be tested and fuzzed in isolation.
//!
//! * [`handshake`]: options until an export is chosen;
//! * [`option`]: encoding of options and their replies;
//! * [`request`]: parsing and validation of requests;
//! * [`reply`]: simple and structured replies.

pub mod handshake;
pub mod option;
pub mod reply;
pub mod request;
