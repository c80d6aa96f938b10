//! The protocol (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>) as functions of bytes: no
//! sockets, no files, no threads, so that every answer can be tested, and fuzzed, by itself.
//!
//! * [`handshake`]: options until an export is chosen;
//! * [`option`]: how options and their answers are framed;
//! * [`request`]: what a client asks, and why not;
//! * [`reply`]: simple and structured answers.

pub mod handshake;
pub mod option;
pub mod reply;
pub mod request;
