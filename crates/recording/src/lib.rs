//! Recordings of monitoring results and scheme actions: append-only, and readable up to the last complete
//! batch after a crash.
//!
//! A recording is one Arrow IPC stream: [`model::Metadata`] as JSON in the metadata of its schema, then
//! batches of rows. Each batch is compressed with zstd and written in one go. [`Recorder`] is the sink that
//! turns a context's events into records for a [`Writer`]. [`open`] reads the same [`model::Record`]s, one
//! batch in memory at a time; it also reads damo's JSON. [`export`] converts recordings to formats of other
//! tools.

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

mod damo;
mod decode;
mod encode;
mod error;
pub mod export;
mod frames;
pub mod history;
mod inflate;
mod layout;
mod lock;
pub mod model;
mod part;
mod reader;
mod recorder;
mod row;
mod tables;
mod writer;

pub use error::{ReadError, WriteError};
pub use lock::is_being_written;
pub use reader::{Recording, Truncated, open, read_all};
pub use recorder::Recorder;
pub use writer::{Writer, Written};
