//! Whether to reclaim from an application now: the throttles and guards, in the order they are asked.

use thermo_actions::below_swap_floor;
use thermo_units::{Bytes, Nanos, Permille};

use super::{App, Facts, Made};
use crate::lifecycle::Profile;
use crate::lifecycle::decision::Kind;

/// What is decided, and what is to be thought about again and when.
pub(super) fn judge(
    name: &str,
    app: &App,
    profile: Profile,
    now: Nanos,
    facts: &mut dyn Facts,
) -> (Made, Option<(Profile, Nanos)>) {
    let skip = |reason: String| {
        (
            Made {
                kind: Kind::Skip,
                reason,
            },
            None,
        )
    };
    let Some(anon_rss) = facts.anon_rss(name) else {
        return skip("no process of it runs".to_owned());
    };
    let (profile, why) = match with_swap(profile, app.rules.swap_low, facts.swap()) {
        Ok(found) => found,
        Err(reason) => return skip(reason),
    };
    if let Some(reason) = not_worth_it(app, profile, anon_rss) {
        return skip(reason);
    }
    if let Some((reason, when)) = too_early(app, profile, now) {
        let kind = Kind::Defer(profile);
        return (Made { kind, reason }, Some((profile, when)));
    }
    let reason = why.unwrap_or_else(|| format!("it is {}, with {anon_rss} of anonymous memory", app.state));
    (
        Made {
            kind: Kind::Reclaim(profile),
            reason,
        },
        None,
    )
}

/// What can be done with the swap there is, and why it is another profile, if it is.
fn with_swap(
    profile: Profile,
    low: Permille,
    (free, total): (Bytes, Bytes),
) -> Result<(Profile, Option<String>), String> {
    if !profile.takes_swap() || !below_swap_floor(free, total, low) {
        return Ok((profile, None));
    }
    let short = if total == Bytes::ZERO {
        "there is no swap".to_owned()
    } else {
        format!("{free} of {total} swap are free, less than {low}")
    };
    match profile {
        Profile::Full => Ok((Profile::Some, Some(format!("{short}: some instead of full")))),
        _ => Err(format!("{short}, and anonymous memory has nowhere to go")),
    }
}

fn not_worth_it(app: &App, profile: Profile, anon_rss: Bytes) -> Option<String> {
    if !profile.takes_swap() {
        return None;
    }
    let least = app.rules.min_anon_rss;
    if anon_rss < least {
        return Some(format!(
            "it has {anon_rss} of anonymous memory, less than {least} (min_anon_rss)"
        ));
    }
    let after = app.anon_rss_after?;
    let change = Bytes(anon_rss.0.abs_diff(after.0));
    let least = app.rules.min_change;
    (change < least).then(|| {
        format!("its memory has changed by {change} since the last reclaim, less than {least} (min_change)")
    })
}

fn too_early(app: &App, profile: Profile, now: Nanos) -> Option<(String, Nanos)> {
    let (last, when) = app.last?;
    let interval = app.rules.throttle.between(last, profile);
    let next = when + interval;
    (now < next).then(|| {
        let ago = now.saturating_sub(when);
        let left = next.saturating_sub(now);
        let reason = format!("{last} was {ago} ago, less than {interval} before {profile}: again in {left}");
        (reason, next)
    })
}
