//! Removes old segments.

use std::fs;
use std::io;
use std::path::Path;

use thermo_units::Nanos;

use super::error::HistoryError;
use super::limits::Retention;
use super::store::{Segment, segments};
use crate::lock::is_being_written;

/// What [`prune`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Segments removed.
    pub removed: u64,
    /// Bytes of these.
    pub removed_bytes: u64,
    /// Bytes of the segments that remain.
    pub kept_bytes: u64,
}

/// Removes segments below `state_dir` that are too old at `now` (of a [`RetentionClock`](super::RetentionClock)), then the oldest ones of all
/// policies until the rest is small enough, and empty files. A segment that is being written stays.
///
/// # Errors
/// A folder cannot be read, or a segment cannot be removed; the other segments were pruned then.
pub fn prune(state_dir: &Path, retention: &Retention, now: Nanos) -> Result<Pruned, HistoryError> {
    let all = segments(state_dir)?;
    let mut kept_bytes: u64 = all.iter().map(|segment| segment.bytes).sum();
    let (mut pruned, mut first_error) = (Pruned::default(), None);
    for (index, segment) in all.iter().enumerate() {
        let is_due = segment.bytes == 0
            || kept_bytes > retention.max_bytes.0
            || now.saturating_sub(end(segment, all.iter().skip(index + 1))) > retention.max_age;
        if !is_due || is_being_written(&segment.path) {
            continue;
        }
        match remove(segment) {
            Ok(()) => {
                kept_bytes -= segment.bytes;
                pruned.removed += 1;
                pruned.removed_bytes += segment.bytes;
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    pruned.kept_bytes = kept_bytes;
    first_error.map_or(Ok(pruned), Err)
}

/// When `segment` ended at the latest: where the next one of its policy begins. The last one counts from its
/// start. `later` are the segments after it.
fn end<'a>(segment: &Segment, mut later: impl Iterator<Item = &'a Segment>) -> Nanos {
    later
        .find(|other| other.policy == segment.policy)
        .map_or(segment.start, |next| next.start)
}

fn remove(segment: &Segment) -> Result<(), HistoryError> {
    match fs::remove_file(&segment.path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(HistoryError::Remove {
            path: segment.path.clone(),
            source,
        }),
        _ => Ok(()),
    }
}
