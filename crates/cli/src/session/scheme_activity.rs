//! Messages about schemes while they run: when and why a scheme rests or acts again, once per change, and a
//! line a minute of what it did.
//!
//! A change is printed at the next tick of the session (1 s), but at most three of one scheme in 30 s: guards
//! may change their mind with every application. After that, the state at that time counts.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use thermo_actions::RefaultMeter;
use thermo_engine::ops::Skip;
use thermo_engine::scheme::{Age, Rate, SchemeStats};
use thermo_engine::{Event, Scheme};
use thermo_kernel::meminfo;
use thermo_units::{Bytes, Nanos, Permille};

use crate::action_words::verified_effect;
use crate::args::Limits;

/// At most so many changes of one scheme are printed ...
const MAX_CHANGES: usize = 3;
/// ... within this time.
const CHANGES_WITHIN: Nanos = Nanos::secs(30);
/// A quota must be used up for this long before it is a change.
const QUOTA_PAUSE: Nanos = Nanos::secs(10);
/// Time between two lines of what a scheme did.
const MINUTE: Nanos = Nanos::secs(60);
/// Number of reasons for skipped bytes in the line of a minute: those with most bytes.
const NR_REASONS: usize = 3;

/// What a scheme does at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not applied yet.
    Starting,
    /// Nothing has matched its access pattern so far.
    NothingMatches,
    /// It acts on memory.
    Acting,
    /// It acts, and uses up its quota in every window.
    QuotaUsedUp,
    /// Watermarks deactivated it at this much free memory, in thousandths.
    Inactive(u64),
    /// A guard of paging out stopped it.
    Stopped(Skip),
}

/// What one scheme did, and what was printed about it.
#[derive(Debug)]
struct SchemeState {
    scheme: Scheme,
    /// How messages name the scheme.
    label: String,
    state: State,
    printed: State,
    /// When the last changes were printed.
    printed_at: VecDeque<Nanos>,
    /// Whether the scheme was printed as acting before.
    has_acted: bool,
    /// Free memory in thousandths when watermarks activated the scheme; taken by the next message.
    activated_at: Option<u64>,
    stats: SchemeStats,
    at_minute: SchemeStats,
    skipped_in_minute: BTreeMap<Skip, Bytes>,
    /// False if watermarks kept the scheme inactive in the whole minute.
    was_active: bool,
    /// Since when every window used up its quota, and the last time it did.
    quota_used_up: Option<(Nanos, Nanos)>,
}

/// The messages of all schemes of a session.
#[derive(Debug)]
pub struct SchemeActivity {
    schemes: Vec<SchemeState>,
    limits: Limits,
    refaults: RefaultMeter,
    minute_began: Option<Nanos>,
}

impl SchemeActivity {
    /// Messages about `schemes`, which act within `limits`. `refaults`: the last check of the refault guard.
    pub fn new(schemes: &[Scheme], limits: Limits, refaults: RefaultMeter) -> Self {
        let label = |nth: usize, scheme: &Scheme| match schemes {
            [_] => scheme.action.name().to_owned(),
            _ => format!("scheme {nth} ({})", scheme.action),
        };
        let new = |(nth, scheme): (usize, &Scheme)| SchemeState::new(scheme, label(nth, scheme));
        Self {
            schemes: schemes.iter().enumerate().map(new).collect(),
            limits,
            refaults,
            minute_began: None,
        }
    }

    /// Takes an event of the context.
    pub fn on(&mut self, event: &Event<'_>) {
        match event {
            Event::SchemeActive {
                scheme,
                active,
                metric,
                ..
            } => {
                if let Some(scheme) = self.schemes.get_mut(*scheme) {
                    scheme.set_active(*active, *metric);
                }
            }
            Event::SchemeApplied {
                now,
                scheme,
                skipped,
                stats,
                ..
            } => {
                if let Some(scheme) = self.schemes.get_mut(*scheme) {
                    scheme.applied(*now, skipped, stats);
                }
            }
            _ => {}
        }
    }

    /// The messages that are due at `now`.
    pub fn tick(&mut self, now: Nanos) -> Vec<String> {
        let mut messages = Vec::new();
        let (limits, refaults) = (&self.limits, &self.refaults);
        for scheme in &mut self.schemes {
            messages.extend(scheme.take_change(now, &|state| guard_text(state, limits, refaults)));
        }
        let began = *self.minute_began.get_or_insert(now);
        if now.saturating_sub(began) >= MINUTE {
            self.minute_began = Some(now);
            let check = self
                .refaults
                .last()
                .filter(|check| check.when >= began && check.paged_out > Bytes::ZERO);
            let refaulted = check.map(|check| format!("; refaulted {} of {}", check.back, check.paged_out));
            let lines = self.schemes.iter_mut();
            messages
                .extend(lines.filter_map(|scheme| scheme.take_minute(limits.dry_run, refaulted.as_deref())));
        }
        messages
    }
}

impl SchemeState {
    fn new(scheme: &Scheme, label: String) -> Self {
        Self {
            scheme: scheme.clone(),
            label,
            state: State::Starting,
            printed: State::Starting,
            printed_at: VecDeque::new(),
            has_acted: false,
            activated_at: None,
            stats: SchemeStats::default(),
            at_minute: SchemeStats::default(),
            skipped_in_minute: BTreeMap::new(),
            was_active: false,
            quota_used_up: None,
        }
    }

    fn set_active(&mut self, active: bool, free: u64) {
        self.activated_at = active.then_some(free);
        self.state = match active {
            true => State::Acting,
            false => State::Inactive(free),
        };
    }

    fn applied(&mut self, now: Nanos, skipped: &[(Skip, Bytes)], stats: &SchemeStats) {
        self.was_active = true;
        let before = std::mem::replace(&mut self.stats, *stats);
        for (why, bytes) in skipped {
            let sum = self.skipped_in_minute.entry(*why).or_default();
            *sum = Bytes(sum.0.saturating_add(bytes.0));
        }
        self.note_quota(now, stats.qt_exceeds > before.qt_exceeds);
        let applied = stats.sz_applied.saturating_sub(before.sz_applied);
        let guard = skipped
            .iter()
            .filter(|(why, bytes)| is_guard(*why) && *bytes > applied)
            .max_by_key(|(_, bytes)| *bytes);
        self.state = match guard {
            Some((why, _)) => State::Stopped(*why),
            None if stats.nr_tried == 0 => State::NothingMatches,
            // Windows without quota select nothing, and neither do snapshots where nothing matches.
            None if stats.nr_tried == before.nr_tried && matches!(self.state, State::Stopped(_)) => {
                self.state
            }
            None if self.lacks_quota() => State::QuotaUsedUp,
            None => State::Acting,
        };
    }

    /// Long enough to be no accident: some windows of the quota.
    fn quota_pause(&self) -> Nanos {
        let windows = self.scheme.quota.reset_interval.0.saturating_mul(2);
        QUOTA_PAUSE.max(Nanos(windows))
    }

    fn note_quota(&mut self, now: Nanos, used_up: bool) {
        let pause = self.quota_pause();
        let known = self
            .quota_used_up
            .filter(|(_, last)| now.saturating_sub(*last) < pause);
        self.quota_used_up = match used_up {
            true => Some((known.map_or(now, |(since, _)| since), now)),
            false => known,
        };
    }

    fn lacks_quota(&self) -> bool {
        let pause = self.quota_pause();
        self.quota_used_up
            .is_some_and(|(since, last)| last.saturating_sub(since) >= pause)
    }

    /// The message about a change that was not printed yet.
    fn take_change(&mut self, now: Nanos, guard_text: &dyn Fn(Skip) -> String) -> Option<String> {
        if self.state == self.printed || !self.may_print(now) {
            return None;
        }
        let (label, free) = (&self.label, self.activated_at.take());
        let text = match self.state {
            State::Starting => return None,
            State::NothingMatches => format!("{label} waits: nothing matches yet{}", self.age_text()),
            State::Acting => {
                let again = if self.has_acted { " again" } else { "" };
                let free = free.map_or_else(String::new, |free| {
                    format!(": {} of memory is free", permille(free))
                });
                format!("{label} acts{again}{free}")
            }
            State::QuotaUsedUp => format!(
                "{label} uses up its quota in every window{}: more memory matches",
                self.quota_text()
            ),
            State::Inactive(free) => format!("{label} rests: {}", self.watermark_text(free)),
            State::Stopped(why) => format!("{label} rests: {}", guard_text(why)),
        };
        self.has_acted |= matches!(self.state, State::Acting | State::QuotaUsedUp);
        self.printed = self.state;
        self.printed_at.push_back(now);
        Some(text)
    }

    fn may_print(&mut self, now: Nanos) -> bool {
        self.printed_at
            .retain(|at| now.saturating_sub(*at) < CHANGES_WITHIN);
        self.printed_at.len() < MAX_CHANGES
    }

    fn age_text(&self) -> String {
        let pattern = &self.scheme.pattern;
        let is_idle = matches!(
            pattern.nr_accesses.max,
            Rate::Permille(Permille(0)) | Rate::Samples(0)
        );
        match pattern.age.min {
            Age::Time(age) if age > Nanos::ZERO && is_idle => format!(" (memory must be idle for {age})"),
            Age::Time(age) if age > Nanos::ZERO => {
                format!(" (memory must match its access pattern for {age})")
            }
            _ => String::new(),
        }
    }

    fn watermark_text(&self, free: u64) -> String {
        let marks = &self.scheme.watermarks;
        let text = if free < u64::from(marks.low.0) {
            format!(
                "less than {} (low watermark): the kernel reclaims by itself",
                marks.low
            )
        } else {
            format!("and it starts below {} (mid watermark)", marks.mid)
        };
        format!("{} of memory is free, {text}", permille(free))
    }

    fn quota_text(&self) -> String {
        let quota = &self.scheme.quota;
        let sz = (quota.sz > Bytes::ZERO).then(|| quota.sz.to_string());
        let time = (quota.time > Nanos::ZERO).then(|| format!("{} of CPU time", quota.time));
        let limits: Vec<String> = sz.into_iter().chain(time).collect();
        match limits.is_empty() {
            true => format!(" of {}", quota.reset_interval),
            false => format!(" of {} ({})", quota.reset_interval, limits.join(", ")),
        }
    }

    /// What the scheme did since the last call; `None` if it was inactive.
    fn take_minute(&mut self, dry_run: bool, refaulted: Option<&str>) -> Option<String> {
        let skipped = std::mem::take(&mut self.skipped_in_minute);
        let was_active = std::mem::take(&mut self.was_active);
        let before = std::mem::replace(&mut self.at_minute, self.stats);
        if !was_active {
            return None;
        }
        let change = |now: Bytes, before: Bytes| now.saturating_sub(before);
        let tried = change(self.stats.sz_tried, before.sz_tried);
        let label = &self.label;
        if tried == Bytes::ZERO {
            return Some(format!("{label}: nothing matched in the last minute"));
        }
        let did = match verified_effect(self.scheme.action) {
            _ if dry_run => "nothing done (dry run)".to_owned(),
            Some(effect) => format!("{} {effect}", change(self.stats.sz_changed, before.sz_changed)),
            None => format!("applied to {}", change(self.stats.sz_applied, before.sz_applied)),
        };
        let is_pageout = self.scheme.action == thermo_engine::Action::Pageout;
        let refaulted = refaulted.filter(|_| is_pageout).unwrap_or_default();
        let windows = self.stats.qt_exceeds.saturating_sub(before.qt_exceeds);
        let quota = match windows {
            0 => String::new(),
            windows => format!("; quota used up in {windows} windows"),
        };
        let skipped = skipped_text(skipped);
        Some(format!(
            "{label}: in the last minute {did} of {tried} tried{refaulted}{skipped}{quota}"
        ))
    }
}

const fn is_guard(why: Skip) -> bool {
    matches!(why, Skip::SwapFloor | Skip::Refaults | Skip::Incompressible)
}

/// Why a guard stopped paging out, with the figures of now.
fn guard_text(why: Skip, limits: &Limits, refaults: &RefaultMeter) -> String {
    match why {
        Skip::SwapFloor => match meminfo::read(Path::new("/")) {
            Ok(info) => swap_text(info.swap_free, info.swap_total, limits.swap_floor),
            Err(error) => format!("free swap cannot be read: {error}"),
        },
        // The actor gives the figures of each target in a warning.
        Skip::Incompressible => format!(
            "what it would page out does not compress, so less than {} would be saved (--min-net)",
            limits.min_net
        ),
        _ => {
            let found = refaults.last().map_or_else(String::new, |check| {
                format!(
                    "{} of {} paged out in the last minute is resident again, ",
                    check.back, check.paged_out
                )
            });
            format!("{found}more than {} (--max-refaults)", limits.max_refaults)
        }
    }
}

fn swap_text(free: Bytes, total: Bytes, floor: Permille) -> String {
    if total == Bytes::ZERO {
        return "there is no swap for anonymous memory: add swap, for example zram".to_owned();
    }
    let share = u64::try_from(u128::from(free.0) * 1000 / u128::from(total.0)).unwrap_or(u64::MAX);
    format!(
        "{} of swap is free ({free} of {total}), less than {floor} (--swap-floor)",
        permille(share)
    )
}

fn permille(share: u64) -> Permille {
    Permille(u32::try_from(share).unwrap_or(u32::MAX))
}

/// The reasons with most bytes.
fn skipped_text(skipped: BTreeMap<Skip, Bytes>) -> String {
    let mut all: Vec<(Skip, Bytes)> = skipped.into_iter().collect();
    all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let texts: Vec<String> = all
        .iter()
        .take(NR_REASONS)
        .map(|(why, bytes)| format!("{bytes} {why}"))
        .collect();
    match texts.is_empty() {
        true => String::new(),
        false => format!("; skipped: {}", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_actions::preset;

    struct Session {
        activity: SchemeActivity,
        stats: SchemeStats,
    }

    fn session() -> Session {
        let scheme = preset::Reclaim::default().scheme();
        Session {
            activity: SchemeActivity::new(&[scheme], Limits::default(), RefaultMeter::default()),
            stats: SchemeStats::default(),
        }
    }

    impl Session {
        fn active(&mut self, active: bool, metric: u64) {
            let (now, scheme) = (Nanos::ZERO, 0);
            self.activity.on(&Event::SchemeActive {
                now,
                scheme,
                active,
                metric,
            });
        }

        /// An application at second `now` that tried `tried` MiB, of which all but `skipped` left memory.
        fn applied(&mut self, now: u64, tried: u64, skipped: &[(Skip, Bytes)]) {
            let sum: Bytes = skipped.iter().map(|(_, bytes)| *bytes).sum();
            self.stats.nr_tried += u64::from(tried > 0);
            self.stats.sz_tried += Bytes::mib(tried);
            self.stats.sz_applied += Bytes::mib(tried).saturating_sub(sum);
            self.stats.sz_changed = self.stats.sz_applied;
            self.activity.on(&Event::SchemeApplied {
                now: Nanos::secs(now),
                scheme: 0,
                tried: &[],
                skipped,
                by_target: &[],
                stats: &self.stats,
            });
        }

        fn tick(&mut self, now: u64) -> String {
            self.activity.tick(Nanos::secs(now)).join("\n")
        }
    }

    #[test]
    fn watermarks_are_printed_once_per_change() {
        let mut session = session();
        assert_eq!(session.tick(0), "");
        session.active(false, 612);
        assert_eq!(
            session.tick(1),
            "pageout rests: 61.2 % of memory is free, and it starts below 40 % (mid watermark)"
        );
        assert_eq!(session.tick(2), "");
        session.active(true, 395);
        assert_eq!(session.tick(3), "pageout acts: 39.5 % of memory is free");
        session.active(false, 510);
        session.tick(4);
        session.active(true, 399);
        assert_eq!(session.tick(5), "", "three changes within 30 s");
        session.active(false, 150);
        assert!(
            session
                .tick(34)
                .contains("less than 20 % (low watermark): the kernel reclaims")
        );
        assert_eq!(
            session.tick(61),
            "",
            "nothing to report of a minute without an application"
        );
    }

    #[test]
    fn guards_are_printed_and_their_end() {
        let mut session = session();
        session.applied(1, 0, &[]);
        assert_eq!(
            session.tick(1),
            "pageout waits: nothing matches yet (memory must be idle for 2 m)"
        );
        session.applied(20, 8, &[]);
        assert_eq!(session.tick(20), "pageout acts");
        session.applied(40, 8, &[(Skip::Refaults, Bytes::mib(8))]);
        assert_eq!(session.tick(40), "pageout rests: more than 25 % (--max-refaults)");
        session.applied(50, 0, &[]);
        assert_eq!(session.tick(51), "", "nothing was tried");
        session.applied(52, 8, &[(Skip::Incompressible, Bytes::mib(7))]);
        let text = session.tick(52);
        assert!(
            text.contains("does not compress, so less than 10 % would be saved"),
            "{text}"
        );
        session.applied(55, 8, &[(Skip::Young, Bytes::mib(1))]);
        assert_eq!(session.tick(55), "pageout acts again");
    }

    #[test]
    fn quota_is_printed_when_used_up_for_long() {
        let mut session = session();
        let mut printed = Vec::new();
        for now in 1..=15 {
            session.stats.qt_exceeds += 1;
            session.applied(now, 1, &[]);
            printed.extend(Some(session.tick(now)).filter(|text| !text.is_empty()));
        }
        assert_eq!(
            printed,
            [
                "pageout acts",
                "pageout uses up its quota in every window of 1.00 s (128 MiB, 10.0 ms of CPU time): more memory matches"
            ]
        );
        session.applied(40, 1, &[]);
        assert_eq!(session.tick(40), "pageout acts again");
    }

    #[test]
    fn minute_has_bytes_refaults_and_reasons() {
        let mut session = session();
        session.tick(0);
        let skipped = [
            (Skip::Young, Bytes::mib(2)),
            (Skip::Shared, Bytes::mib(3)),
            (Skip::Locked, Bytes::kib(4)),
            (Skip::Filtered, Bytes::kib(8)),
        ];
        session.applied(10, 20, &skipped);
        session.tick(10);
        let when = Nanos::secs(50);
        session.activity.refaults.set(when, Bytes::mib(14), Bytes::mib(1));
        assert_eq!(
            session.tick(60),
            "pageout: in the last minute 15.0 MiB paged out of 20.0 MiB tried; refaulted 1.00 MiB of \
             14.0 MiB; skipped: 3.00 MiB shared, 2.00 MiB young, 8.00 KiB filtered"
        );
        session.applied(100, 0, &[]);
        assert_eq!(session.tick(120), "pageout: nothing matched in the last minute");
        assert_eq!(session.tick(180), "", "not applied in this minute");
    }

    #[test]
    fn swap_text_has_both_figures() {
        let text = swap_text(Bytes::mib(12), Bytes::mib(100), Permille(200));
        assert_eq!(
            text,
            "12 % of swap is free (12.0 MiB of 100 MiB), less than 20 % (--swap-floor)"
        );
        assert!(swap_text(Bytes::ZERO, Bytes::ZERO, Permille(200)).contains("there is no swap"));
    }
}
