//! The states of an application, and who says which it is in.

use std::fmt;
use std::str::FromStr;

/// How close an application is to its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// In use.
    Foreground,
    /// Not in use, but noticed if it stopped: it plays music.
    Perceptible,
    /// Not noticed, but not put away.
    Background,
    /// Kept only so that it need not be started again.
    Cached,
}

impl State {
    /// All of them, from the closest to the furthest.
    pub const ALL: [Self; 4] = [
        Self::Foreground,
        Self::Perceptible,
        Self::Background,
        Self::Cached,
    ];

    /// The word for it in requests and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Foreground => "foreground",
            Self::Perceptible => "perceptible",
            Self::Background => "background",
            Self::Cached => "cached",
        }
    }

    /// What an `oom_score_adj` says, with the borders of Android's process list: up to 0 foreground, up to 200
    /// perceptible, from 900 on cached.
    #[must_use]
    pub const fn of_oom_score_adj(adj: i16) -> Self {
        match adj {
            ..=0 => Self::Foreground,
            1..=200 => Self::Perceptible,
            201..=899 => Self::Background,
            900.. => Self::Cached,
        }
    }

    /// True when somebody would notice that it is slow.
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

/// A word that is no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no state: use foreground, perceptible, background or cached")]
pub struct UnknownState(pub String);

impl FromStr for State {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.name() == text)
            .ok_or_else(|| UnknownState(text.chars().take(40).collect()))
    }
}

/// Who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nobody yet: every application begins in the background.
    Begin,
    /// A client of the socket.
    Set,
    /// Its control group is frozen, or no longer.
    Freezer,
    /// Its `oom_score_adj` was changed.
    OomScoreAdj,
    /// It has not run or touched memory for a while, or does again.
    Idle,
}

impl Source {
    /// The word for it.
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

/// One thing said about an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateEvent {
    /// A client says that it is in this state.
    Set(State),
    /// Its `oom_score_adj` has become this.
    OomScoreAdj(i16),
    /// Its group is frozen, or no longer.
    Frozen(bool),
    /// It has been idle for long enough, or is no longer.
    Idle(bool),
}

impl StateEvent {
    /// Who says it.
    #[must_use]
    pub const fn source(self) -> Source {
        match self {
            Self::Set(_) => Source::Set,
            Self::OomScoreAdj(_) => Source::OomScoreAdj,
            Self::Frozen(_) => Source::Freezer,
            Self::Idle(_) => Source::Idle,
        }
    }
}

/// What was said about one application, and what follows from it.
///
/// The latest word counts. Being frozen is a word for as long as it lasts: an application that thaws is again what
/// was said of it before. Idleness only puts away what is in the background: music that plays without a touch of the
/// hand stays perceptible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateEvents {
    nr: u64,
    set: Option<(u64, State)>,
    oom_score_adj: Option<(u64, State)>,
    frozen: Option<u64>,
    idle: bool,
}

impl StateEvents {
    /// Takes in a word.
    pub fn hear(&mut self, word: StateEvent) {
        self.nr += 1;
        let nr = self.nr;
        match word {
            StateEvent::Set(state) => self.set = Some((nr, state)),
            StateEvent::OomScoreAdj(adj) => self.oom_score_adj = Some((nr, State::of_oom_score_adj(adj))),
            // What is frozen and said to be so again was frozen before.
            StateEvent::Frozen(true) => self.frozen = self.frozen.or(Some(nr)),
            StateEvent::Frozen(false) => self.frozen = None,
            StateEvent::Idle(idle) => self.idle = idle,
        }
    }

    /// The state that follows, and who decided it.
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

    fn after(words: &[StateEvent]) -> (State, Source) {
        let mut heard = StateEvents::default();
        words.iter().for_each(|word| heard.hear(*word));
        heard.state()
    }

    #[test]
    fn the_latest_word_counts() {
        use StateEvent::{Frozen, Idle, OomScoreAdj, Set};
        for (words, state, source) in [
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
            (&[Idle(true)], State::Cached, Source::Idle),
            (&[Idle(true), Idle(false)], State::Background, Source::Begin),
            (
                &[Set(State::Perceptible), Idle(true)],
                State::Perceptible,
                Source::Set,
            ),
            (&[OomScoreAdj(700), Idle(true)], State::Cached, Source::Idle),
        ] {
            assert_eq!(after(words), (state, source), "{words:?}");
        }
    }

    #[test]
    fn scores_and_names_are_states() {
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
            assert_eq!(State::of_oom_score_adj(adj), state, "{adj}");
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
