//! Which part of a history is read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thermo_units::Nanos;

use super::error::HistoryError;
use super::join::Join;
use super::policy_stream::PolicyStream;
use super::store::{self, Segment};
use crate::model::{Metadata, Record};

/// A history on disk.
#[derive(Debug, Clone)]
pub struct History {
    state_dir: PathBuf,
}

/// A part of a history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Only this policy.
    pub policy: Option<String>,
    /// Only targets of this name.
    pub target: Option<String>,
    /// Only what was later than this, in Unix time.
    pub from: Option<Nanos>,
    /// Only what was earlier than this.
    pub to: Option<Nanos>,
    /// Without the regions of targets that have access tables: totals come from these, and are read faster
    /// without regions.
    pub totals_only: bool,
}

/// A target of a history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedTarget {
    /// The policy.
    pub policy: String,
    /// The name.
    pub name: String,
}

/// The records of a part of a history, in order. Times are Unix times in nanoseconds. A target has one id in
/// all segments: its processes are told apart by policy, name and process id.
pub struct Records {
    /// Metadata of the first segment, with the times of the whole.
    pub metadata: Metadata,
    join: Join,
}

impl History {
    /// The history below `state_dir`.
    ///
    /// # Errors
    /// There is none, or its folder cannot be read.
    pub fn open(state_dir: &Path) -> Result<Self, HistoryError> {
        if store::segments(state_dir)?.is_empty() {
            return Err(HistoryError::Missing {
                path: state_dir.to_owned(),
            });
        }
        Ok(Self {
            state_dir: state_dir.to_owned(),
        })
    }

    /// The policies that have a history, by name.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn policies(&self) -> Result<Vec<String>, HistoryError> {
        let all = store::segments(&self.state_dir)?;
        let names: BTreeSet<String> = all.into_iter().map(|segment| segment.policy).collect();
        Ok(names.into_iter().collect())
    }

    /// The segments that may have records of `query`, the oldest first.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn segments(&self, query: &Query) -> Result<Vec<Segment>, HistoryError> {
        let mut all = store::segments(&self.state_dir)?;
        all.retain(|segment| {
            query
                .policy
                .as_ref()
                .is_none_or(|policy| *policy == segment.policy)
        });
        let begins_after = |segment: &Segment| query.to.is_some_and(|to| segment.start > to);
        let ends_before = |index: usize, segment: &Segment| {
            let mut later = all.iter().skip(index + 1);
            let next = later.find(|other| other.policy == segment.policy);
            next.zip(query.from).is_some_and(|(next, from)| next.start < from)
        };
        let wanted: Vec<bool> = all
            .iter()
            .enumerate()
            .map(|(index, segment)| !begins_after(segment) && !ends_before(index, segment))
            .collect();
        let kept = all.into_iter().zip(wanted);
        Ok(kept
            .filter_map(|(segment, wanted)| wanted.then_some(segment))
            .collect())
    }

    /// The records of `query`.
    ///
    /// # Errors
    /// A folder cannot be read. Segments that cannot be read are skipped: [`Records::warnings`].
    pub fn records(&self, query: &Query) -> Result<Records, HistoryError> {
        let segments = self.segments(query)?;
        let policies: BTreeSet<&str> = segments.iter().map(|segment| segment.policy.as_str()).collect();
        let of = |policy: &str| {
            let own = segments.iter().filter(|segment| segment.policy == policy);
            PolicyStream::new(own.cloned().collect(), query.clone())
        };
        let streams: Vec<PolicyStream> = policies.into_iter().map(of).collect();
        let metadata = metadata(&segments, query);
        Ok(Records {
            metadata,
            join: Join::new(streams),
        })
    }
}

impl Records {
    /// The targets that were found, known after all records were read: those of the policies and times of
    /// the query, whatever their names.
    #[must_use]
    pub fn targets(&self) -> Vec<NamedTarget> {
        self.join.targets()
    }

    /// Segments that could not be read, or not to their end, as sentences; known after all records were
    /// read.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.join.warnings()
    }

    /// What is known of the target with this id of the records.
    #[must_use]
    pub fn target(&self, id: u32) -> Option<NamedTarget> {
        self.join.target(id)
    }
}

impl Iterator for Records {
    type Item = Record;

    /// The next record. Errors of segments are warnings: [`Records::warnings`].
    fn next(&mut self) -> Option<Record> {
        self.join.next()
    }
}

/// Metadata of the whole: that of the first readable segment, on the wall clock.
fn metadata(segments: &[Segment], query: &Query) -> Metadata {
    let readable = segments
        .iter()
        .find_map(|segment| Some((segment.start, crate::open(&segment.path).ok()?.metadata)));
    let (start, metadata) = readable.unwrap_or_default();
    let targets = match (&query.target, &query.policy) {
        (Some(target), _) => target.clone(),
        (None, Some(policy)) => format!("policy {policy}"),
        (None, None) => "all policies".to_owned(),
    };
    Metadata {
        targets,
        start_ns: start.max(query.from.unwrap_or_default()).0,
        wall_clock_offset_ns: Some(0),
        ..metadata
    }
}
