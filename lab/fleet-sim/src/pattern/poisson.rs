//! Random accesses: each page has its own rate.

use thermo_engine::rng::Rng;

use super::{Area, Pattern};
use crate::random::{exponential, log_uniform, uniform};

/// Pages of a given share of an area, with the range of their mean times between accesses in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Band {
    pub(crate) share: f64,
    pub(crate) mean_s: (f64, f64),
}

/// The load over time: a factor of all rates, 1 on average.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    Steady,
    /// A sine wave over a day, with this amplitude and the hour of its mean on the rise.
    Daily {
        amplitude: f64,
        rise_h: f64,
    },
}

impl Load {
    /// The integral of the load from the start to `time`.
    fn integral(self, time: f64) -> f64 {
        match self {
            Self::Steady => time,
            Self::Daily { amplitude, rise_h } => {
                let turn = std::f64::consts::TAU / 86_400.0;
                let wave = |time: f64| (turn * (time - rise_h * 3600.0)).cos();
                time - amplitude / turn * (wave(time) - wave(0.0))
            }
        }
    }
}

/// Each page is accessed at random times, independently of others (a Poisson process).
#[derive(Debug)]
pub(crate) struct Poisson {
    rates: Vec<f64>,
    /// The next access to each page, by the integral of the load.
    due: Vec<f64>,
    load: Load,
    drift: Option<Drift>,
}

/// Popularity drifts: now and then, a popular and an unpopular page exchange their rates.
#[derive(Debug)]
struct Drift {
    /// Range of times between two exchanges.
    gap: (f64, f64),
    next: f64,
}

impl Poisson {
    /// `len` pages with the rates of `bands`, in random order.
    pub(crate) fn new(len: usize, bands: &[Band], load: Load, rng: &mut Rng) -> Self {
        let total: f64 = bands.iter().map(|band| band.share).sum();
        let mut rates = Vec::with_capacity(len);
        let mut share = 0.0;
        for band in bands {
            share += band.share / total;
            while (rates.len() as f64) < share * len as f64 - 0.5 {
                rates.push(1.0 / log_uniform(rng, band.mean_s));
            }
        }
        let slowest = bands.last().map_or(f64::MAX, |band| band.mean_s.1);
        rates.resize(len, 1.0 / slowest);
        for nth in (1..len).rev() {
            rates.swap(nth, rng.below(nth as u64 + 1) as usize);
        }
        let due = rates.iter().map(|rate| exponential(rng, *rate)).collect();
        Self {
            rates,
            due,
            load,
            drift: None,
        }
    }

    /// Lets two pages exchange their rates after each time drawn from `gap`.
    pub(crate) fn with_drift(mut self, gap: (f64, f64), rng: &mut Rng) -> Self {
        let next = uniform(rng, gap);
        self.drift = Some(Drift { gap, next });
        self
    }

    /// Exchanges rates until `to`. `now` is the integral of the load.
    fn drift(&mut self, to: f64, now: f64, rng: &mut Rng) {
        let Some(drift) = &mut self.drift else { return };
        while drift.next <= to {
            drift.next += uniform(rng, drift.gap);
            let len = self.rates.len() as u64;
            let (one, other) = (rng.below(len) as usize, rng.below(len) as usize);
            self.rates.swap(one, other);
            for page in [one, other] {
                // The time until the next access has no memory, so it may be drawn anew.
                self.due[page] = now + exponential(rng, self.rates[page]);
            }
        }
    }
}

impl Pattern for Poisson {
    fn advance(&mut self, from: f64, to: f64, area: &mut Area<'_>, rng: &mut Rng) {
        let (began, now) = (self.load.integral(from), self.load.integral(to));
        let clock = (to - from) / (now - began).max(f64::MIN_POSITIVE);
        for (page, (due, rate)) in self.due.iter_mut().zip(&self.rates).enumerate() {
            if *due > now {
                continue;
            }
            // Backwards in time, accesses are a Poisson process too.
            let last = (now - exponential(rng, *rate)).max(*due);
            area.touch(page, to - (now - last) * clock);
            *due = now + exponential(rng, *rate);
        }
        self.drift(to, now, rng);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::random::part_of;
    use thermo_units::Nanos;

    const MINUTE: Band = Band {
        share: 1.0,
        mean_s: (60.0, 60.001),
    };

    #[test]
    fn idle_ages_are_exponential_whatever_the_steps() {
        for step in [1.0, 30.0, 400.0] {
            let mut rng = part_of(1, 2);
            let mut pattern = Poisson::new(512, &[MINUTE], Load::Steady, &mut rng);
            let mut memory = Memory::new();
            let mut area = Area {
                memory: &mut memory,
                first: 0,
                len: 512,
            };
            pattern.start(&mut area);
            let mut now = 0.0;
            while now < 4000.0 {
                pattern.advance(now, now + step, &mut area, &mut rng);
                now += step;
            }
            let ages: Vec<Nanos> = memory.idle_ages(super::super::nanos(now)).collect();
            let older = |seconds| ages.iter().filter(|age| **age >= Nanos::secs(seconds)).count();
            // 512 pages: e^-1 is 188, e^-2 is 69; four standard deviations are 44 and 31.
            assert!((144..=232).contains(&older(60)), "{step}: {}", older(60));
            assert!((38..=100).contains(&older(120)), "{step}: {}", older(120));
        }
    }

    #[test]
    fn daily_load_is_one_on_average() {
        let load = Load::Daily {
            amplitude: 0.6,
            rise_h: 9.0,
        };
        let day = load.integral(86_400.0) - load.integral(0.0);
        assert!((day - 86_400.0).abs() < 1e-6, "{day}");
        let rate = |hour: f64| (load.integral(hour * 3600.0 + 1.0) - load.integral(hour * 3600.0)).abs();
        assert!((rate(15.0) - 1.6).abs() < 0.01 && (rate(3.0) - 0.4).abs() < 0.01);
    }
}
