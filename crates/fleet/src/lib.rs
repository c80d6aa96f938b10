//! Files of a fleet: what the targets of one machine hold, how idle it is, what policies saved and what
//! monitoring cost.
//!
//! A [`Row`] is one target over one interval. A file holds the rows of one node over one window, with
//! [`FileFacts`] as metadata. [`file_name`] depends only on cluster, node and window: an upload that is
//! repeated replaces the file, so each row counts once. The columns are declared once, in `columns`; the
//! writer, the reader and the schema follow from them.
//!
//! [`finished`] and [`remove`] are for the folder in which files wait. The rest of this crate opens no files
//! and reads no clock.

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

mod columns;
mod error;
mod facts;
mod folder;
mod name;
mod read;
mod row;
mod write;

pub use columns::message_type;
pub use error::FleetError;
pub use facts::{FileFacts, SCHEMA};
pub use folder::{Finished, finished, remove};
pub use name::{clean_name, file_name};
pub use read::read;
pub use row::{Mode, Row, RowKind};
pub use write::write;
