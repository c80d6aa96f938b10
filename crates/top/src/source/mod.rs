//! Where the figures come from: a running agent, or a recording.
//!
//! Both answer with the types of the agent's API, so that the model and the view know no difference but the
//! moment that is asked for.

mod agent;
mod frames;
mod recording;

pub use agent::Agent;
pub use recording::RecordingSource;

use thermo_agent::api::{Decisions, Heatmap, Policies, Series, Targets, UnixMillis};

/// Why a source gave no answer: one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The agent does not answer. It may come back.
    #[error("{0}")]
    Lost(String),
    /// The request was refused.
    #[error("{0}")]
    Refused(String),
}

/// The name of a target: names are unique within a policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TargetId {
    /// The policy.
    pub policy: String,
    /// The target.
    pub name: String,
}

/// What a heatmap or a series has to cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The target.
    pub target: TargetId,
    /// Maximum number of columns or points.
    pub columns: usize,
    /// Maximum number of rows of a heatmap.
    pub rows: usize,
}

/// What a source knows. What it does not know is shown as `-`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The source as text: `agent at /run/thermo/agent.sock` or `replay of thermo.arrow`.
    pub title: String,
    /// The moments that can be shown, ascending; empty for a running agent.
    pub times_ms: Vec<UnixMillis>,
    /// Whether this is a running agent: modes, net savings and refaults are known, and policies can be paused
    /// and resumed.
    pub is_agent: bool,
}

/// A source of figures. `at` is the moment; `None` is now.
pub trait Source: Send {
    /// What the source knows. Does not change.
    fn facts(&self) -> Facts;

    /// The targets.
    ///
    /// # Errors
    /// The source does not answer.
    fn targets(&mut self, at: Option<UnixMillis>) -> Result<Targets, SourceError>;

    /// The policies.
    ///
    /// # Errors
    /// The source does not answer.
    fn policies(&mut self, at: Option<UnixMillis>) -> Result<Policies, SourceError>;

    /// The decisions about a target, the newest last.
    ///
    /// # Errors
    /// The source does not answer, or does not know the target.
    fn decisions(&mut self, target: &TargetId, at: Option<UnixMillis>) -> Result<Decisions, SourceError>;

    /// The sizes of a target over time: the last hour of an agent, all of a recording.
    ///
    /// # Errors
    /// The source does not answer, or does not know the target.
    fn history(&mut self, extent: &Extent) -> Result<Series, SourceError>;

    /// The heatmap of a target, over the same time as [`Source::history`].
    ///
    /// # Errors
    /// The source does not answer, or does not know the target.
    fn heatmap(&mut self, extent: &Extent) -> Result<Heatmap, SourceError>;

    /// Pauses or resumes a policy.
    ///
    /// # Errors
    /// The source does not answer or refuses.
    fn pause(&mut self, policy: &str, paused: bool) -> Result<(), SourceError>;
}
