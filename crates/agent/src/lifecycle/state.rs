//! The states of an application, their sources, and the rule that combines the sources.

use std::fmt;
use std::str::FromStr;

/// State of an application, as on Android.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// In use.
    Foreground,
    /// Not in use, but the user would notice if it stopped: music.
    Perceptible,
    /// Running unnoticed.
    Background,
    /// Kept only to avoid a restart.
    Cached,
}

impl State {
    /// All states, from most to least important to the user.
    pub const ALL: [Self; 4] = [
        Self::Foreground,
        Self::Perceptible,
        Self::Background,
        Self::Cached,
    ];

    /// The name in requests and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Foreground => "foreground",
            Self::Perceptible => "perceptible",
            Self::Background => "background",
            Self::Cached => "cached",
        }
    }

    /// The state for an `oom_score_adj`, with the limits of Android's `ProcessList`: up to 0 foreground, up
    /// to 200 perceptible, from 900 cached.
    #[must_use]
    pub const fn from_oom_score_adj(adj: i16) -> Self {
        match adj {
            ..=0 => Self::Foreground,
            1..=200 => Self::Perceptible,
            201..=899 => Self::Background,
            900.. => Self::Cached,
        }
    }

    /// True if the user would notice a slow-down.
    #[must_use]
    pub const fn is_in_use(self) -> bool {
        matches!(self, Self::Foreground | Self::Perceptible)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown state {0:?}: use foreground, perceptible, background or cached")]
pub struct UnknownState(pub String);

impl FromStr for State {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.name() == text)
            .ok_or_else(|| UnknownState(text.chars().take(40).collect()))
    }
}

/// Source of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// No event yet: every application begins in the background.
    Begin,
    /// A client of the socket.
    Set,
    /// The freezer of the application's control group.
    Freezer,
    /// A change of `oom_score_adj`.
    OomScoreAdj,
    /// CPU use and memory accesses.
    Idle,
}

impl Source {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Set => "set",
            Self::Freezer => "freezer",
            Self::OomScoreAdj => "oom_score_adj",
            Self::Idle => "idle",
        }
    }
}

/// An event that may change the state of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateEvent {
    /// A client sets this state.
    Set(State),
    /// The state set by a client ends.
    Unset,
    /// `oom_score_adj` changed to this value.
    OomScoreAdj(i16),
    /// The control group was frozen (true) or thawed.
    Frozen(bool),
    /// The application became idle (true) or active.
    Idle(bool),
}

impl StateEvent {
    /// Source of the event.
    #[must_use]
    pub const fn source(self) -> Source {
        match self {
            Self::Set(_) | Self::Unset => Source::Set,
            Self::OomScoreAdj(_) => Source::OomScoreAdj,
            Self::Frozen(_) => Source::Freezer,
            Self::Idle(_) => Source::Idle,
        }
    }
}

/// The latest event of each source of one application, and the state that follows.
///
/// The latest event wins. A freeze ends with the thaw: the application returns to the state it would have
/// without the freeze. Idleness turns only a background application into a cached one: a music player that
/// nobody operates stays perceptible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateEvents {
    /// Number of events so far. Each source stores the number of its latest event.
    nr: u64,
    set: Option<(u64, State)>,
    oom_score_adj: Option<(u64, State)>,
    frozen: Option<u64>,
    idle: bool,
}

impl StateEvents {
    /// Records an event.
    pub fn record(&mut self, event: StateEvent) {
        self.nr += 1;
        let nr = self.nr;
        match event {
            StateEvent::Set(state) => self.set = Some((nr, state)),
            StateEvent::Unset => self.set = None,
            StateEvent::OomScoreAdj(adj) => self.oom_score_adj = Some((nr, State::from_oom_score_adj(adj))),
            // A repeated event does not make the freeze later than events in between.
            StateEvent::Frozen(true) => self.frozen = self.frozen.or(Some(nr)),
            StateEvent::Frozen(false) => self.frozen = None,
            StateEvent::Idle(idle) => self.idle = idle,
        }
    }

    /// The current state and its source.
    #[must_use]
    pub fn state(&self) -> (State, Source) {
        let set = self.set.map(|(nr, state)| (nr, state, Source::Set));
        let oom = self
            .oom_score_adj
            .map(|(nr, state)| (nr, state, Source::OomScoreAdj));
        let frozen = self.frozen.map(|nr| (nr, State::Cached, Source::Freezer));
        let latest = [set, oom, frozen]
            .into_iter()
            .flatten()
            .max_by_key(|(nr, ..)| *nr);
        let (state, source) = latest.map_or((State::Background, Source::Begin), |(_, state, source)| {
            (state, source)
        });
        if self.idle && state == State::Background {
            (State::Cached, Source::Idle)
        } else {
            (state, source)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn state_after(events: &[StateEvent]) -> (State, Source) {
        let mut recorded = StateEvents::default();
        events.iter().for_each(|event| recorded.record(*event));
        recorded.state()
    }

    #[test]
    fn state_follows_the_latest_event() {
        use StateEvent::{Frozen, Idle, OomScoreAdj, Set, Unset};
        for (events, state, source) in [
            (&[][..], State::Background, Source::Begin),
            (&[Set(State::Cached)], State::Cached, Source::Set),
            (
                &[Set(State::Cached), OomScoreAdj(0)],
                State::Foreground,
                Source::OomScoreAdj,
            ),
            (
                &[OomScoreAdj(950), Set(State::Perceptible)],
                State::Perceptible,
                Source::Set,
            ),
            (
                &[Set(State::Foreground), Frozen(true)],
                State::Cached,
                Source::Freezer,
            ),
            (
                &[Set(State::Foreground), Frozen(true), Frozen(false)],
                State::Foreground,
                Source::Set,
            ),
            (
                &[Frozen(true), Set(State::Foreground), Frozen(true)],
                State::Foreground,
                Source::Set,
            ),
            (&[Set(State::Cached), Unset], State::Background, Source::Begin),
            (
                &[OomScoreAdj(900), Set(State::Foreground), Unset],
                State::Cached,
                Source::OomScoreAdj,
            ),
            (&[Idle(true)], State::Cached, Source::Idle),
            (&[Idle(true), Idle(false)], State::Background, Source::Begin),
            (
                &[Set(State::Perceptible), Idle(true)],
                State::Perceptible,
                Source::Set,
            ),
            (&[OomScoreAdj(700), Idle(true)], State::Cached, Source::Idle),
        ] {
            assert_eq!(state_after(events), (state, source), "{events:?}");
        }
    }

    #[test]
    fn state_is_read_from_score_and_name() {
        for (adj, state) in [
            (-1000, State::Foreground),
            (0, State::Foreground),
            (1, State::Perceptible),
            (200, State::Perceptible),
            (201, State::Background),
            (899, State::Background),
            (900, State::Cached),
            (1000, State::Cached),
        ] {
            assert_eq!(State::from_oom_score_adj(adj), state, "{adj}");
        }
        for state in State::ALL {
            assert_eq!(state.name().parse::<State>().unwrap(), state);
        }
        assert!(
            "asleep"
                .parse::<State>()
                .unwrap_err()
                .to_string()
                .contains("use foreground")
        );
    }
}
