//! The cost of monitoring: CPU and memory of thermo itself, and the estimated slow-down of the targets.
//!
//! CPU is in percent of one CPU, for all threads of thermo, from the start of the recording to its last cost
//! record. The resident size is the maximum.

use serde::Serialize;
use thermo_engine::access_tables::PageKind;
use thermo_recording::model::{AccessTables, Cost, Record, Region, Snapshot, Target};
use thermo_units::{Bytes, PAGE_SIZE};

/// The cost of monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct OwnCost {
    /// CPU time of all threads of thermo, in percent of one CPU; `None` if it was not recorded.
    pub own_cpu_percent: Option<f64>,
    /// The part of `own_cpu_percent` spent on monitoring, without applying schemes and writing.
    pub monitoring_cpu_percent: Option<f64>,
    /// `monitoring_cpu_percent` from the fourth second on. Before, monitoring may use up to 10 % of a CPU.
    pub steady_monitoring_cpu_percent: Option<f64>,
    /// Maximum resident size of thermo in bytes.
    pub own_rss_bytes: Option<u64>,
    /// Estimated slow-down of the targets, in percent of one CPU: 1 us for each accessed bit that was cleared
    /// and set again. CPU time that thermo takes from the targets is not included.
    pub slow_down_percent: Option<f64>,
    #[serde(skip)]
    cleared: ClearedBits,
    /// The first cost record after [`STARTUP_NS`].
    #[serde(skip)]
    steady_from: Option<Cost>,
}

/// The start of monitoring, in which the first scan may exceed the CPU budget.
const STARTUP_NS: u64 = 3_000_000_000;

/// The cost to a target of setting an accessed bit again: the page walk and the write to the page table. An
/// upper estimate.
const SET_BIT_COST_NS: u64 = 1000;
const HUGE_PAGE_SIZE: u64 = 2 << 20;

/// Accessed bits that were cleared and set again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ClearedBits {
    bits: u64,
    /// Duration of the snapshots that record the monitoring method. In others, cleared bits cannot be
    /// counted.
    monitored_ns: u64,
}

impl ClearedBits {
    fn add(&mut self, snapshot: &Snapshot) {
        if snapshot.targets.iter().any(|target| target.scanned.is_none()) {
            return;
        }
        let length_ns = snapshot.time_ns.saturating_sub(snapshot.start_ns);
        let of_target = |target: &Target| match (&target.tables, target.scanned) {
            (Some(tables), Some(true)) => bits_from_tables(tables, length_ns),
            (None, Some(true)) => {
                let bits = target.regions.iter().map(|r| bits_from_region(r, snapshot));
                bits.fold(0, u64::saturating_add)
            }
            // Each access check that found a region accessed cleared one bit.
            _ => target.regions.iter().map(|r| u64::from(r.nr_accesses)).sum(),
        };
        let bits = snapshot.targets.iter().map(of_target);
        // A damaged recording may have any numbers.
        self.bits = bits.fold(self.bits, u64::saturating_add);
        self.monitored_ns = self.monitored_ns.saturating_add(length_ns);
    }

    fn slow_down_percent(self) -> Option<f64> {
        let cost_ns = self.bits.saturating_mul(SET_BIT_COST_NS);
        (self.monitored_ns > 0).then(|| cost_ns as f64 / self.monitored_ns as f64 * 100.0)
    }
}

/// Each pass clears the accessed bit of every page that was accessed since the previous pass; a huge page has
/// one bit.
fn bits_from_tables(tables: &AccessTables, length_ns: u64) -> u64 {
    let pages = PageKind::ALL.into_iter().map(|kind| {
        let size = if kind.huge { HUGE_PAGE_SIZE } else { PAGE_SIZE };
        tables.idle[kind.index()][0].0 / size
    });
    let passes = length_ns as f64 / tables.pass.0.max(1) as f64;
    match tables.pass.0 {
        0 => 0,
        _ => (pages.sum::<u64>() as f64 * passes) as u64,
    }
}

/// An estimate for scans without tables: one pass in each snapshot.
fn bits_from_region(region: &Region, snapshot: &Snapshot) -> u64 {
    let pages = region.end.saturating_sub(region.start) / PAGE_SIZE;
    let bits =
        u128::from(pages) * u128::from(region.nr_accesses) / u128::from(snapshot.max_nr_accesses.max(1));
    u64::try_from(bits).unwrap_or(u64::MAX)
}

impl OwnCost {
    /// Adds `record` of a recording that started at `start_ns`.
    pub fn add(&mut self, record: &Record, start_ns: u64) {
        match record {
            Record::Cost(cost) => self.add_cost(cost, start_ns),
            Record::Snapshot(snapshot) => {
                self.cleared.add(snapshot);
                self.slow_down_percent = self.cleared.slow_down_percent();
            }
            _ => {}
        }
    }

    /// Adds the total cost from `start_ns` to `cost.time_ns`.
    fn add_cost(&mut self, cost: &Cost, start_ns: u64) {
        let wall = cost.time_ns.saturating_sub(start_ns);
        if wall > 0 {
            let percent = |cpu_ns: u64| Some(cpu_ns as f64 / wall as f64 * 100.0);
            self.own_cpu_percent = percent(cost.cpu_ns);
            self.monitoring_cpu_percent = percent(cost.monitoring_cpu_ns);
        }
        if wall >= STARTUP_NS {
            let from = *self.steady_from.get_or_insert(*cost);
            let (wall, cpu) = (
                cost.time_ns.saturating_sub(from.time_ns),
                cost.monitoring_cpu_ns.saturating_sub(from.monitoring_cpu_ns),
            );
            self.steady_monitoring_cpu_percent = (wall > 0).then(|| cpu as f64 / wall as f64 * 100.0);
        }
        self.own_rss_bytes = self.own_rss_bytes.max(Some(cost.rss));
    }

    /// `0.84 % of one CPU (0.61 % for monitoring from 3 s on), 7.20 MiB RSS`, the largest RSS.
    #[must_use]
    pub fn text(&self) -> String {
        let monitoring = match (self.steady_monitoring_cpu_percent, self.monitoring_cpu_percent) {
            (Some(percent), _) => format!(" ({percent:.2} % for monitoring from 3 s on)"),
            (None, Some(percent)) => format!(" ({percent:.2} % for monitoring)"),
            (None, None) => String::new(),
        };
        let cpu = self.own_cpu_percent.map_or_else(
            || "CPU not recorded".to_owned(),
            |all| format!("{all:.2} % of one CPU{monitoring}"),
        );
        let rss = self.own_rss_bytes.map(|rss| format!(", {} RSS", Bytes(rss)));
        cpu + &rss.unwrap_or_default()
    }

    /// `at most 0.07 %`: the cost of an accessed bit is an upper estimate.
    #[must_use]
    pub fn slow_down_text(&self) -> String {
        self.slow_down_percent.map_or_else(
            || "not known".to_owned(),
            |percent| format!("at most {percent:.2} %"),
        )
    }
}
