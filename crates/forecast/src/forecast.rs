//! The result: what each scheme file would have saved and cost.

use serde::Serialize;
use thermo_engine::scheme::{Quota, SchemeState};
use thermo_report::Basis;
use thermo_units::{Bytes, Nanos};

use crate::machine::Detail;
use crate::policy::Policy;
use crate::replay::{Facts, Replay, compressed_shares};
use crate::timeline::{Interval, Sums, Timeline};

/// Schema version of the JSON.
pub const SCHEMA: u32 = 1;

/// Points over time in the JSON and in charts.
const MAX_POINTS: usize = 240;

/// A recording with a larger share of unknown memory prints a warning.
const MUCH_UNKNOWN: f64 = 0.05;

/// What each scheme file would have saved and cost while the recording was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Seconds from the start of the first snapshot to the end of the last.
    pub monitored_s: f64,
    /// Mean resident bytes of the targets; `None` without tables.
    pub resident_bytes: Option<u64>,
    /// Mean bytes accessed within a minute before a snapshot; `None` without tables, or if the recording is
    /// shorter.
    pub working_set_bytes: Option<u64>,
    /// Assumed size of compressed memory as a share of its size: low, mid, high.
    pub compressed_share: [f64; 3],
    /// True if the user gave the compressed size.
    pub compressed_size_is_given: bool,
    /// The fields of a file that are bounds only, because schemes paged out memory while the recording was
    /// made.
    pub censored: Vec<&'static str>,
    /// Seconds at the begin that do not count: the longest age for which a scheme waits. The same for all
    /// files, so that their figures can be compared.
    pub warm_up_s: f64,
    /// One entry for each file, in the given order.
    pub files: Vec<FileForecast>,
    /// The data behind the forecast.
    pub basis: Basis,
}

/// What one scheme file would have saved and cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileForecast {
    /// The file.
    pub file: String,
    /// Why the figures are `None`: a sentence.
    pub cannot_tell: Option<String>,
    /// Mean bytes that have left memory, after the warm-up.
    pub leaves_bytes: Option<u64>,
    /// Most bytes that have left.
    pub leaves_max_bytes: Option<u64>,
    /// Bytes that have left at the end.
    pub leaves_end_bytes: Option<u64>,
    /// Mean bytes that have left, less their compressed size.
    pub net_saved_bytes: Option<Interval>,
    /// Bytes refaulted per minute, after the warm-up.
    pub refault_bytes_per_min: Option<Interval>,
    /// Bytes refaulted per minute as a share of the working set.
    pub refault_share_of_working_set_per_min: Option<f64>,
    /// Share of quota windows that were used up, of the scheme with the largest; `None` without quota.
    pub quota_used_up_share: Option<f64>,
    /// What the figures are computed from: `ages` of pages, or recorded `regions`.
    pub detail: &'static str,
    /// Each scheme.
    pub schemes: Vec<SchemeForecast>,
    /// Memory that has left and refaults over time, warm-up included.
    pub over_time: Vec<OverTime>,
    /// Sentences about what could not be replayed.
    pub warnings: Vec<String>,
}

/// What one scheme of a file would have done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SchemeForecast {
    /// Index in the file, from 0.
    pub index: usize,
    /// The action.
    pub action: &'static str,
    /// Bytes tried; memory counts each time it matches.
    pub sz_tried: u64,
    /// Bytes that the action was applied to.
    pub sz_applied: u64,
    /// Quota windows that were used up.
    pub qt_exceeds: u64,
    /// Share of quota windows that were used up; `None` without quota.
    pub quota_used_up_share: Option<f64>,
    /// Share of the time for which watermarks deactivated the scheme.
    pub inactive_share: f64,
}

/// A part of the replayed time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OverTime {
    /// End of the part, in seconds from the first snapshot.
    pub time_s: f64,
    /// Mean bytes that have left.
    pub out_bytes: u64,
    /// Bytes refaulted in this part.
    pub refault_bytes: u64,
}

impl Forecast {
    pub(crate) fn new(replay: Replay) -> Self {
        let Replay {
            policies,
            assumptions,
            mut facts,
            ..
        } = replay;
        warn_of_recording(&mut facts);
        let shares = compressed_shares(assumptions.compressed);
        let answered = policies
            .iter()
            .filter(|policy| cannot_tell(policy, &facts).is_none());
        let warm_up = answered
            .filter_map(|policy| policy.warm_up(facts.aggr))
            .map(|(age, _)| age)
            .max()
            .unwrap_or(Nanos::ZERO);
        let file = |policy| file_forecast(policy, &facts, warm_up, shares);
        let files = policies.iter().map(file).collect();
        let censored = ["leaves_bytes", "net_saved_bytes", "refault_bytes_per_min"];
        Self {
            schema: SCHEMA,
            monitored_s: facts.basis.span().as_secs_f64(),
            resident_bytes: facts.resident.mean(),
            working_set_bytes: facts.working_set(),
            compressed_share: shares,
            compressed_size_is_given: assumptions.compressed.is_some(),
            censored: if facts.paged_out() > 0 {
                censored.to_vec()
            } else {
                Vec::new()
            },
            warm_up_s: warm_up.as_secs_f64(),
            files,
            basis: facts.basis,
        }
    }

    /// True if no file has figures.
    #[must_use]
    pub fn has_no_answer(&self) -> bool {
        self.files.iter().all(|file| file.cannot_tell.is_some())
    }
}

/// Adds warnings about the recording: memory whose accesses are not in it.
fn warn_of_recording(facts: &mut Facts) {
    let paged_out = Bytes(facts.paged_out());
    if paged_out > Bytes::ZERO {
        facts.basis.warn(&format!(
            "schemes paged out {paged_out} while the recording was made. How this memory would have been used \
             otherwise is not known: memory that leaves, net saved and refaults are censored, the true values are \
             these or higher."
        ));
    } else if facts.swap > 0 {
        facts.basis.warn(&format!(
            "up to {} of the targets were in swap already: the figures are about resident memory.",
            Bytes(facts.swap)
        ));
    }
    let unknown = facts.unknown.mean().unwrap_or(0);
    if unknown as f64 > MUCH_UNKNOWN * facts.resident.mean().unwrap_or(0) as f64 {
        facts.basis.warn(&format!(
            "the idle age of {} is unknown: no scheme pages it out.",
            Bytes(unknown)
        ));
    }
}

fn file_forecast(policy: &Policy, facts: &Facts, warm_up: Nanos, shares: [f64; 3]) -> FileForecast {
    let cannot_tell = cannot_tell(policy, facts);
    let known = cannot_tell.is_none();
    let timeline = &policy.timeline;
    let total = timeline.total(warm_up);
    let refaults = estimate_refaults(timeline, warm_up);
    let schemes: Vec<SchemeForecast> = (0..policy.states.len())
        .map(|index| scheme_forecast(policy, index, facts.basis.span()))
        .collect();
    let working_set = facts.working_set().filter(|bytes| known && *bytes > 0);
    FileForecast {
        file: policy.name.clone(),
        leaves_bytes: known.then(|| total.mean_out().round() as u64),
        leaves_max_bytes: known.then_some(total.max_out.max(timeline.at_end())),
        leaves_end_bytes: known.then(|| timeline.at_end()),
        net_saved_bytes: known.then(|| estimate_net_saved(timeline, warm_up, shares)),
        refault_bytes_per_min: known.then_some(refaults),
        refault_share_of_working_set_per_min: working_set.map(|bytes| refaults.mid as f64 / bytes as f64),
        quota_used_up_share: schemes
            .iter()
            .filter_map(|scheme| scheme.quota_used_up_share)
            .max_by(f64::total_cmp),
        detail: match policy.detail {
            Some(Detail::Regions) => "regions",
            _ => "ages",
        },
        schemes,
        over_time: over_time(timeline),
        warnings: warnings(policy),
        cannot_tell,
    }
}

/// Why the recording has no answer for `policy`.
fn cannot_tell(policy: &Policy, facts: &Facts) -> Option<String> {
    if facts.basis.snapshots == 0 {
        return Some(facts.basis.no_data().trim_end_matches('.').to_owned());
    }
    let (age, index) = policy.warm_up(facts.aggr)?;
    let (covered, needed) = (facts.basis.span(), age * 2);
    (covered < needed).then(|| {
        format!(
            "cannot tell: the recording covers {covered}, and scheme {index} waits for an age of {age}: record at \
             least {needed}"
        )
    })
}

fn estimate_net_saved(timeline: &Timeline, warm_up: Nanos, [small, mid, large]: [f64; 3]) -> Interval {
    let worst = |sums: &Sums| sums.net_saved(large);
    let mid = |sums: &Sums| sums.net_saved(mid);
    let best = |sums: &Sums| sums.net_saved(small);
    timeline.estimate(warm_up, [&worst, &mid, &best])
}

fn estimate_refaults(timeline: &Timeline, warm_up: Nanos) -> Interval {
    timeline.estimate(warm_up, [&Sums::refaults_per_minute; 3])
}

fn scheme_forecast(policy: &Policy, index: usize, span: Nanos) -> SchemeForecast {
    let state: &SchemeState = &policy.states[index];
    let (quota, stats) = (&state.scheme().quota, state.stats());
    let windows = (span.0 / quota.reset_interval.0.max(1)).max(1);
    let used_up = (stats.qt_exceeds as f64 / windows as f64).min(1.0);
    SchemeForecast {
        index,
        action: state.scheme().action.name(),
        sz_tried: stats.sz_tried.0,
        sz_applied: stats.sz_applied.0,
        qt_exceeds: stats.qt_exceeds,
        quota_used_up_share: has_quota(quota).then_some(used_up),
        inactive_share: policy.inactive[index].as_secs_f64() / span.as_secs_f64().max(f64::MIN_POSITIVE),
    }
}

fn has_quota(quota: &Quota) -> bool {
    quota.time > Nanos::ZERO || quota.sz > Bytes::ZERO || quota.goals.iter().any(|goal| goal.target() > 0)
}

fn over_time(timeline: &Timeline) -> Vec<OverTime> {
    let point = |(time_s, sums): (f64, Sums)| OverTime {
        time_s,
        out_bytes: sums.mean_out().round() as u64,
        refault_bytes: sums.refaults.round() as u64,
    };
    timeline.course(MAX_POINTS).into_iter().map(point).collect()
}

fn warnings(policy: &Policy) -> Vec<String> {
    let mut warnings = policy.warnings.0.clone();
    let about_regions = match (policy.detail, policy.needs_regions()) {
        (Some(Detail::Regions), true) => Some(
            "a scheme tests addresses or sizes of regions, so recorded regions are replayed, which average over unlike \
             memory: pages that the live engine would find may be missing",
        ),
        (Some(Detail::Regions), false) => Some(
            "the recording was sampled, so recorded regions are replayed: ages and refaults are estimates",
        ),
        _ => None,
    };
    warnings.extend(about_regions.map(str::to_owned));
    warnings
}
