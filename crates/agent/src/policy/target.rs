//! The state of a target: all processes of a policy with one name.

use std::collections::VecDeque;

use thermo_actions::Returns;
use thermo_engine::access_tables::{AccessTables, Backing, NR_AGES, PageKind};
use thermo_units::{Bytes, Nanos};

use crate::api::{self, AgeBytes, KindAges};

/// Refaults are counted over this time.
const MINUTE: Nanos = Nanos::secs(60);

/// The state of a target.
#[derive(Debug, Default)]
pub struct TargetState {
    /// Its processes.
    pub pids: Vec<u32>,
    /// The tables of all of them; `None` before the first snapshot.
    pub tables: Option<AccessTables>,
    /// Re-accesses since the agent started.
    pub reaccessed: [Bytes; NR_AGES],
    /// Bytes in swap.
    pub swap: Bytes,
    /// What is out now: only `still_out` and `in_swap` count.
    pub out: Returns,
    /// What came back, with the time when that was seen.
    back: VecDeque<(Nanos, Bytes)>,
    /// Bytes that are saved now.
    pub net_saved: i64,
}

impl TargetState {
    /// Adds a process.
    pub fn add_process(&mut self, pid: u32, tables: Option<&AccessTables>) {
        self.pids.push(pid);
        match (&mut self.tables, tables) {
            (Some(sum), Some(tables)) => sum.add(tables),
            (sum @ None, Some(tables)) => *sum = Some(*tables),
            (_, None) => {}
        }
    }

    /// Forgets the processes, which are added anew.
    pub fn begin(&mut self) {
        self.pids.clear();
        self.tables = None;
        self.out = Returns::default();
    }

    /// Adds what became of the memory of one process that was paged out.
    pub fn add_returns(&mut self, returns: &Returns, now: Nanos) {
        self.out.still_out += returns.still_out;
        self.out.in_swap += returns.in_swap;
        if returns.back() > Bytes::ZERO {
            self.back.push_back((now, returns.back()));
        }
    }

    /// Bytes that came back in the last minute.
    pub fn refaults(&mut self, now: Nanos) -> Bytes {
        while self
            .back
            .front()
            .is_some_and(|(when, _)| now.saturating_sub(*when) > MINUTE)
        {
            self.back.pop_front();
        }
        self.back.iter().map(|(_, bytes)| *bytes).sum()
    }

    /// Forgets what came back.
    pub fn forget_refaults(&mut self) {
        self.back.clear();
    }

    /// Bytes that were accessed within the last minute.
    #[must_use]
    pub fn working_set(&self) -> Bytes {
        self.tables
            .as_ref()
            .map_or(Bytes::ZERO, |tables| tables.working_set())
    }

    /// Resident bytes of known and unknown idle age.
    #[must_use]
    pub fn resident(&self) -> Bytes {
        self.tables.as_ref().map_or(Bytes::ZERO, AccessTables::resident)
    }

    /// Resident bytes of files by idle age.
    #[must_use]
    pub fn file_ages(&self) -> [u64; NR_AGES] {
        let kinds = [false, true].map(|huge| PageKind::new(Backing::File, huge).index());
        let mut sums = [0; NR_AGES];
        let of_files =
            |tables: &AccessTables| kinds.map(|kind| tables.idle.get(kind).copied().unwrap_or_default());
        for ages in self.tables.iter().flat_map(of_files) {
            for (sum, bytes) in sums.iter_mut().zip(ages) {
                *sum += bytes.0;
            }
        }
        sums
    }

    /// Computes what is saved now. `cost`: the memory that a byte in swap occupies.
    pub fn update_net_saved(&mut self, cost: f64) {
        // The cast cannot lose: it saturates.
        #[expect(clippy::cast_possible_truncation, reason = "a saturating cast is wanted")]
        let occupied = (self.out.in_swap.0 as f64 * cost) as i64;
        self.net_saved = self.out.still_out.0.cast_signed().saturating_sub(occupied);
    }

    /// The target as others see it, without names and mode.
    #[must_use]
    pub fn published(&self, refaults: Bytes) -> api::Target {
        let empty = AccessTables::new(thermo_engine::budget::Method::Scan);
        let tables = self.tables.as_ref().unwrap_or(&empty);
        let has_pass = tables.nr_passes > 0;
        api::Target {
            pids: self.pids.clone(),
            resident_bytes: tables.resident().0,
            swap_bytes: self.swap.0,
            unknown_bytes: tables.unknown.iter().map(|bytes| bytes.0).sum(),
            working_set_bytes: self.working_set().0,
            ages: AgeBytes::rows(&tables.ages()),
            kinds: kinds(tables),
            reaccess: AgeBytes::rows(&self.reaccessed),
            net_saved_bytes: self.net_saved,
            refault_bytes_per_min: refaults.0,
            pass_s: has_pass.then(|| tables.pass.as_secs_f64()),
            ..api::Target::default()
        }
    }
}

fn kinds(tables: &AccessTables) -> Vec<KindAges> {
    let with_bytes = |(kind, ages): (PageKind, &[Bytes; NR_AGES])| {
        let has_bytes = ages.iter().any(|bytes| *bytes > Bytes::ZERO);
        has_bytes.then(|| KindAges {
            kind: kind.name().to_owned(),
            ages: AgeBytes::rows(ages),
        })
    };
    PageKind::ALL
        .into_iter()
        .zip(&tables.idle)
        .filter_map(with_bytes)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_engine::budget::Method;

    #[test]
    fn target_sums_its_processes() {
        let mut target = TargetState::default();
        let mut tables = AccessTables::new(Method::Scan);
        tables.idle[0][0] = Bytes::mib(1);
        tables.idle[0][9] = Bytes::mib(2);
        tables.nr_passes = 1;
        target.add_process(7, Some(&tables));
        target.add_process(8, Some(&tables));
        target.add_process(9, None);
        let published = target.published(Bytes(5));
        assert_eq!((published.pids.len(), published.resident_bytes), (3, 6 << 20));
        assert_eq!(published.ages.iter().map(|row| row.bytes).sum::<u64>(), 6 << 20);
        assert_eq!(
            (published.kinds.len(), published.kinds[0].kind.as_str()),
            (1, "anon")
        );
        assert_eq!(published.working_set_bytes, 2 << 20);
        target.begin();
        assert_eq!(target.resident(), Bytes::ZERO);
    }

    #[test]
    fn refaults_count_for_a_minute() {
        let mut target = TargetState::default();
        let back = Returns {
            within_1min: Bytes::mib(3),
            ..Returns::default()
        };
        target.add_returns(&back, Nanos::secs(10));
        target.add_returns(&back, Nanos::secs(50));
        assert_eq!(target.refaults(Nanos::secs(60)), Bytes::mib(6));
        assert_eq!(target.refaults(Nanos::secs(71)), Bytes::mib(3));
    }

    #[test]
    fn swap_that_compresses_little_saves_little() {
        let mut target = TargetState::default();
        let out = Returns {
            still_out: Bytes::mib(10),
            in_swap: Bytes::mib(8),
            ..Returns::default()
        };
        target.add_returns(&out, Nanos::ZERO);
        target.update_net_saved(0.5);
        assert_eq!(target.net_saved, 6 << 20);
        target.update_net_saved(1.5);
        assert_eq!(target.net_saved, -2 << 20);
    }
}
