//! Makes cohorts agree with the access tables of the next snapshot.
//!
//! 1. Memory accessed again leaves its cohorts: from buckets that hold more than the table says, first from
//!    the bucket that the table of re-accesses names.
//! 2. From the oldest bucket to the youngest, cohorts are made to add up to the table. The age of a cohort is
//!    known to about a pass, so memory near the edge of two buckets moves to the one that lacks it. What is
//!    left over was freed; what is missing has become idle.

use thermo_engine::access_tables::{AGE_EDGES_S, NR_AGES, age_bucket};
use thermo_units::Nanos;

use super::Cohort;

/// Cohorts, and what they must add up to.
pub(super) struct Reconciliation<'a> {
    cohorts: &'a mut [Vec<Cohort>; 3],
    /// Bytes of the cohorts by backing and age bucket.
    totals: [[u64; NR_AGES]; 3],
    /// Recorded bytes by backing and age bucket. Bucket 0 is memory in use, which has no cohorts.
    recorded: &'a [[u64; NR_AGES]; 3],
    times: Times,
}

/// The times of a snapshot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) now: Nanos,
    /// Length of a scan pass.
    pub(super) pass: Nanos,
    /// How far the age of a cohort may be wrong.
    pub(super) slack: Nanos,
}

impl<'a> Reconciliation<'a> {
    pub(super) fn new(
        cohorts: &'a mut [Vec<Cohort>; 3],
        recorded: &'a [[u64; NR_AGES]; 3],
        times: Times,
    ) -> Self {
        let mut totals = [[0; NR_AGES]; 3];
        for (totals, cohorts) in totals.iter_mut().zip(&*cohorts) {
            for cohort in cohorts {
                totals[bucket_of(cohort, times.now)] += cohort.total();
            }
        }
        Self {
            cohorts,
            totals,
            recorded,
            times,
        }
    }

    /// Reconciles. `reaccessed`: bytes accessed again by age bucket. Returns those that had left.
    pub(super) fn run(mut self, reaccessed: &[u64; NR_AGES]) -> u64 {
        let refaults = self.remove_reaccessed(reaccessed);
        for backing in 0..self.cohorts.len() {
            for bucket in (1..NR_AGES).rev() {
                self.move_across_edge(backing, bucket);
                let surplus = self.surplus(backing, bucket);
                self.take(backing, bucket, surplus);
                self.add_missing(backing, bucket);
            }
            self.cohorts[backing].retain(|cohort| cohort.total() > 0);
            self.cohorts[backing].sort_by_key(|cohort| cohort.since);
        }
        refaults
    }

    fn remove_reaccessed(&mut self, reaccessed: &[u64; NR_AGES]) -> u64 {
        let mut left = *reaccessed;
        let mut refaults = 0;
        // The bucket itself, then its neighbours: the recorded age is that of the access, not of the
        // snapshot.
        for offset in [0, 1, -1] {
            for (bucket, left) in left.iter_mut().enumerate().skip(1) {
                let from = bucket.saturating_add_signed(offset);
                for backing in 0..self.cohorts.len() {
                    let bytes = (*left).min(self.surplus(backing, from));
                    let taken = self.take(backing, from, bytes);
                    *left -= taken.total();
                    refaults += taken.out;
                }
            }
        }
        refaults
    }

    fn is_in(&self, cohort: &Cohort, bucket: usize) -> bool {
        bucket_of(cohort, self.times.now) == bucket
    }

    /// Bytes of the cohorts of `bucket` above the recorded ones. None in bucket 0 and behind the last.
    fn surplus(&self, backing: usize, bucket: usize) -> u64 {
        let total = self.totals[backing].get(bucket).copied().unwrap_or(0);
        let recorded = self.recorded[backing].get(bucket).copied().unwrap_or(0);
        total.saturating_sub(recorded)
    }

    /// Recorded bytes of `bucket` that the cohorts lack.
    fn deficit(&self, backing: usize, bucket: usize) -> u64 {
        self.recorded[backing][bucket].saturating_sub(self.totals[backing][bucket])
    }

    /// Removes `bytes` from the cohorts of `bucket`, in proportion.
    fn take(&mut self, backing: usize, bucket: usize, bytes: u64) -> Cohort {
        let mut taken = Cohort::default();
        if bytes == 0 {
            return taken;
        }
        let (mut of, mut bytes) = (self.totals[backing][bucket], bytes);
        for nth in 0..self.cohorts[backing].len() {
            if bytes == 0 || !self.is_in(&self.cohorts[backing][nth], bucket) {
                continue;
            }
            let cohort = &mut self.cohorts[backing][nth];
            let total = cohort.total();
            // The last cohort gives what rounding left.
            let part = u128::from(bytes) * u128::from(total) / u128::from(of.max(1));
            let part = cohort.take(u64::try_from(part).unwrap_or(total));
            of -= total;
            bytes -= part.total();
            taken.merge(part);
        }
        self.totals[backing][bucket] -= taken.total();
        taken
    }

    /// Moves memory within the slack of the younger edge of `bucket` to the side that lacks it.
    fn move_across_edge(&mut self, backing: usize, bucket: usize) {
        if bucket < 2 {
            return;
        }
        let edge = Nanos::secs(AGE_EDGES_S[bucket]);
        let older = self
            .deficit(backing, bucket)
            .min(self.surplus(backing, bucket - 1));
        let at_least = self.times.now.saturating_sub(edge);
        self.redate(backing, bucket - 1, older, at_least);
        let younger = self
            .surplus(backing, bucket)
            .min(self.deficit(backing, bucket - 1));
        let just_below = self.times.now.saturating_sub(Nanos(edge.0 - 1));
        self.redate(backing, bucket, younger, just_below);
    }

    /// Gives up to `bytes` of cohorts of `bucket` the time `since`, the nearest cohorts first.
    fn redate(&mut self, backing: usize, bucket: usize, mut bytes: u64, since: Nanos) {
        if bytes == 0 {
            return;
        }
        let mut moved = Cohort {
            since,
            ..Cohort::default()
        };
        let mut near: Vec<usize> = (0..self.cohorts[backing].len()).collect();
        let distance = |cohort: &Cohort| cohort.since.0.abs_diff(since.0);
        near.retain(|nth| {
            let cohort = &self.cohorts[backing][*nth];
            self.is_in(cohort, bucket) && distance(cohort) <= self.times.slack.0
        });
        near.sort_by_key(|nth| distance(&self.cohorts[backing][*nth]));
        for nth in near {
            let part = self.cohorts[backing][nth].take(bytes);
            bytes -= part.total();
            moved.merge(part);
        }
        self.totals[backing][bucket] -= moved.total();
        self.push(backing, moved);
    }

    fn push(&mut self, backing: usize, cohort: Cohort) {
        self.totals[backing][bucket_of(&cohort, self.times.now)] += cohort.total();
        self.cohorts[backing].push(cohort);
    }

    /// Adds a cohort for the recorded bytes of `bucket` that have none: as young as the bucket and the pass
    /// allow.
    fn add_missing(&mut self, backing: usize, bucket: usize) {
        let missing = self.deficit(backing, bucket);
        if missing == 0 {
            return;
        }
        let edge = Nanos::secs(AGE_EDGES_S[bucket]);
        let next_edge = AGE_EDGES_S
            .get(bucket + 1)
            .map_or(Nanos::MAX, |edge| Nanos::secs(*edge));
        let age = edge.max(self.times.pass).min(Nanos(next_edge.0 - 1));
        let since = self.times.now.saturating_sub(age);
        self.push(
            backing,
            Cohort {
                since,
                resident: missing,
                out: 0,
            },
        );
    }
}

/// The age bucket of `cohort`, at least 1.
fn bucket_of(cohort: &Cohort, now: Nanos) -> usize {
    age_bucket(cohort.age(now)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn reconcile(
        cohorts: &mut [Vec<Cohort>; 3],
        now_s: u64,
        anon: &[(usize, u64)],
        reaccessed: &[(usize, u64)],
    ) -> u64 {
        let mut target = [[0; NR_AGES]; 3];
        anon.iter()
            .for_each(|(bucket, bytes)| target[0][*bucket] = *bytes);
        let mut again = [0; NR_AGES];
        reaccessed
            .iter()
            .for_each(|(bucket, bytes)| again[*bucket] = *bytes);
        let times = Times {
            now: Nanos::secs(now_s),
            pass: Nanos::millis(500),
            slack: Nanos::millis(1500),
        };
        Reconciliation::new(cohorts, &target, times).run(&again)
    }

    fn cohort(since_s: u64, resident: u64, out: u64) -> Cohort {
        let since = Nanos::secs(since_s);
        Cohort { since, resident, out }
    }

    #[test]
    fn growth_of_idle_memory_begins_a_cohort() {
        let mut cohorts = [vec![cohort(100, 0, 700)], vec![], vec![]];
        assert_eq!(reconcile(&mut cohorts, 120, &[(1, 300), (4, 700)], &[]), 0);
        assert_eq!(cohorts[0], [cohort(100, 0, 700), cohort(119, 300, 0)]);
    }

    #[test]
    fn reaccessed_memory_refaults_by_the_share_that_left() {
        let mut cohorts = [vec![cohort(100, 300, 100), cohort(115, 400, 0)], vec![], vec![]];
        // Half of the memory idle for 10 s to 30 s was accessed; the younger cohort is untouched.
        assert_eq!(
            reconcile(&mut cohorts, 120, &[(3, 400), (4, 200)], &[(4, 200)]),
            50
        );
        assert_eq!(cohorts[0], [cohort(100, 150, 50), cohort(115, 400, 0)]);
    }

    #[test]
    fn freed_memory_is_no_refault() {
        let mut cohorts = [vec![cohort(100, 0, 400)], vec![], vec![]];
        assert_eq!(reconcile(&mut cohorts, 120, &[(4, 100)], &[]), 0);
        assert_eq!(cohorts[0], [cohort(100, 0, 100)]);
    }

    #[test]
    fn memory_near_an_edge_moves_to_the_recorded_side() {
        let mut cohorts = [vec![cohort(111, 0, 400)], vec![], vec![]];
        assert_eq!(reconcile(&mut cohorts, 120, &[(4, 400)], &[]), 0);
        assert_eq!(
            cohorts[0],
            [cohort(110, 0, 400)],
            "9 s is within the slack of 10 s"
        );
        assert_eq!(reconcile(&mut cohorts, 120, &[(3, 400)], &[]), 0);
        assert_eq!(cohorts[0][0].since, Nanos(110 * SECOND + 1));
    }

    #[test]
    fn reaccess_of_a_neighbour_bucket_is_found_by_its_surplus() {
        let mut cohorts = [vec![cohort(89, 0, 400), cohort(100, 0, 256)], vec![], vec![]];
        // Accessed after 29.9 s, seen at 31 s.
        assert_eq!(reconcile(&mut cohorts, 120, &[(4, 256)], &[(4, 400)]), 400);
        assert_eq!(cohorts[0].iter().map(Cohort::total).sum::<u64>(), 256);
    }
}
