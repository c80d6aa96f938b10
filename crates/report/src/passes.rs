//! Lengths of scan passes: the resolution of idle ages.

use std::collections::BTreeSet;

use serde::Serialize;
use thermo_engine::budget::Method;
use thermo_recording::model::Snapshot;
use thermo_units::Nanos;

use crate::series::Series;

/// Lengths of scan passes in seconds, over the snapshots of a recording. Each snapshot counts its slowest
/// target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PassLengths {
    /// Median.
    pub p50: f64,
    /// Maximum.
    pub max: f64,
}

/// Collects scan passes and monitoring methods from access tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passes {
    lengths: Series<Nanos>,
    longest: Nanos,
    methods: BTreeSet<&'static str>,
}

impl Passes {
    /// Adds a snapshot with data.
    pub(crate) fn add(&mut self, snapshot: &Snapshot) {
        let live = snapshot
            .targets
            .iter()
            .filter(|target| crate::tables::has_data(target));
        let mut slowest = None;
        for target in live {
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

    /// Names of the methods.
    pub(crate) fn methods(&self) -> Vec<&'static str> {
        self.methods.iter().copied().collect()
    }

    /// The lengths; `None` if no pass was complete.
    pub(crate) fn lengths(&self) -> Option<PassLengths> {
        let mut lengths = self.lengths.clone().into_points();
        lengths.sort_unstable();
        Some(PassLengths {
            p50: lengths.get(lengths.len() / 2)?.as_secs_f64(),
            max: self.longest.as_secs_f64(),
        })
    }
}
