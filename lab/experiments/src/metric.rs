//! What is measured: declared once, shown by table, JSON, CSV and pictures.

use std::collections::BTreeMap;

/// The measurements of one run by the key of their metric, in base units (seconds, bytes, counts, percent).
pub type Measurements = BTreeMap<String, f64>;

/// One thing that is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name in raw results.
    pub key: String,
    /// Its name in tables: the head of the first column.
    pub title: String,
    /// The unit it is shown in.
    pub unit: &'static str,
    /// How many base units the shown unit has.
    pub scale: f64,
    /// Digits shown after the point.
    pub decimals: usize,
    /// What it is, in a sentence.
    pub about: String,
    /// True when a sum over workloads means something.
    pub adds_up: bool,
    /// True when it is a property of the workload, so that a configuration can be compared to `orig`.
    pub compares: bool,
}

/// The unit memory is shown in.
pub const MEMORY_UNIT: &str = "MiB";
const MIB: f64 = (1u64 << 20) as f64;

/// Wall time.
pub const RUNTIME: &str = "runtime_s";
/// CPU time in programs.
pub const CPU_USER: &str = "cpu_user_s";
/// CPU time in the kernel.
pub const CPU_SYSTEM: &str = "cpu_system_s";
/// Resident memory, average.
pub const MEMORY_AVG: &str = "memory_avg_bytes";
/// Resident memory, peak.
pub const MEMORY_PEAK: &str = "memory_peak_bytes";
/// Resident memory and what zram holds for it, average.
pub const NET_AVG: &str = "net_avg_bytes";
/// The same over the last quarter.
pub const NET_END: &str = "net_end_bytes";
/// Bytes in swap, average.
pub const SWAP_AVG: &str = "swap_avg_bytes";
/// Major faults.
pub const MAJOR_FAULTS: &str = "major_faults";
/// Time in which something waited for memory.
pub const PSI_SOME: &str = "psi_some_s";
/// CPU of the attached `thermo`.
pub const OUR_CPU: &str = "thermo_cpu_percent";
/// Peak memory of the attached `thermo`.
pub const OUR_RSS: &str = "thermo_rss_bytes";
/// CPU of the attached `thermo` that was spent in the kernel.
pub const OUR_CPU_SYSTEM: &str = "thermo_cpu_system_percent";
/// CPU of looking, as the recording tells.
pub const MONITORING_CPU: &str = "monitoring_cpu_percent";
/// How much of what was told to be hot is.
pub const PRECISION: &str = "precision_percent";
/// How much of what is hot was told to be.
pub const RECALL: &str = "recall_percent";
/// Bytes told wrongly beside those that are hot.
pub const HOT_ERROR: &str = "hot_error_percent";
/// How far borders are off.
pub const EDGE_ERROR: &str = "edge_error_pages";
/// How long until a new phase was seen.
pub const NOTICE: &str = "notice_s";
/// Memory that could not be judged.
pub const UNKNOWN: &str = "unknown_percent";
/// Memory of the whole machine in use (MemTotal less MemFree and what the CPUs' own lists hold), average.
pub const MEMUSED_AVG: &str = "memused_avg_bytes";
/// Anonymous huge pages of the whole machine, average.
pub const HUGE_AVG: &str = "anon_huge_avg_bytes";
/// Huge pages made of small ones.
pub const COLLAPSES: &str = "collapses";
/// Huge pages split.
pub const SPLITS: &str = "splits";
/// Page faults that were given a huge page.
pub const HUGE_FAULTS: &str = "huge_faults";
/// What latency keys begin with; the workload's own name for it follows.
pub const LATENCY: &str = "latency.";

/// How a value is shown: the unit, how many base units that has, and digits after the point.
type Shown = (&'static str, f64, usize);

const MEMORY: Shown = (MEMORY_UNIT, MIB, 1);
const MILLISECONDS: Shown = ("s", 1.0, 3);
const SECONDS: Shown = ("s", 1.0, 2);
const PERCENT: Shown = ("%", 1.0, 2);
const TENTHS: Shown = ("%", 1.0, 1);
const NUMBER: Shown = ("", 1.0, 1);

/// A metric as it is declared: key, title, how it is shown, and what it is.
type Row = (&'static str, &'static str, Shown, &'static str);

/// Of the workload.
#[rustfmt::skip]
const OF_WORKLOAD: [Row; 10] = [
    (NET_AVG, "memory.net.avg", MEMORY, "resident memory and what zram holds for the workload, average"),
    (NET_END, "memory.net.end", MEMORY, "the same, average over the last quarter of the run"),
    (MEMORY_AVG, "memory.avg", MEMORY, "resident memory of the workload, average"),
    (MEMORY_PEAK, "memory.peak", MEMORY, "resident memory of the workload, largest sample"),
    (RUNTIME, "runtime", MILLISECONDS, "wall time of the measured part"),
    (CPU_USER, "cpu.user", SECONDS, "CPU time of the workload in programs"),
    (CPU_SYSTEM, "cpu.system", SECONDS, "CPU time of the workload in the kernel"),
    (MAJOR_FAULTS, "major_faults", ("faults", 1.0, 0), "page faults of the workload that had to read swap or files"),
    (SWAP_AVG, "swap.avg", MEMORY, "memory of the workload in swap, uncompressed, average"),
    (PSI_SOME, "psi.some", MILLISECONDS, "time in which some task waited for memory (zram waits are under-reported)"),
];

/// Of the attached `thermo`, and what its recordings are judged by.
#[rustfmt::skip]
const OURS: [Row; 10] = [
    (OUR_CPU, "thermo.cpu", PERCENT, "CPU time of the attached thermo, percent of one CPU"),
    (OUR_RSS, "thermo.rss", MEMORY, "peak resident memory of the attached thermo"),
    (OUR_CPU_SYSTEM, "thermo.cpu.kernel", PERCENT, "the part of it that was spent in the kernel"),
    (MONITORING_CPU, "looking.cpu", PERCENT, "CPU time of looking, percent of one CPU"),
    (PRECISION, "precision", TENTHS, "how much of what was told to be hot is, by bytes"),
    (RECALL, "recall", TENTHS, "how much of what is hot was told to be, by bytes"),
    (HOT_ERROR, "hot.error", TENTHS, "bytes told wrongly, as hot or as not, beside those that are hot"),
    (EDGE_ERROR, "edge.error", ("pages", 1.0, 1), "how far borders of what is hot lie from the nearest told"),
    (NOTICE, "notice", SECONDS, "how long it took until a change of what is hot was told"),
    (UNKNOWN, "unknown", PERCENT, "what is hot and was told to be unknown, which recall leaves out"),
];

/// Of the whole machine.
#[rustfmt::skip]
const OF_MACHINE: [Row; 1] = [
    (MEMUSED_AVG, "memused.avg", MEMORY, "memory of the whole machine in use (MemTotal less MemFree and free pages that CPUs hold), average"),
];

/// Of huge pages: `orig` may have none, so there is nothing to compare to.
#[rustfmt::skip]
const OF_HUGE: [Row; 4] = [
    (HUGE_AVG, "anon_huge.avg", MEMORY, "anonymous huge pages of the machine, average"),
    (COLLAPSES, "collapses", NUMBER, "huge pages made of small ones"),
    (SPLITS, "splits", NUMBER, "huge pages split"),
    (HUGE_FAULTS, "huge_faults", NUMBER, "page faults that were given a huge page"),
];

/// Every metric there is, in the order it is shown, those that workloads print last.
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
    metrics.extend(declared(&OURS, false, false));
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
        about: format!("{name}, as the workload's load printed it"),
        adds_up: false,
        compares: true,
    }
}

impl Metric {
    /// A value in the shown unit.
    #[must_use]
    pub fn shown(&self, value: f64) -> String {
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
