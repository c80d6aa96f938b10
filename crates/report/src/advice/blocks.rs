//! What was watched, in blocks of ten seconds: the data of every estimate.

use thermo_engine::access_tables::{AGE_EDGES_S, AccessTables, Backing, NR_AGES, PageKind};
use thermo_units::{Bytes, Nanos};

/// Length of a block. Re-accesses come in bursts; blocks as long as this are independent enough for the mean
/// of a few of them.
const BLOCK: Nanos = Nanos::secs(10);

/// All backings.
pub(super) const BACKINGS: [Backing; NR_BACKINGS] = [Backing::Anon, Backing::File, Backing::Shmem];

/// Number of backings: anonymous, file, shared memory.
pub(super) const NR_BACKINGS: usize = 3;

/// The snapshots of about ten seconds. Sizes are sums over time, in bytes times seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Block {
    /// Start of the first snapshot.
    pub(super) start: Nanos,
    /// Length in seconds.
    pub(super) seconds: f64,
    resident: f64,
    working_set: f64,
    unknown: f64,
    /// By backing and idle age.
    idle: [[f64; NR_AGES]; NR_BACKINGS],
    /// Bytes by idle age.
    reaccessed: [f64; NR_AGES],
}

/// All blocks of a recording.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks(Vec<Block>);

impl Blocks {
    /// Adds a snapshot that covers the time from `start` to `end`.
    pub(super) fn add(&mut self, start: Nanos, end: Nanos, tables: &AccessTables) {
        let seconds = end.saturating_sub(start).as_secs_f64();
        match self.0.last_mut() {
            Some(block) if end.saturating_sub(block.start) <= BLOCK => block.add(seconds, tables),
            _ => {
                let mut block = Block::new(start);
                block.add(seconds, tables);
                self.0.push(block);
            }
        }
    }

    /// The last block; an empty one before the first snapshot.
    pub(super) fn end(&self) -> Block {
        self.0.last().copied().unwrap_or(Block::new(Nanos::ZERO))
    }

    /// The blocks that begin at `since` or later. A last block of less than half the length is left out: its
    /// rates say little.
    pub(super) fn since(&self, since: Nanos) -> &[Block] {
        let first = self.0.partition_point(|block| block.start < since);
        match self.0.get(first..).unwrap_or_default() {
            [blocks @ .., last] if !blocks.is_empty() && last.seconds < BLOCK.as_secs_f64() / 2.0 => blocks,
            blocks => blocks,
        }
    }
}

impl Block {
    const fn new(start: Nanos) -> Self {
        Self {
            start,
            seconds: 0.0,
            resident: 0.0,
            working_set: 0.0,
            unknown: 0.0,
            idle: [[0.0; NR_AGES]; NR_BACKINGS],
            reaccessed: [0.0; NR_AGES],
        }
    }

    fn add(&mut self, seconds: f64, tables: &AccessTables) {
        let weighted = |bytes: Bytes| bytes.0 as f64 * seconds;
        self.seconds += seconds;
        self.resident += weighted(tables.resident());
        self.working_set += weighted(tables.working_set());
        self.unknown += weighted(tables.unknown());
        for (kind, ages) in PageKind::ALL.iter().zip(&tables.idle) {
            let sums = self
                .idle
                .get_mut(backing_index(kind.backing))
                .into_iter()
                .flatten();
            sums.zip(ages).for_each(|(sum, bytes)| *sum += weighted(*bytes));
        }
        let sums = self.reaccessed.iter_mut();
        sums.zip(&tables.reaccessed)
            .for_each(|(sum, bytes)| *sum += bytes.0 as f64);
    }

    /// Mean resident bytes.
    pub(super) fn resident(&self) -> f64 {
        self.mean(self.resident)
    }

    /// Mean bytes accessed within the window of the working set.
    pub(super) fn working_set(&self) -> f64 {
        self.mean(self.working_set)
    }

    /// Mean bytes of unknown idle age.
    pub(super) fn unknown(&self) -> f64 {
        self.mean(self.unknown)
    }

    /// Mean bytes of `backing` by idle age.
    pub(super) fn idle(&self, backing: Backing) -> [f64; NR_AGES] {
        let sums = self.idle.get(backing_index(backing)).copied();
        sums.unwrap_or_default().map(|sum| self.mean(sum))
    }

    /// Mean bytes of all backings that were idle for the age with this index or longer, those of each backing
    /// multiplied by its `share`.
    pub(super) fn idle_from(&self, age: usize, share: impl Fn(Backing) -> f64) -> f64 {
        let of_backing = |backing: Backing| {
            let bytes: f64 = self.idle(backing).iter().skip(age).sum();
            bytes * share(backing)
        };
        BACKINGS.into_iter().map(of_backing).sum()
    }

    /// Bytes a second that were accessed again after `age_s` seconds or longer. Within a bucket, accesses are
    /// taken to be spread evenly over the ages.
    pub(super) fn reaccessed_per_second(&self, age_s: f64) -> f64 {
        let edges = AGE_EDGES_S.iter().map(|edge| *edge as f64);
        let ends = edges.clone().skip(1).chain([f64::INFINITY]);
        let share = |(start, end): (f64, f64)| match (end - age_s) / (end - start) {
            // The last bucket has no end.
            share if share.is_nan() => 1.0,
            share => share.clamp(0.0, 1.0),
        };
        let buckets = self.reaccessed.iter().zip(edges.zip(ends).map(share));
        self.mean(buckets.map(|(bytes, share)| bytes * share).sum())
    }

    fn mean(&self, sum: f64) -> f64 {
        sum / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// Index of a backing in [`Block`].
pub(super) const fn backing_index(backing: Backing) -> usize {
    backing as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_engine::budget::Method;

    #[test]
    fn blocks_average_sizes_and_add_accesses() {
        let mut blocks = Blocks::default();
        for second in 0..26_u64 {
            let mut tables = AccessTables::new(Method::Scan);
            tables.idle[PageKind::new(Backing::File, true).index()][5] =
                Bytes(if second < 10 { 100 } else { 300 });
            tables.reaccessed[5] = Bytes(6);
            blocks.add(Nanos::secs(second), Nanos::secs(second + 1), &tables);
        }
        let all = blocks.since(Nanos::ZERO);
        assert_eq!(all.len(), 3);
        let idle = |block: &Block, age| block.idle_from(age, |_| 1.0);
        assert_eq!(
            (idle(&all[0], 5), idle(&all[1], 5), idle(&all[1], 6)),
            (100.0, 300.0, 0.0)
        );
        let of_files = |backing| f64::from(u8::from(backing == Backing::File)) / 4.0;
        assert_eq!(all[0].idle_from(0, of_files), 25.0);
        assert_eq!(all[0].idle(Backing::File)[5], 100.0);
        assert_eq!(all[2].seconds, 6.0);
        // Ages of 30 to 60 s.
        let rates = [0.0, 30.0, 45.0, 60.0, 1e9].map(|age_s| all[2].reaccessed_per_second(age_s));
        assert_eq!(rates, [6.0, 6.0, 3.0, 0.0, 0.0]);
        assert_eq!(blocks.since(Nanos::secs(11)).len(), 1);
        blocks.add(Nanos::secs(30), Nanos::secs(31), &AccessTables::new(Method::Scan));
        assert_eq!(blocks.since(Nanos::ZERO).len(), 3, "one second says little");
    }
}
