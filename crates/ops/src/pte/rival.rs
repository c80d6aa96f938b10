//! Watching for others who take accessed marks off, in samples: asking for a frame's flags costs more than the rest
//! of a probe.
//!
//! One probe in 16 is asked (all, where there are few). Whoever takes marks off here and there seldom meets one of
//! ours, and who takes them everywhere is met by the sample. Then all probes are asked, those of that look at once,
//! and those of many looks to come.

/// One probe in so many is asked while nobody else was met.
const ONE_IN: usize = 16;
/// After somebody was met, all probes are asked so many times.
const ASK_ALL: u32 = 1000;

/// What is known of others.
#[derive(Debug, Default)]
pub(super) struct Rival {
    /// How many looks are left in which all probes are asked.
    ask_all: u32,
    /// Which probes are asked changes from look to look.
    turn: usize,
}

impl Rival {
    /// A look at probes begins.
    pub(super) fn begin(&mut self) {
        self.ask_all = self.ask_all.saturating_sub(1);
        self.turn = self.turn.wrapping_add(1);
    }

    /// Whether the `nth` of `all` probes is asked in this look.
    pub(super) fn asks(&self, nth: usize, all: usize) -> bool {
        let one_in = if self.ask_all > 0 {
            1
        } else {
            (all / 4).clamp(1, ONE_IN)
        };
        nth.wrapping_add(self.turn).is_multiple_of(one_in)
    }

    /// Whether all are.
    pub(super) fn asks_all(&self) -> bool {
        self.ask_all > 0
    }

    /// Somebody else's work was seen.
    pub(super) fn met(&mut self) {
        self.ask_all = ASK_ALL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_sixteen_is_asked_each_once_and_all_when_there_is_reason() {
        let mut rival = Rival::default();
        let mut times = [0; 1000];
        for _ in 0..16 {
            rival.begin();
            (0..1000)
                .filter(|nth| rival.asks(*nth, 1000))
                .for_each(|nth| times[nth] += 1);
        }
        assert_eq!(times, [1; 1000]);
        assert!((0..7).all(|nth| rival.asks(nth, 7)), "few are all asked");
        rival.met();
        assert!((0..1000).all(|nth| rival.asks(nth, 1000)));
        for _ in 0..ASK_ALL {
            rival.begin();
        }
        assert!(!(0..1000).all(|nth| rival.asks(nth, 1000)));
    }
}
