//! What a screen needs from the source, and the answer.

use thermo_agent::api::{Decision, Heatmap, Point, Policies, Targets, UnixMillis};

use crate::source::{Extent, Source, SourceError, TargetId};

/// An order to pause or resume a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseOrder {
    /// The policy.
    pub policy: String,
    /// True to pause, false to resume.
    pub pause: bool,
}

impl PauseOrder {
    /// The question to the user.
    #[must_use]
    pub fn question(&self) -> String {
        match self.pause {
            true => format!("Pause policy {}: it will act on no target. (y/n)", self.policy),
            false => format!("Resume policy {}: it will act again. (y/n)", self.policy),
        }
    }

    /// What was done.
    #[must_use]
    pub fn done_text(&self) -> String {
        let done = if self.pause { "paused" } else { "resumed" };
        format!("Policy {} is {done}.", self.policy)
    }
}

/// What a screen needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The moment; `None` is now.
    pub at: Option<UnixMillis>,
    /// The target of the detail screen.
    pub detail: Option<Extent>,
    /// An order that comes first.
    pub order: Option<PauseOrder>,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Targets and policies.
    pub list: Result<(Targets, Policies), SourceError>,
    /// The target, if one was asked for.
    pub detail: Option<Result<Detail, SourceError>>,
    /// The order, if there was one, and whether it was obeyed.
    pub order: Option<(PauseOrder, Result<(), SourceError>)>,
}

/// A target as the detail screen shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    /// The target.
    pub target: TargetId,
    /// Its decisions, the newest last.
    pub decisions: Vec<Decision>,
    /// Its heatmap, or why there is none.
    pub heatmap: Result<Heatmap, String>,
    /// Its sizes over the time of the heatmap.
    pub points: Vec<Point>,
}

/// Answers `request` from `source`.
pub fn answer(source: &mut dyn Source, request: Request) -> Answer {
    let Request { at, detail, order } = request;
    let order = order.map(|order| {
        let result = source.pause(&order.policy, order.pause);
        (order, result)
    });
    let list = source
        .targets(at)
        .and_then(|targets| Ok((targets, source.policies(at)?)));
    // Without the list there is nothing to ask a lost agent for.
    let detail = detail
        .filter(|_| list.is_ok())
        .map(|extent| read_detail(source, extent, at));
    Answer { list, detail, order }
}

/// A target without history still has decisions.
fn read_detail(
    source: &mut dyn Source,
    extent: Extent,
    at: Option<UnixMillis>,
) -> Result<Detail, SourceError> {
    let decisions = source.decisions(&extent.target, at)?.decisions;
    let heatmap = source.heatmap(&extent).map_err(|error| error.to_string());
    let points = source
        .history(&extent)
        .map(|series| series.points)
        .unwrap_or_default();
    Ok(Detail {
        target: extent.target,
        decisions,
        heatmap,
        points,
    })
}
