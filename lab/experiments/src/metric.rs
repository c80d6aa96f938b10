//! All metrics. Tables, JSON, CSV and plots use these declarations.

use std::collections::BTreeMap;

/// The measurements of one run by metric key, in base units (seconds, bytes, counts, percent).
pub type Measurements = BTreeMap<String, f64>;

/// A metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Name in raw results.
    pub key: String,
    /// Name in tables: the head of the first column.
    pub title: String,
    /// Unit in tables and plots.
    pub unit: &'static str,
    /// Base units in one `unit`.
    pub scale: f64,
    /// Printed digits after the decimal point.
    pub decimals: usize,
    /// Description, in a sentence.
    pub about: String,
    /// True when the sum over workloads is meaningful.
    pub adds_up: bool,
    /// True when configurations can be compared by it: it is a property of the workload.
    pub compares: bool,
}

/// The unit of memory metrics.
pub const MEMORY_UNIT: &str = "MiB";
const MIB: f64 = (1u64 << 20) as f64;

/// Wall time.
pub const RUNTIME: &str = "runtime_s";
/// User CPU time.
pub const CPU_USER: &str = "cpu_user_s";
/// System CPU time.
pub const CPU_SYSTEM: &str = "cpu_system_s";
/// Resident memory, average.
pub const MEMORY_AVG: &str = "memory_avg_bytes";
/// Resident memory, peak.
pub const MEMORY_PEAK: &str = "memory_peak_bytes";
/// Resident memory plus the size of its swapped pages in zram, average.
pub const NET_AVG: &str = "net_avg_bytes";
/// The same, average over the last quarter of the run.
pub const NET_END: &str = "net_end_bytes";
/// Bytes in swap, average.
pub const SWAP_AVG: &str = "swap_avg_bytes";
/// Major faults.
pub const MAJOR_FAULTS: &str = "major_faults";
/// Memory stall time (PSI `some`).
pub const PSI_SOME: &str = "psi_some_s";
/// CPU time of the attached `thermo`.
pub const THERMO_CPU: &str = "thermo_cpu_percent";
/// Peak memory of the attached `thermo`.
pub const THERMO_RSS: &str = "thermo_rss_bytes";
/// System CPU time of the attached `thermo`.
pub const THERMO_CPU_SYSTEM: &str = "thermo_cpu_system_percent";
/// CPU time of monitoring, from the recording.
pub const MONITORING_CPU: &str = "monitoring_cpu_percent";
/// Share of memory reported as hot that is hot.
pub const PRECISION: &str = "precision_percent";
/// Share of hot memory that is reported as hot.
pub const RECALL: &str = "recall_percent";
/// Wrongly classified bytes relative to hot bytes.
pub const HOT_ERROR: &str = "hot_error_percent";
/// Distance of the borders of hot memory from the reported ones.
pub const EDGE_ERROR: &str = "edge_error_pages";
/// Delay until a change of hot memory is reported.
pub const DETECTION_DELAY: &str = "detection_delay_s";
/// Share of hot memory that is reported as unknown.
pub const UNKNOWN: &str = "unknown_percent";
/// Used memory of the machine (MemTotal minus MemFree and the pages on per-CPU lists), average.
pub const MEMUSED_AVG: &str = "memused_avg_bytes";
/// Anonymous huge pages of the machine, average.
pub const HUGE_AVG: &str = "anon_huge_avg_bytes";
/// Collapses into huge pages.
pub const COLLAPSES: &str = "collapses";
/// Splits of huge pages.
pub const SPLITS: &str = "splits";
/// Page faults that allocated a huge page.
pub const HUGE_FAULTS: &str = "huge_faults";
/// Prefix of latency keys; the workload's name of the latency follows.
pub const LATENCY: &str = "latency.";

/// Number format: unit, base units in it, digits after the decimal point.
type Format = (&'static str, f64, usize);

const MEMORY: Format = (MEMORY_UNIT, MIB, 1);
const MILLISECONDS: Format = ("s", 1.0, 3);
const SECONDS: Format = ("s", 1.0, 2);
const PERCENT: Format = ("%", 1.0, 2);
const TENTHS: Format = ("%", 1.0, 1);
const NUMBER: Format = ("", 1.0, 1);

/// Declaration of a metric: key, title, number format, description.
type Row = (&'static str, &'static str, Format, &'static str);

/// Metrics of the workload.
#[rustfmt::skip]
const OF_WORKLOAD: [Row; 10] = [
    (NET_AVG, "memory.net.avg", MEMORY, "resident memory of the workload plus the size of its swapped pages in zram, average"),
    (NET_END, "memory.net.end", MEMORY, "the same, average over the last quarter of the run"),
    (MEMORY_AVG, "memory.avg", MEMORY, "resident memory of the workload, average"),
    (MEMORY_PEAK, "memory.peak", MEMORY, "resident memory of the workload, largest sample"),
    (RUNTIME, "runtime", MILLISECONDS, "wall time of the measured part"),
    (CPU_USER, "cpu.user", SECONDS, "user CPU time of the workload"),
    (CPU_SYSTEM, "cpu.system", SECONDS, "system CPU time of the workload"),
    (MAJOR_FAULTS, "major_faults", ("faults", 1.0, 0), "major page faults of the workload (reads from swap or files)"),
    (SWAP_AVG, "swap.avg", MEMORY, "memory of the workload in swap, uncompressed, average"),
    (PSI_SOME, "psi.some", MILLISECONDS, "time in which some task stalled for memory (stalls on zram are under-reported)"),
];

/// Metrics of the attached `thermo`, and the accuracy of its recording.
#[rustfmt::skip]
const OF_THERMO: [Row; 10] = [
    (THERMO_CPU, "thermo.cpu", PERCENT, "CPU time of the attached thermo, percent of one CPU"),
    (THERMO_RSS, "thermo.rss", MEMORY, "peak resident memory of the attached thermo"),
    (THERMO_CPU_SYSTEM, "thermo.cpu.kernel", PERCENT, "system CPU time of the attached thermo, percent of one CPU"),
    (MONITORING_CPU, "monitoring.cpu", PERCENT, "CPU time of monitoring, percent of one CPU"),
    (PRECISION, "precision", TENTHS, "share of the bytes reported as hot that are hot"),
    (RECALL, "recall", TENTHS, "share of the hot bytes that are reported as hot"),
    (HOT_ERROR, "hot.error", TENTHS, "bytes wrongly reported as hot or as not hot, relative to hot bytes"),
    (EDGE_ERROR, "edge.error", ("pages", 1.0, 1), "mean distance of the borders of hot memory from the nearest reported border"),
    (DETECTION_DELAY, "detection.delay", SECONDS, "mean time until a change of hot memory is reported"),
    (UNKNOWN, "unknown", PERCENT, "share of the hot bytes that are reported as unknown; recall excludes them"),
];

/// Metrics of the whole machine.
#[rustfmt::skip]
const OF_MACHINE: [Row; 1] = [
    (MEMUSED_AVG, "memused.avg", MEMORY, "used memory of the machine (MemTotal minus MemFree and free pages on per-CPU lists), average"),
];

/// Metrics of huge pages. `orig` may have none, so configurations are not compared by them.
#[rustfmt::skip]
const OF_HUGE: [Row; 4] = [
    (HUGE_AVG, "anon_huge.avg", MEMORY, "anonymous huge pages of the machine, average"),
    (COLLAPSES, "collapses", NUMBER, "collapses of small pages into huge pages"),
    (SPLITS, "splits", NUMBER, "splits of huge pages"),
    (HUGE_FAULTS, "huge_faults", NUMBER, "page faults that allocated a huge page"),
];

/// All metrics in the order of the tables. Latencies come last.
#[must_use]
pub fn all<'a>(latencies: impl IntoIterator<Item = &'a str>) -> Vec<Metric> {
    let declared = |rows: &[Row], adds_up, compares| {
        let metric = |&(key, title, (unit, scale, decimals), about): &Row| Metric {
            key: key.to_owned(),
            title: title.to_owned(),
            unit,
            scale,
            decimals,
            about: about.to_owned(),
            adds_up,
            compares,
        };
        rows.iter().map(metric).collect::<Vec<_>>()
    };
    let mut metrics = declared(&OF_WORKLOAD, true, true);
    metrics.extend(declared(&OF_THERMO, false, false));
    metrics.extend(declared(&OF_MACHINE, true, true));
    metrics.extend(declared(&OF_HUGE, true, false));
    metrics.extend(latencies.into_iter().map(latency));
    metrics
}

fn latency(name: &str) -> Metric {
    Metric {
        key: format!("{LATENCY}{name}"),
        title: format!("latency.{name}"),
        unit: "",
        scale: 1.0,
        decimals: 3,
        about: format!("{name}, as printed by the workload's load"),
        adds_up: false,
        compares: true,
    }
}

impl Metric {
    /// Formats a value in the metric's unit.
    #[must_use]
    pub fn format(&self, value: f64) -> String {
        format!("{:.*}", self.decimals, value / self.scale)
    }

    /// Title and unit.
    #[must_use]
    pub fn heading(&self) -> String {
        if self.unit.is_empty() {
            self.title.clone()
        } else {
            format!("{} [{}]", self.title, self.unit)
        }
    }
}
