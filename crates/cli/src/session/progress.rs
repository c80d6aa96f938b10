//! The line that tells how far a session is, on a terminal only.

use std::io::{self, IsTerminal, Write};

use thermo_core::{Bytes, Nanos};
use thermo_record::model::Snapshot;

/// A line on standard error that is written over by the next.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    on_terminal: bool,
}

/// Sizes of one snapshot by how often they are accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Heat {
    regions: usize,
    hot: u64,
    warm: u64,
    cold: u64,
    unknown: u64,
}

impl Progress {
    /// Shows nothing when standard error is not a terminal.
    pub fn new() -> Self {
        Self { shown: false, on_terminal: io::stderr().is_terminal() }
    }

    /// Shows where the session is.
    pub fn show(&mut self, elapsed: Nanos, snapshot: Option<&Snapshot>, cpu_percent: f64) {
        if !self.on_terminal {
            return;
        }
        let heat = snapshot.map(Heat::of).unwrap_or_default();
        // A terminal that went away takes its progress line with it.
        drop(write!(
            io::stderr(),
            "\r\x1b[K{:>3} s  {} regions  hot {}  warm {}  cold {}  our CPU {cpu_percent:.1} %",
            elapsed.0 / 1_000_000_000,
            heat.regions,
            Bytes(heat.hot),
            Bytes(heat.warm),
            Bytes(heat.cold),
        ));
        self.shown = true;
    }

    /// Takes the line away, so that something else can be said.
    pub fn clear(&mut self) {
        if self.shown {
            drop(write!(io::stderr(), "\r\x1b[K"));
            self.shown = false;
        }
    }
}

impl Heat {
    /// Hot: accessed in at least half of the looks; cold: in none.
    fn of(snapshot: &Snapshot) -> Self {
        let mut heat = Self::default();
        for region in snapshot.targets.iter().flat_map(|target| &target.regions) {
            heat.regions += 1;
            let sz = region.end - region.start;
            match region.nr_accesses {
                _ if region.unknown => heat.unknown += sz,
                0 => heat.cold += sz,
                n if n >= snapshot.max_nr_accesses.div_ceil(2) => heat.hot += sz,
                _ => heat.warm += sz,
            }
        }
        heat
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_record::model::{Region, Target};

    #[test]
    fn half_of_the_looks_is_hot_and_none_is_cold() {
        let region = |start, nr_accesses, unknown| Region { start, end: start + 4096, nr_accesses, age: 0, unknown };
        let regions = vec![region(0, 20, false), region(4096, 10, false), region(8192, 9, false)];
        let more = vec![region(0, 0, false), region(4096, 0, true)];
        let snapshot = Snapshot {
            max_nr_accesses: 20,
            targets: vec![
                Target { id: 0, pid: None, regions },
                Target { id: 1, pid: None, regions: more },
            ],
            ..Snapshot::default()
        };
        let heat = Heat::of(&snapshot);
        assert_eq!(heat, Heat { regions: 5, hot: 8192, warm: 4096, cold: 4096, unknown: 4096 });
    }
}
