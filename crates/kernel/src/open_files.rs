//! How many files this process may have open (`RLIMIT_NOFILE`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes room for `needed` open files where fewer may be open, and for as many again, as far as the hard limit allows.
/// Returns how many may be open then.
#[must_use]
pub fn make_room(needed: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(now) = current else { return u64::MAX };
    let wanted = needed.saturating_mul(2).min(maximum.unwrap_or(u64::MAX));
    if now >= needed || now >= wanted {
        return now;
    }
    let current = Some(wanted);
    match setrlimit(Resource::Nofile, Rlimit { current, maximum }) {
        Ok(()) => wanted,
        Err(_) => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_where_there_is_none_and_never_taken() {
        let before = make_room(0);
        assert_eq!(make_room(before), before, "there is enough");
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let more = make_room(before.saturating_add(1));
        assert!(more >= before && more <= hard, "{before} {more} {hard}");
        assert_eq!(more > before, hard > before, "{before} {more} {hard}");
        assert_eq!(make_room(u64::MAX), hard.max(more));
    }
}
