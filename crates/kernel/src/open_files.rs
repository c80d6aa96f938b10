//! The limit of open files of this process (`RLIMIT_NOFILE`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit if it is below `needed`, to twice `needed` as far as the hard limit allows. Returns the
/// resulting limit.
#[must_use]
pub fn raise_limit(needed: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current else { return u64::MAX };
    let wanted = needed.saturating_mul(2).min(maximum.unwrap_or(u64::MAX));
    if soft >= needed || soft >= wanted {
        return soft;
    }
    let current = Some(wanted);
    match setrlimit(Resource::Nofile, Rlimit { current, maximum }) {
        Ok(()) => wanted,
        Err(_) => soft,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_raised_when_needed_and_never_lowered() {
        let before = raise_limit(0);
        assert_eq!(raise_limit(before), before, "the limit suffices");
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let more = raise_limit(before.saturating_add(1));
        assert!(more >= before && more <= hard, "{before} {more} {hard}");
        assert_eq!(more > before, hard > before, "{before} {more} {hard}");
        assert_eq!(raise_limit(u64::MAX), hard.max(more));
    }
}
