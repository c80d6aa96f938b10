//! How long scan passes took: the resolution of idle ages.

use std::collections::BTreeSet;

use serde::Serialize;
use thermo_engine::budget::Method;
use thermo_recording::model::Snapshot;
use thermo_units::Nanos;

use crate::series::Series;

/// Lengths of scan passes in seconds, over the snapshots of a recording; the slowest target counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PassLengths {
    /// Median.
    pub p50: f64,
    /// Longest.
    pub max: f64,
}

/// Scan passes and methods, as tables tell of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passes {
    lengths: Series<Nanos>,
    longest: Nanos,
    methods: BTreeSet<&'static str>,
}

impl Passes {
    /// Takes a snapshot in which a target lived.
    pub(crate) fn add(&mut self, snapshot: &Snapshot) {
        let living = snapshot
            .targets
            .iter()
            .filter(|target| crate::tables::lives(target));
        let mut slowest = None;
        for target in living {
            let tables = target.tables.as_deref();
            let method = tables.map_or(Method::Sampling, |tables| tables.method);
            self.methods.insert(method.name());
            let scanned = tables.filter(|tables| tables.method == Method::Scan && tables.nr_passes > 0);
            slowest = slowest.max(scanned.map(|tables| tables.pass));
        }
        if let Some(pass) = slowest {
            self.lengths.push(pass);
            self.longest = self.longest.max(pass);
        }
    }

    /// The methods, by name.
    pub(crate) fn methods(&self) -> Vec<&'static str> {
        self.methods.iter().copied().collect()
    }

    /// The lengths, if a pass was complete.
    pub(crate) fn lengths(&self) -> Option<PassLengths> {
        let mut lengths = self.lengths.clone().into_points();
        lengths.sort_unstable();
        Some(PassLengths {
            p50: lengths.get(lengths.len() / 2)?.as_secs_f64(),
            max: self.longest.as_secs_f64(),
        })
    }
}
