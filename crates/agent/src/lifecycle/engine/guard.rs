//! Whether to reclaim from an application now. Order of the checks: processes, swap, amount of memory,
//! interval.

use thermo_actions::below_swap_floor;
use thermo_units::{Bytes, Nanos, Permille};

use super::{App, MemoryInfo, Verdict};
use crate::lifecycle::Profile;
use crate::lifecycle::decision::DecisionKind;

/// Returns the verdict and, if the reclaim is deferred, its profile and when to decide again.
pub(super) fn evaluate(
    name: &str,
    app: &App,
    profile: Profile,
    now: Nanos,
    memory: &mut dyn MemoryInfo,
) -> (Verdict, Option<(Profile, Nanos)>) {
    let skip = |reason: String| {
        (
            Verdict {
                kind: DecisionKind::Skip,
                reason,
            },
            None,
        )
    };
    let Some(anon_rss) = memory.anon_rss(name) else {
        return skip("no process of the application runs".to_owned());
    };
    let (profile, replaced) = match fit_to_swap(profile, app.rules.swap_low, memory.swap()) {
        Ok(fitting) => fitting,
        Err(reason) => return skip(reason),
    };
    if let Some(reason) = too_little_to_reclaim(app, profile, anon_rss) {
        return skip(reason);
    }
    if let Some((reason, when)) = too_early(app, profile, now) {
        let kind = DecisionKind::Defer(profile);
        return (Verdict { kind, reason }, Some((profile, when)));
    }
    let reason = replaced.unwrap_or_else(|| {
        format!(
            "the application is {} and has {anon_rss} of anonymous memory",
            app.state
        )
    });
    (
        Verdict {
            kind: DecisionKind::Reclaim(profile),
            reason,
        },
        None,
    )
}

/// The profile that free swap allows, with a reason if it replaces `profile`.
///
/// # Errors
/// No profile is possible, with the reason.
fn fit_to_swap(
    profile: Profile,
    low: Permille,
    (free, total): (Bytes, Bytes),
) -> Result<(Profile, Option<String>), String> {
    if !profile.needs_swap() || !below_swap_floor(free, total, low) {
        return Ok((profile, None));
    }
    let reason = if total == Bytes::ZERO {
        "there is no swap".to_owned()
    } else {
        format!("{free} of {total} swap are free, less than {low} (swap_low)")
    };
    match profile {
        Profile::Full => Ok((
            Profile::Some,
            Some(format!("{reason}: profile some instead of full")),
        )),
        _ => Err(format!("{reason}: anonymous memory cannot be paged out")),
    }
}

fn too_little_to_reclaim(app: &App, profile: Profile, anon_rss: Bytes) -> Option<String> {
    if !profile.needs_swap() {
        return None;
    }
    let min = app.rules.min_anon_rss;
    if anon_rss < min {
        return Some(format!(
            "the application has {anon_rss} of anonymous memory, less than {min} (min_anon_rss)"
        ));
    }
    let after = app.anon_rss_after?;
    let change = Bytes(anon_rss.0.abs_diff(after.0));
    let min = app.rules.min_change;
    (change < min).then(|| {
        format!("anonymous memory changed by {change} since the last reclaim, less than {min} (min_change)")
    })
}

fn too_early(app: &App, profile: Profile, now: Nanos) -> Option<(String, Nanos)> {
    let (last, when) = app.last_reclaim?;
    let interval = app.rules.min_intervals.between(last, profile);
    let next = when + interval;
    (now < next).then(|| {
        let ago = now.saturating_sub(when);
        let remaining = next.saturating_sub(now);
        let reason = format!(
            "the last reclaim ({last}) ended {ago} ago; {profile} may follow after {interval}: retry in {remaining}"
        );
        (reason, next)
    })
}
