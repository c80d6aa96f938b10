//! Memory that is allocated and freed while a program runs. Freed memory stays absent for a while: a scan
//! could not tell memory that is freed and at once used again from memory that is accessed.

use thermo_engine::rng::Rng;

use super::{Area, Pattern, Sweep};
use crate::random::uniform;

/// A leak: memory is allocated, accessed once, and never freed until the program restarts.
#[derive(Debug)]
pub(crate) struct Leak {
    /// Time until the area is full, and the program restarts.
    pub(crate) fills_in: f64,
    /// Pages allocated since the last restart.
    pub(crate) used: usize,
    /// Time of the last restart.
    pub(crate) since: f64,
}

impl Pattern for Leak {
    fn start(&mut self, _: &mut Area<'_>) {}

    fn advance(&mut self, _: f64, to: f64, area: &mut Area<'_>, _: &mut Rng) {
        loop {
            let next = self.since + self.fills_in * (self.used + 1) as f64 / area.len as f64;
            if next > to {
                return;
            }
            if self.used + 1 < area.len {
                area.touch(self.used, next);
                self.used += 1;
            } else {
                (0..area.len).for_each(|page| area.free(page));
                (self.used, self.since) = (0, next);
            }
        }
    }
}

/// A batch job in phases. Each phase works on a slot of new memory. The results of the last phases stay; the
/// oldest slot is freed a phase before it is used again.
#[derive(Debug)]
pub(crate) struct Phases {
    length: (f64, f64),
    /// Time of a stream through the slot.
    period: f64,
    slot: usize,
    since: f64,
    until: f64,
}

impl Phases {
    const SLOTS: usize = 4;

    pub(crate) fn new(length: (f64, f64), period: f64, rng: &mut Rng) -> Self {
        let until = uniform(rng, (0.0, length.1));
        Self {
            length,
            period,
            slot: 0,
            since: 0.0,
            until,
        }
    }

    fn slot<'a>(area: &'a mut Area<'_>, slot: usize) -> Area<'a> {
        let len = area.len / Self::SLOTS;
        area.part(slot % Self::SLOTS * len, len)
    }
}

impl Pattern for Phases {
    fn start(&mut self, _: &mut Area<'_>) {}

    fn advance(&mut self, from: f64, to: f64, area: &mut Area<'_>, rng: &mut Rng) {
        let mut from = from;
        loop {
            let mut slot = Self::slot(area, self.slot);
            Sweep::advance_since(self.period, self.since, from, to.min(self.until), &mut slot);
            if self.until > to {
                return;
            }
            from = self.until;
            self.since = self.until;
            self.until += uniform(rng, self.length);
            self.slot += 1;
            let mut oldest = Self::slot(area, self.slot + 1);
            (0..oldest.len).for_each(|page| oldest.free(page));
        }
    }
}

/// Log files: pages are written one after the other, read once soon after, and freed with their file.
#[derive(Debug)]
pub(crate) struct Log {
    /// Time until a file is full.
    pub(crate) file_s: f64,
    /// Time between writing and reading a page.
    pub(crate) delay: f64,
}

impl Log {
    const FILES: usize = 4;

    /// Accesses to the pages that were written between `from` and `to`, `delay` later.
    fn pass(&self, from: f64, to: f64, delay: f64, area: &mut Area<'_>) {
        let len = area.len / Self::FILES;
        let each = self.file_s / len as f64;
        let mut written = (from / each).floor().max(0.0) as usize;
        while (written as f64) * each <= to {
            let at = written as f64 * each;
            if at > from {
                area.touch(written % (len * Self::FILES), at + delay);
            }
            written += 1;
        }
    }
}

impl Pattern for Log {
    fn start(&mut self, _: &mut Area<'_>) {}

    fn advance(&mut self, from: f64, to: f64, area: &mut Area<'_>, _: &mut Rng) {
        self.pass(from, to, 0.0, area);
        self.pass(from - self.delay, to - self.delay, self.delay, area);
        let (before, now) = ((from / self.file_s).floor(), (to / self.file_s).floor());
        if now > before {
            // The file after the one being written is the oldest.
            let len = area.len / Self::FILES;
            let oldest = (now as usize + 1) % Self::FILES;
            (oldest * len..(oldest + 1) * len).for_each(|page| area.free(page));
        }
    }
}

/// Short-lived jobs: each allocates memory, streams through it, and frees it at its end. Between two jobs
/// there is a pause.
#[derive(Debug)]
pub(crate) struct Jobs {
    length: (f64, f64),
    pause: (f64, f64),
    period: f64,
    since: f64,
    until: f64,
    is_running: bool,
}

impl Jobs {
    pub(crate) fn new(length: (f64, f64), pause: (f64, f64), period: f64, rng: &mut Rng) -> Self {
        let until = uniform(rng, pause);
        Self {
            length,
            pause,
            period,
            since: 0.0,
            until,
            is_running: false,
        }
    }
}

impl Pattern for Jobs {
    fn start(&mut self, _: &mut Area<'_>) {}

    fn advance(&mut self, from: f64, to: f64, area: &mut Area<'_>, rng: &mut Rng) {
        let mut from = from;
        loop {
            if self.is_running {
                Sweep::advance_since(self.period, self.since, from, to.min(self.until), area);
            }
            if self.until > to {
                return;
            }
            from = self.until;
            self.since = self.until;
            if self.is_running {
                (0..area.len).for_each(|page| area.free(page));
            }
            self.is_running = !self.is_running;
            let length = if self.is_running { self.length } else { self.pause };
            self.until += uniform(rng, length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, count};
    use crate::random::part_of;

    /// The numbers of resident pages of a pattern, each `step` seconds.
    fn resident(pattern: &mut dyn Pattern, len: usize, step: f64, steps: usize) -> Vec<u64> {
        let mut rng = part_of(7, 0);
        let mut memory = Memory::new();
        let mut area = Area {
            memory: &mut memory,
            first: 0,
            len,
        };
        pattern.start(&mut area);
        let mut sizes = Vec::new();
        for nth in 0..steps {
            let from = nth as f64 * step;
            pattern.advance(from, from + step, &mut area, &mut rng);
            sizes.push(count(&area.memory.present));
        }
        sizes
    }

    #[test]
    fn leak_grows_until_it_restarts() {
        let mut leak = Leak {
            fills_in: 100.0,
            used: 0,
            since: 0.0,
        };
        assert_eq!(
            resident(&mut leak, 10, 10.0, 12),
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
        );
    }

    #[test]
    fn phases_keep_three_slots() {
        let mut phases = Phases::new((100.0, 100.001), 5.0, &mut part_of(1, 1));
        let sizes = resident(&mut phases, 40, 10.0, 100);
        assert_eq!(sizes[20..].iter().max(), Some(&30));
        assert_eq!(sizes[60..].iter().min(), Some(&30), "{sizes:?}");
    }

    #[test]
    fn log_frees_the_oldest_file_before_it_is_used() {
        let mut log = Log {
            file_s: 100.0,
            delay: 10.0,
        };
        let sizes = resident(&mut log, 40, 10.0, 100);
        assert!(
            sizes[60..].iter().all(|size| (20..=31).contains(size)),
            "{sizes:?}"
        );
    }

    #[test]
    fn jobs_free_their_memory() {
        let mut jobs = Jobs::new((50.0, 60.0), (20.0, 30.0), 5.0, &mut part_of(1, 1));
        let sizes = resident(&mut jobs, 40, 10.0, 100);
        assert!(sizes.contains(&0) && sizes.contains(&40), "{sizes:?}");
    }
}
