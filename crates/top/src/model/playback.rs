//! The moment of a replay: played, stepped, faster or slower.

use std::time::Duration;

use thermo_agent::api::UnixMillis;

/// Playing speeds are powers of two: from a quarter to 4096 times real time.
const SPEEDS: std::ops::RangeInclusive<i32> = -2..=12;
/// Number of moments of a long step.
const LONG_STEP: usize = 10;

/// The moment of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Playback {
    /// All moments, ascending; not empty.
    times_ms: Vec<UnixMillis>,
    /// Index of the moment that is shown.
    position: usize,
    /// The clock of the replay, between this moment and the next.
    clock_ms: f64,
    playing: bool,
    /// Speed as a power of two.
    speed: i32,
}

/// An order to the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaybackKey {
    /// Plays or pauses. At the end, plays again from the beginning.
    Toggle,
    /// One moment back.
    Back,
    /// One moment forward.
    Forward,
    /// Ten moments back.
    LongBack,
    /// Ten moments forward.
    LongForward,
    /// To the first moment.
    Begin,
    /// To the last moment.
    End,
    /// Twice as fast.
    Faster,
    /// Half as fast.
    Slower,
}

impl Playback {
    /// A paused replay at its last moment, which has the longest idle ages; `None` without moments.
    #[must_use]
    pub fn new(times_ms: Vec<UnixMillis>) -> Option<Self> {
        let last = times_ms.len().checked_sub(1)?;
        let mut playback = Self {
            times_ms,
            position: 0,
            clock_ms: 0.0,
            playing: false,
            speed: 0,
        };
        playback.go_to(last);
        Some(playback)
    }

    /// The moment that is shown.
    #[must_use]
    pub fn time_ms(&self) -> UnixMillis {
        self.times_ms[self.position]
    }

    /// First and last moment.
    #[must_use]
    pub fn span_ms(&self) -> (UnixMillis, UnixMillis) {
        (self.times_ms[0], self.times_ms[self.last()])
    }

    /// The position as a share of the time from the first to the last moment, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        let (first, last) = self.span_ms();
        let all = last.saturating_sub(first).max(1);
        self.time_ms().saturating_sub(first) as f64 / all as f64
    }

    /// Whether it plays.
    #[must_use]
    pub const fn is_playing(&self) -> bool {
        self.playing
    }

    /// The speed: `×1`, `×16`, `×1/4`.
    #[must_use]
    pub fn speed_text(&self) -> String {
        match self.speed {
            0.. => format!("×{}", 1_u64 << self.speed),
            _ => format!("×1/{}", 1_u64 << -self.speed),
        }
    }

    /// Obeys a key.
    pub fn update(&mut self, key: PlaybackKey) {
        match key {
            PlaybackKey::Toggle => self.toggle(),
            PlaybackKey::Back => self.step(self.position.saturating_sub(1)),
            PlaybackKey::Forward => self.step(self.position + 1),
            PlaybackKey::LongBack => self.step(self.position.saturating_sub(LONG_STEP)),
            PlaybackKey::LongForward => self.step(self.position + LONG_STEP),
            PlaybackKey::Begin => self.go_to(0),
            PlaybackKey::End => self.go_to(self.last()),
            PlaybackKey::Faster => self.speed = (self.speed + 1).min(*SPEEDS.end()),
            PlaybackKey::Slower => self.speed = (self.speed - 1).max(*SPEEDS.start()),
        }
    }

    /// Plays on by `elapsed` of real time. It pauses at the end.
    pub fn tick(&mut self, elapsed: Duration) {
        if !self.playing {
            return;
        }
        self.clock_ms += elapsed.as_secs_f64() * 1000.0 * 2_f64.powi(self.speed);
        let later = self
            .times_ms
            .partition_point(|time| *time as f64 <= self.clock_ms);
        self.position = later.saturating_sub(1).max(self.position);
        self.playing = self.position < self.last();
    }

    fn toggle(&mut self) {
        self.playing = !self.playing && self.last() > 0;
        if self.playing && self.position == self.last() {
            self.go_to(0);
        }
    }

    /// A step by hand pauses.
    fn step(&mut self, position: usize) {
        self.playing = false;
        self.go_to(position);
    }

    fn go_to(&mut self, position: usize) {
        self.position = position.min(self.last());
        self.clock_ms = self.time_ms() as f64;
    }

    const fn last(&self) -> usize {
        self.times_ms.len() - 1
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use super::*;

    fn playback() -> Playback {
        Playback::new((0..20).map(|second| 1_000_000 + second * 1000).collect()).unwrap()
    }

    #[test]
    fn replay_begins_at_end_and_plays_from_beginning() {
        assert_eq!(Playback::new(Vec::new()), None);
        let mut playback = playback();
        assert_eq!((playback.time_ms(), playback.share()), (1_019_000, 1.0));
        playback.update(PlaybackKey::Toggle);
        assert_eq!((playback.time_ms(), playback.is_playing()), (1_000_000, true));
        playback.tick(Duration::from_millis(999));
        assert_eq!(playback.time_ms(), 1_000_000);
        playback.tick(Duration::from_millis(1));
        assert_eq!(playback.time_ms(), 1_001_000);
        playback.tick(Duration::from_secs(60));
        assert_eq!((playback.time_ms(), playback.is_playing()), (1_019_000, false));
    }

    #[test]
    fn speed_scales_time_within_bounds() {
        let mut playback = playback();
        playback.update(PlaybackKey::Toggle);
        (0..2).for_each(|_| playback.update(PlaybackKey::Faster));
        playback.tick(Duration::from_secs(1));
        assert_eq!(
            (playback.time_ms(), playback.speed_text()),
            (1_004_000, "×4".to_owned())
        );
        (0..50).for_each(|_| playback.update(PlaybackKey::Slower));
        assert_eq!(playback.speed_text(), "×1/4");
        (0..50).for_each(|_| playback.update(PlaybackKey::Faster));
        assert_eq!(playback.speed_text(), "×4096");
    }

    #[test]
    fn steps_pause_and_stay_within_span() {
        let mut playback = playback();
        playback.update(PlaybackKey::Toggle);
        playback.update(PlaybackKey::Back);
        assert_eq!((playback.time_ms(), playback.is_playing()), (1_000_000, false));
        for (key, seconds) in [
            (PlaybackKey::Forward, 1),
            (PlaybackKey::LongForward, 11),
            (PlaybackKey::LongForward, 19),
            (PlaybackKey::LongBack, 9),
            (PlaybackKey::Begin, 0),
            (PlaybackKey::End, 19),
        ] {
            playback.update(key);
            assert_eq!(playback.time_ms(), 1_000_000 + seconds * 1000, "{key:?}");
        }
    }

    #[test]
    fn single_moment_does_not_play() {
        let mut playback = Playback::new(vec![5]).unwrap();
        playback.update(PlaybackKey::Toggle);
        assert_eq!((playback.is_playing(), playback.share()), (false, 0.0));
    }
}
