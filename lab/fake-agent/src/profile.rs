//! The made-up programs: their memory as a function of time.

use std::f64::consts::TAU;

use thermo_agent::api::{AgeBytes, KindAges, UnixMillis};

/// Lower edges of the idle ages in seconds: those of `thermo_engine::access_tables`.
pub const AGE_EDGES_S: [u64; 15] = [
    0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400,
];
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A made-up program.
#[derive(Debug)]
pub struct Profile {
    /// Name of the target.
    pub name: &'static str,
    /// Name of its policy.
    pub policy: &'static str,
    /// Its processes.
    pub pids: &'static [u32],
    /// Its memory in MiB.
    pub size_mib: u64,
    /// Share of the memory that is accessed all the time.
    pub hot: f64,
    /// Length of the load's cycle in seconds.
    pub cycle_s: f64,
    /// Kinds of memory, with their shares of the whole.
    pub kinds: &'static [(&'static str, f64)],
}

/// All made-up programs.
pub const PROFILES: [Profile; 6] = [
    Profile {
        name: "mariadb.service",
        policy: "databases",
        pids: &[1201],
        size_mib: 3072,
        hot: 0.35,
        cycle_s: 600.0,
        kinds: &[("anon", 0.55), ("anon_huge", 0.25), ("file", 0.2)],
    },
    Profile {
        name: "redis-server.service",
        policy: "databases",
        pids: &[1302],
        size_mib: 1024,
        hot: 0.2,
        cycle_s: 240.0,
        kinds: &[("anon", 0.95), ("file", 0.05)],
    },
    Profile {
        name: "nginx.service",
        policy: "web",
        pids: &[1410, 1411, 1412, 1413],
        size_mib: 96,
        hot: 0.6,
        cycle_s: 60.0,
        kinds: &[("anon", 0.5), ("file", 0.3), ("shmem", 0.2)],
    },
    Profile {
        name: "php-fpm.service",
        policy: "web",
        pids: &[1520, 1521, 1522],
        size_mib: 640,
        hot: 0.3,
        cycle_s: 120.0,
        kinds: &[("anon", 0.7), ("file", 0.15), ("shmem", 0.15)],
    },
    Profile {
        name: "build.slice",
        policy: "batch",
        pids: &[2001, 2002],
        size_mib: 1536,
        hot: 0.5,
        cycle_s: 1800.0,
        kinds: &[("anon", 0.6), ("file", 0.4)],
    },
    Profile {
        name: "backup \"nightly\"",
        policy: "batch",
        pids: &[2100],
        size_mib: 256,
        hot: 0.02,
        cycle_s: 7200.0,
        kinds: &[("anon", 0.3), ("file", 0.7)],
    },
];

/// Between -1 and 1, going round once in `cycle_s`.
fn wave(time_ms: UnixMillis, cycle_s: f64, phase: f64) -> f64 {
    ((time_ms as f64 / 1000.0 / cycle_s + phase) * TAU).sin()
}

impl Profile {
    /// Share of the memory that is accessed now.
    fn hot_share(&self, time_ms: UnixMillis) -> f64 {
        self.hot * (1.0 + 0.4 * wave(time_ms, self.cycle_s, 0.0))
    }

    /// Shares of the memory by idle age. They sum to 1.
    fn age_shares(&self, time_ms: UnixMillis) -> [f64; AGE_EDGES_S.len()] {
        let hot = self.hot_share(time_ms);
        let weights: [f64; AGE_EDGES_S.len()] = std::array::from_fn(|age| match age {
            0 => 0.0,
            age => {
                1.0 + 0.5 * wave(time_ms, self.cycle_s, age as f64 / 15.0) + if age == 9 { 4.0 } else { 0.0 }
            }
        });
        let sum: f64 = weights.iter().sum();
        let mut shares = weights.map(|weight| (1.0 - hot) * weight / sum);
        shares[0] = hot;
        shares
    }

    /// Resident bytes by kind and idle age, when `gone` bytes of the oldest memory are paged out.
    #[must_use]
    pub fn kinds(&self, time_ms: UnixMillis, gone: u64) -> Vec<KindAges> {
        let shares = self.age_shares(time_ms);
        let mut gone = gone;
        let mut kinds: Vec<KindAges> = Vec::new();
        for (kind, share_of_kind) in self.kinds {
            let size = (self.size_mib * MIB) as f64 * share_of_kind;
            let mut bytes = shares.map(|share| (size * share) as u64 / PAGE * PAGE);
            for bytes in bytes.iter_mut().skip(8).rev() {
                let out = gone.min(*bytes);
                *bytes -= out;
                gone -= out;
            }
            kinds.push(KindAges {
                kind: (*kind).to_owned(),
                ages: rows(bytes),
            });
        }
        kinds
    }

    /// Bytes that are paged out after `acting_s` seconds of acting.
    #[must_use]
    pub fn paged_out(&self, acting_s: u64) -> u64 {
        let most = (self.size_mib * MIB) as f64 * (1.0 - self.hot) * 0.4;
        let share = 1.0 - (-(acting_s as f64) / 300.0).exp();
        (most * share) as u64 / PAGE * PAGE
    }

    /// Bytes accessed again within `seconds` of watching, by the idle age that they had.
    #[must_use]
    pub fn reaccess(&self, seconds: u64) -> Vec<AgeBytes> {
        let per_second = self.size_mib * MIB / 2000;
        rows(std::array::from_fn(|age| {
            per_second * seconds / (1 << age) / PAGE * PAGE
        }))
    }

    /// Heat of the memory at `place` (0 to 1 from the lowest to the highest address): 0 to 100, or -1.
    #[must_use]
    pub fn heat(&self, place: f64, time_ms: UnixMillis) -> i8 {
        let centre = 0.5 + 0.4 * wave(time_ms, self.cycle_s * 4.0, self.hot);
        let distance = (place - centre).abs() / self.hot_share(time_ms).max(0.01);
        let band = if (place * 23.0) as u64 % 7 == 3 { 35.0 } else { 0.0 };
        if place > 0.97 {
            return -1;
        }
        (100.0 * (-distance * distance).exp() + band).clamp(0.0, 100.0) as i8
    }
}

/// Bytes of each age as rows.
fn rows(bytes: [u64; AGE_EDGES_S.len()]) -> Vec<AgeBytes> {
    let row = |(age, bytes): (usize, u64)| AgeBytes {
        min_s: AGE_EDGES_S[age],
        max_s: AGE_EDGES_S.get(age + 1).copied(),
        bytes,
    };
    bytes.into_iter().enumerate().map(row).collect()
}

/// The sum of the kinds, by idle age.
#[must_use]
pub fn sum_of_kinds(kinds: &[KindAges]) -> Vec<AgeBytes> {
    rows(std::array::from_fn(|age| {
        kinds.iter().map(|kind| kind.ages[age].bytes).sum()
    }))
}
