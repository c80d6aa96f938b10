//! A recording: read once, kept by time.
//!
//! A target is a process of the recording, or all that one policy has under one name.

mod reader;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use thermo_agent::api::{
    Decision, Decisions, Heatmap, HeatmapRow, Policies, Policy, SCHEMA, Series, Targets, UnixMillis,
};
use thermo_recording::history::{NamedTarget, Records};
use thermo_recording::model::Metadata;
use thermo_recording::{ReadError, open};
use thermo_report::heatmap::Heatmap as Map;

use self::reader::{Reader, process_ids, unix_ms};
use super::frames::Frames;
use super::{Extent, Facts, Source, SourceError, TargetId};

/// A recording has no policies; its targets belong to this one.
const POLICY: &str = "recording";

/// A recording.
pub struct RecordingSource {
    title: String,
    metadata: Metadata,
    frames: Frames,
    map: Map,
    /// The target of each process of the recording.
    ids: BTreeMap<u32, TargetId>,
    decisions: Vec<Decision>,
}

impl RecordingSource {
    /// Reads the recording at `path`. A truncated recording is read as far as it goes.
    ///
    /// # Errors
    /// Those of [`open`] and of its records.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let mut recording = open(path)?;
        let mut reader = Reader::new(recording.metadata.clone());
        for record in recording.by_ref() {
            reader.add(&record?);
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let ids = process_ids(&reader.metadata, &reader.processes);
        Ok(reader.finish(format!("replay of {name}"), ids))
    }

    /// Reads a part of the agent's history, all of `records`.
    pub fn read_history(records: &mut Records) -> Self {
        let mut reader = Reader::new(records.metadata.clone());
        for record in records.by_ref() {
            reader.add(&record);
        }
        let id = |number: &u32| {
            let NamedTarget { policy, name } = records.target(*number)?;
            Some((*number, TargetId { policy, name }))
        };
        let ids = reader.processes.keys().filter_map(id).collect();
        reader.finish("replay of the history".to_owned(), ids)
    }

    /// Whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.at(None).is_none()
    }

    /// Why there is no data, as a sentence; for a source that is empty.
    #[must_use]
    pub fn no_data(&self) -> String {
        self.map.basis.no_data()
    }

    /// The policy, as far as a recording knows it.
    fn policy(&self, name: &str) -> Policy {
        let mut policy = Policy {
            name: name.to_owned(),
            ..Policy::default()
        };
        // The metadata of a history are those of one policy.
        if name == POLICY {
            policy.matches.clone_from(&self.metadata.targets);
            policy.does.clone_from(&self.metadata.schemes);
        }
        policy
    }

    /// The numbers of the processes of each target.
    fn processes(&self) -> BTreeMap<&TargetId, Vec<u32>> {
        let mut processes: BTreeMap<&TargetId, Vec<u32>> = BTreeMap::new();
        for (number, id) in &self.ids {
            processes.entry(id).or_default().push(*number);
        }
        processes
    }

    /// The numbers of the processes of `target`.
    fn numbers(&self, target: &TargetId) -> Result<Vec<u32>, SourceError> {
        let missing = || SourceError::Refused(format!("the recording has no target {:?}", target.name));
        self.processes().remove(target).ok_or_else(missing)
    }
}

impl Source for RecordingSource {
    fn facts(&self) -> Facts {
        Facts {
            title: self.title.clone(),
            times_ms: self.frames.times_ms(),
            is_agent: false,
        }
    }

    fn targets(&mut self, at: Option<UnixMillis>) -> Result<Targets, SourceError> {
        let frame = self.frames.at(at);
        let target = |(id, numbers): (&TargetId, Vec<u32>)| Some(frame?.sum(&numbers)?.target(id));
        Ok(Targets {
            schema: SCHEMA,
            time_ms: frame.map_or(0, |frame| frame.time_ms),
            targets: self.processes().into_iter().filter_map(target).collect(),
        })
    }

    fn policies(&mut self, at: Option<UnixMillis>) -> Result<Policies, SourceError> {
        let targets = self.targets(at)?.targets;
        let mut policies: BTreeMap<&str, Policy> = BTreeMap::new();
        for target in &targets {
            let policy = policies
                .entry(&target.policy)
                .or_insert_with(|| self.policy(&target.policy));
            policy.targets += 1;
            policy.processes += target.pids.len() as u64;
        }
        Ok(Policies {
            schema: SCHEMA,
            policies: policies.into_values().collect(),
        })
    }

    fn decisions(&mut self, _target: &TargetId, at: Option<UnixMillis>) -> Result<Decisions, SourceError> {
        let until = at.unwrap_or(UnixMillis::MAX);
        let end = self
            .decisions
            .partition_point(|decision| decision.time_ms <= until);
        // As many as an agent keeps in memory for a target.
        let newest = &self.decisions[end.saturating_sub(256)..end];
        Ok(Decisions {
            schema: SCHEMA,
            decisions: newest.to_vec(),
        })
    }

    fn history(&mut self, extent: &Extent) -> Result<Series, SourceError> {
        let points = self.frames.points(&self.numbers(&extent.target)?, extent.columns);
        Ok(Series {
            schema: SCHEMA,
            points,
        })
    }

    fn heatmap(&mut self, extent: &Extent) -> Result<Heatmap, SourceError> {
        let numbers = self.numbers(&extent.target)?;
        let columns = extent.columns.min(self.map.columns);
        let time = |column: usize| {
            let first = column * self.map.columns / columns;
            unix_ms(
                &self.metadata,
                self.map
                    .start_ns
                    .saturating_add(first as u64 * self.map.column_ns),
            )
        };
        let rows = self.map.fitted_targets(&numbers, columns, extent.rows);
        Ok(Heatmap {
            schema: SCHEMA,
            times_ms: (0..columns).map(time).collect(),
            rows: rows.into_iter().map(HeatmapRow::from).collect(),
        })
    }

    fn pause(&mut self, _policy: &str, _paused: bool) -> Result<(), SourceError> {
        Err(SourceError::Refused("a recording cannot be paused".to_owned()))
    }
}
