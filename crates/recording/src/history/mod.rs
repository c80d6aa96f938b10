//! The history of the agent: what its policies watched over days, in segments.
//!
//! `STATE/history/POLICY/START_UNIX_MS.arrow` is an ordinary recording: any reader of recordings opens it. A
//! policy has one [`SegmentWriter`], which begins a new segment each hour, at 32 MiB, after a step of the
//! wall clock, and at each start of the agent; a segment is never continued. Each repeats what is needed to
//! read it alone. After a crash the last segment is readable up to its last batch.
//!
//! `thinning` keeps one snapshot in ten seconds, and sums what was dropped. [`prune`] removes old segments.
//! [`History`] reads the segments of all policies as one stream of records on the wall clock, which reports
//! take like those of one recording.
//!
//! Nothing here has a thread or asks for the time: the caller passes it.

mod continuity;
mod error;
mod few_regions;
mod join;
mod limits;
mod living;
mod policy_stream;
mod prune;
mod query;
mod retention_clock;
mod segment_writer;
mod store;
mod target_ids;
mod target_name;
mod thinning;
mod until_begin;
mod wall_clock;

pub use error::HistoryError;
pub use limits::{Clocks, Retention, WriteLimits};
pub use prune::{Pruned, prune};
pub use query::{History, NamedTarget, Query, Records};
pub use retention_clock::RetentionClock;
pub use segment_writer::SegmentWriter;
pub use store::{Segment, folder, is_policy_name, segments};
