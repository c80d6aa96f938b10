//! The twelve job classes: what they hold, and how they access it.
//!
//! The figures are made up, but in the range of what `docs/evaluation.md` measured on real servers. With an
//! anchor, all accesses of a class follow a recording ([`crate::Anchor`]).

use thermo_engine::rng::Rng;

use crate::anchor::Anchor;
use crate::memory::{Memory, PAGES};
use crate::pattern::{Band, Bursts, Jobs, Leak, Load, Log, Pattern, Phases, Poisson, Sweep};
use crate::random::uniform;

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;

/// A job class.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    /// Namespace in Kubernetes.
    pub(crate) namespace: &'static str,
    /// Memory of a typical target in MiB, resident or not.
    pub(crate) mib: u64,
    pub(crate) processes: u32,
    /// Memory that a byte in zram occupies: the range over targets.
    pub(crate) zram: (f64, f64),
    /// Minimum age in seconds where a policy acts without `--ages`.
    pub(crate) min_age_s: u64,
    build: fn(&mut Builder<'_>),
}

/// All classes, by name.
pub(crate) const CLASSES: [Class; 12] = [
    Class {
        name: "batch-phases",
        namespace: "analytics",
        mib: 12_288,
        processes: 8,
        zram: (0.25, 0.40),
        min_age_s: 3600,
        build: |job| {
            job.area(0.15, |job| job.poisson(HOT, Load::Steady));
            job.area(0.65, |job| {
                let period = job.draw((10.0, 25.0));
                Box::new(Phases::new((20.0 * MINUTE, 50.0 * MINUTE), period, job.rng))
            });
            job.file_area(0.20, |job| {
                Box::new(Bursts::new((25.0 * MINUTE, 55.0 * MINUTE), job.rng))
            });
        },
    },
    Class {
        name: "build-worker",
        namespace: "ci",
        mib: 3072,
        processes: 16,
        zram: (0.30, 0.45),
        min_age_s: 1800,
        build: |job| {
            job.area(0.20, |job| job.poisson(HOT, Load::Steady));
            job.area(0.50, |job| {
                let period = job.draw((8.0, 25.0));
                let lengths = ((4.0 * MINUTE, 15.0 * MINUTE), (MINUTE, 10.0 * MINUTE));
                Box::new(Jobs::new(lengths.0, lengths.1, period, job.rng))
            });
            job.file_area(0.30, |job| {
                job.poisson(&bands(0.45, (40.0, 200.0), 0.15), Load::Steady)
            });
        },
    },
    Class {
        name: "cache-drift",
        namespace: "shop",
        mib: 8192,
        processes: 1,
        zram: (0.35, 0.55),
        min_age_s: 600,
        build: |job| {
            job.area(0.97, |job| {
                let pattern = job.random(&bands(0.45, (20.0, 90.0), 0.12), Load::Steady);
                let gap = job.draw((8.0 * MINUTE, 15.0 * MINUTE));
                Box::new(pattern.with_drift((0.5 * gap, 1.5 * gap), job.rng))
            });
            job.file_area(0.03, |job| job.poisson(COLD, Load::Steady));
        },
    },
    Class {
        name: "cache-zipf",
        namespace: "shop",
        mib: 16_384,
        processes: 1,
        zram: (0.40, 0.60),
        min_age_s: 600,
        build: |job| {
            job.area(0.98, |job| {
                job.poisson(&bands(0.48, (25.0, 120.0), 0.14), Load::Steady)
            });
            job.file_area(0.02, |job| job.poisson(COLD, Load::Steady));
        },
    },
    Class {
        name: "database-buffer-pool",
        namespace: "shop",
        mib: 32_768,
        processes: 1,
        zram: (0.45, 0.70),
        min_age_s: 3600,
        build: |job| {
            job.area(0.77, |job| {
                job.poisson(&bands(0.50, (60.0, 700.0), 0.20), Load::Steady)
            });
            job.shared_area(0.03, |job| job.poisson(HOT, Load::Steady));
            job.file_area(0.20, |job| {
                job.poisson(&bands(0.20, (60.0, 600.0), 0.10), Load::Steady)
            });
        },
    },
    Class {
        name: "idle-daemon",
        namespace: "kube-system",
        mib: 192,
        processes: 2,
        zram: (0.20, 0.35),
        min_age_s: 120,
        build: |job| {
            job.area(0.15, |job| job.poisson(HOT, Load::Steady));
            job.area(0.45, |job| job.poisson(COLD, Load::Steady));
            job.file_area(0.40, |job| job.poisson(COLD, Load::Steady));
        },
    },
    Class {
        name: "jvm-young-old",
        namespace: "search",
        mib: 10_240,
        processes: 1,
        zram: (0.30, 0.45),
        min_age_s: 3600,
        build: |job| {
            job.area(0.30, |job| {
                Box::new(Sweep {
                    period: job.draw((8.0, 25.0)),
                })
            });
            // Each concurrent marking reads all live objects.
            job.area(0.35, |job| {
                Box::new(Bursts::new((15.0 * MINUTE, 45.0 * MINUTE), job.rng))
            });
            job.area(0.25, |job| job.poisson(COLD, Load::Steady));
            job.file_area(0.10, |job| {
                job.poisson(&bands(0.30, (30.0, 90.0), 0.05), Load::Steady)
            });
        },
    },
    Class {
        name: "leak",
        namespace: "search",
        mib: 6144,
        processes: 4,
        zram: (0.15, 0.35),
        min_age_s: 300,
        build: |job| {
            job.area(0.35, |job| {
                job.poisson(&bands(0.75, (20.0, 60.0), 0.10), Load::Steady)
            });
            job.area(0.65, |job| {
                let fills_in = job.draw((12.0 * HOUR, 36.0 * HOUR));
                let pages = PAGES as f64 * 0.65;
                let used = job.draw((0.0, 0.8 * pages)) as usize;
                Box::new(Leak {
                    fills_in,
                    used: 0,
                    since: -fills_in * used as f64 / pages,
                })
            });
        },
    },
    Class {
        name: "log-shipper",
        namespace: "kube-system",
        mib: 1024,
        processes: 1,
        zram: (0.20, 0.35),
        min_age_s: 120,
        build: |job| {
            job.area(0.25, |job| job.poisson(HOT, Load::Steady));
            job.file_area(0.75, |job| {
                let (file_s, delay) = (job.draw((20.0 * MINUTE, 60.0 * MINUTE)), job.draw((2.0, 20.0)));
                Box::new(Log { file_s, delay })
            });
        },
    },
    Class {
        name: "ml-training",
        namespace: "analytics",
        mib: 24_576,
        processes: 4,
        zram: (0.70, 0.95),
        min_age_s: 1800,
        build: |job| {
            job.area(0.35, |job| {
                Box::new(Sweep {
                    period: job.draw((5.0, 20.0)),
                })
            });
            job.area(0.10, |job| job.poisson(COLD, Load::Steady));
            job.file_area(0.55, |job| {
                Box::new(Sweep {
                    period: job.draw((7.0 * MINUTE, 14.0 * MINUTE)),
                })
            });
        },
    },
    Class {
        name: "queue-bursts",
        namespace: "shop",
        mib: 4096,
        processes: 2,
        zram: (0.25, 0.45),
        min_age_s: 1800,
        build: |job| {
            job.area(0.30, |job| job.poisson(HOT, Load::Steady));
            job.area(0.30, |job| {
                Box::new(Bursts::new((5.0 * MINUTE, 25.0 * MINUTE), job.rng))
            });
            job.area(0.30, |job| job.poisson(COLD, Load::Steady));
            job.file_area(0.10, |job| job.poisson(COLD, Load::Steady));
        },
    },
    Class {
        name: "web-diurnal",
        namespace: "shop",
        mib: 5120,
        processes: 12,
        zram: (0.30, 0.45),
        min_age_s: 1800,
        build: |job| {
            let (amplitude, rise_h) = (job.draw((0.4, 0.7)), job.draw((7.0, 10.0)));
            let load = Load::Daily { amplitude, rise_h };
            job.area(0.80, |job| job.poisson(&bands(0.40, (30.0, 150.0), 0.15), load));
            job.file_area(0.20, |job| job.poisson(&bands(0.30, (30.0, 200.0), 0.10), load));
        },
    },
];

/// Mean time between accesses to a hot page, in seconds.
const HOT_S: (f64, f64) = (0.1, 15.0);
/// The same for a cold page: accesses are rare accidents.
const COLD_S: (f64, f64) = (10.0 * DAY, 100.0 * DAY);
const HOT: &[Band] = &[Band {
    share: 1.0,
    mean_s: HOT_S,
}];
const COLD: &[Band] = &[Band {
    share: 1.0,
    mean_s: COLD_S,
}];

/// Hot memory, warm memory of a share with the given times between accesses, and the rest cold.
fn bands(hot: f64, warm_s: (f64, f64), warm: f64) -> [Band; 3] {
    [
        Band {
            share: hot,
            mean_s: HOT_S,
        },
        Band {
            share: warm,
            mean_s: warm_s,
        },
        Band {
            share: 1.0 - hot - warm,
            mean_s: COLD_S,
        },
    ]
}

/// An area of a target, with its pattern.
#[derive(Debug)]
pub(crate) struct PlacedPattern {
    pub(crate) first: usize,
    pub(crate) len: usize,
    pub(crate) pattern: Box<dyn Pattern>,
}

/// Builds the areas of a target.
pub(crate) struct Builder<'a> {
    rng: &'a mut Rng,
    anchor: Option<&'a Anchor>,
    memory: Memory,
    areas: Vec<PlacedPattern>,
    /// Sum of the shares so far.
    share: f64,
    /// Pages of the area that is being built, and whether its accesses are those of the anchor already.
    len: usize,
    follows_anchor: bool,
}

impl Class {
    /// A new target of this class.
    pub(crate) fn build(&self, anchor: Option<&Anchor>, rng: &mut Rng) -> (Memory, Vec<PlacedPattern>) {
        let mut builder = Builder {
            rng,
            anchor,
            memory: Memory::new(),
            areas: Vec::new(),
            share: 0.0,
            len: 0,
            follows_anchor: false,
        };
        (self.build)(&mut builder);
        (builder.memory, builder.areas)
    }
}

impl Builder<'_> {
    /// Adds an area of anonymous memory with this share of the pages.
    fn area(&mut self, share: f64, pattern: impl FnOnce(&mut Self) -> Box<dyn Pattern>) {
        let first = self.areas.last().map_or(0, |area| area.first + area.len);
        self.share += share;
        let end = (self.share * PAGES as f64).round() as usize;
        self.len = end.min(PAGES) - first;
        self.follows_anchor = false;
        let mut pattern = pattern(self);
        if !self.follows_anchor && self.anchor.is_some() {
            pattern = self.poisson(&[], Load::Steady);
        }
        self.areas.push(PlacedPattern {
            first,
            len: self.len,
            pattern,
        });
    }

    /// Adds an area of file pages.
    fn file_area(&mut self, share: f64, pattern: impl FnOnce(&mut Self) -> Box<dyn Pattern>) {
        self.area(share, pattern);
        let pages = self.areas.last().map(|area| area.first..area.first + area.len);
        pages
            .into_iter()
            .flatten()
            .for_each(|page| Memory::set(&mut self.memory.file, page));
    }

    /// Adds an area that other processes map too.
    fn shared_area(&mut self, share: f64, pattern: impl FnOnce(&mut Self) -> Box<dyn Pattern>) {
        self.area(share, pattern);
        let pages = self.areas.last().map(|area| area.first..area.first + area.len);
        pages
            .into_iter()
            .flatten()
            .for_each(|page| Memory::set(&mut self.memory.shared, page));
    }

    fn draw(&mut self, range: (f64, f64)) -> f64 {
        uniform(self.rng, range)
    }

    /// Random accesses: those of the recording, if the class has an anchor.
    fn random(&mut self, bands: &[Band], load: Load) -> Poisson {
        let Some(anchor) = self.anchor else {
            return Poisson::new(self.len, bands, load, self.rng);
        };
        self.follows_anchor = true;
        Poisson::new(self.len, &anchor.bands(), load, self.rng)
    }

    fn poisson(&mut self, bands: &[Band], load: Load) -> Box<dyn Pattern> {
        Box::new(self.random(bands, load))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::part_of;

    #[test]
    fn classes_are_sorted_and_fill_their_pages() {
        assert!(CLASSES.is_sorted_by_key(|class| class.name));
        for class in &CLASSES {
            let (_, areas) = class.build(None, &mut part_of(1, 1));
            let end = areas.last().map(|area| area.first + area.len);
            assert_eq!(end, Some(PAGES), "{}", class.name);
        }
    }
}
