//! One id for a target over all segments.

use std::collections::BTreeMap;

use super::target_name::TargetName;

/// Gives ids. A process has the same id in all segments of its policy: it is known by its name and process
/// id. A target that has no name has an id of its own in each segment.
#[derive(Debug, Default)]
pub(super) struct TargetIds {
    /// Ids of the current segment.
    of_segment: BTreeMap<u32, u32>,
    known: BTreeMap<(String, Option<u32>), u32>,
    /// By id; `None` without a name.
    names: Vec<Option<String>>,
}

impl TargetIds {
    /// Ids of the next segment mean other targets.
    pub(super) fn begin_segment(&mut self) {
        self.of_segment.clear();
    }

    /// The target has a name. True if it is a new target.
    pub(super) fn name_target(&mut self, name: &TargetName) -> bool {
        let key = (name.name.clone(), name.pid);
        let known = self.known.get(&key).copied();
        let id = known.unwrap_or_else(|| self.add(Some(name.name.clone())));
        self.known.insert(key, id);
        self.of_segment.insert(name.id, id);
        known.is_none()
    }

    /// The id of a target of the current segment.
    pub(super) fn id(&mut self, of_segment: u32) -> u32 {
        if let Some(id) = self.of_segment.get(&of_segment) {
            return *id;
        }
        let id = self.add(None);
        self.of_segment.insert(of_segment, id);
        id
    }

    /// The name of the target with this id in the current segment.
    pub(super) fn name_of_segment(&self, of_segment: u32) -> Option<&str> {
        self.name(*self.of_segment.get(&of_segment)?)
    }

    pub(super) fn name(&self, id: u32) -> Option<&str> {
        let index = usize::try_from(id).ok()?;
        self.names.get(index)?.as_deref()
    }

    /// All names, ascending, each once.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let all: std::collections::BTreeSet<&str> = self.names.iter().flatten().map(String::as_str).collect();
        all.into_iter()
    }

    fn add(&mut self, name: Option<String>) -> u32 {
        let id = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name);
        id
    }
}
