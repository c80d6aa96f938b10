//! The NBD protocol (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>) as functions of
//! bytes: no sockets, files or threads, so that every reply can be tested and fuzzed in isolation.
//!
//! * [`handshake`]: options until an export is chosen;
//! * [`option`]: encoding of options and their replies;
//! * [`request`]: parsing and validation of requests;
//! * [`reply`]: simple and structured replies.

// Reads what others wrote: an index that could panic or a cast that could lose bits is an error here
// (CONTRIBUTING.md, Style).
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod handshake;
pub mod option;
pub mod reply;
pub mod request;
