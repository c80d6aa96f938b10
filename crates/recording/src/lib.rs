//! Recordings: what was seen and done, append-only, readable up to the last whole batch after a crash.
//!
//! A recording is one Arrow IPC stream: [`model::Metadata`] as JSON in the metadata of its schema, then batches
//! of rows, each compressed with zstd and written whole. [`Recorder`] listens to a context and fills a
//! [`Writer`]; [`open`] gives back the same [`model::Record`]s, one batch in memory at a time, and reads damo's
//! JSON as well. [`export`] turns either into what other tools read. What the numbers mean is not decided here.

mod damo;
mod decode;
mod encode;
mod error;
pub mod export;
mod frames;
mod layout;
pub mod model;
mod reader;
mod recorder;
mod row;
mod tables;
mod writer;

pub use error::{ReadError, WriteError};
pub use reader::{Recording, Truncated, open, read_all};
pub use recorder::Recorder;
pub use writer::{Writer, Written};
