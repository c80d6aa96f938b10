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
pub const LOOKING_CPU: &str = "looking_cpu_percent";
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
/// Memory of the whole machine in use (MemTotal less MemFree), average.
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

/// What recordings are judged by, and what they cost.
fn judged() -> impl Iterator<Item = Metric> {
    [
        (
            OUR_CPU_SYSTEM,
            "thermo.cpu.kernel",
            "%",
            2,
            "the part of it that was spent in the kernel",
        ),
        (
            LOOKING_CPU,
            "looking.cpu",
            "%",
            2,
            "CPU time of looking, percent of one CPU",
        ),
        (
            PRECISION,
            "precision",
            "%",
            1,
            "how much of what was told to be hot is, by bytes",
        ),
        (
            RECALL,
            "recall",
            "%",
            1,
            "how much of what is hot was told to be, by bytes",
        ),
        (
            HOT_ERROR,
            "hot.error",
            "%",
            1,
            "bytes told wrongly, as hot or as not, beside those that are hot",
        ),
        (
            EDGE_ERROR,
            "edge.error",
            "pages",
            1,
            "how far borders of what is hot lie from the nearest told",
        ),
        (
            NOTICE,
            "notice",
            "s",
            2,
            "how long it took until a change of what is hot was told",
        ),
        (
            UNKNOWN,
            "unknown",
            "%",
            2,
            "what is hot and was told to be unknown, which recall leaves out",
        ),
    ]
    .into_iter()
    .map(|(key, title, unit, decimals, about)| Metric {
        key: key.to_owned(),
        title: title.to_owned(),
        unit,
        scale: 1.0,
        decimals,
        about: about.to_owned(),
        adds_up: false,
        compares: false,
    })
}

/// Every metric there is, in the order it is shown, those that workloads print last.
#[must_use]
pub fn all<'a>(latencies: impl IntoIterator<Item = &'a str>) -> Vec<Metric> {
    let new = |key: &str, title: &str, unit, scale, decimals, about: &str| Metric {
        key: key.to_owned(),
        title: title.to_owned(),
        unit,
        scale,
        decimals,
        about: about.to_owned(),
        adds_up: true,
        compares: true,
    };
    let ours = |metric: Metric| Metric {
        adds_up: false,
        compares: false,
        ..metric
    };
    let mut metrics = vec![
        new(
            NET_AVG,
            "memory.net.avg",
            MEMORY_UNIT,
            MIB,
            1,
            "resident memory and what zram holds for the workload, average",
        ),
        new(
            NET_END,
            "memory.net.end",
            MEMORY_UNIT,
            MIB,
            1,
            "the same, average over the last quarter of the run",
        ),
        new(
            MEMORY_AVG,
            "memory.avg",
            MEMORY_UNIT,
            MIB,
            1,
            "resident memory of the workload, average",
        ),
        new(
            MEMORY_PEAK,
            "memory.peak",
            MEMORY_UNIT,
            MIB,
            1,
            "resident memory of the workload, largest sample",
        ),
        new(RUNTIME, "runtime", "s", 1.0, 3, "wall time of the measured part"),
        new(
            CPU_USER,
            "cpu.user",
            "s",
            1.0,
            2,
            "CPU time of the workload in programs",
        ),
        new(
            CPU_SYSTEM,
            "cpu.system",
            "s",
            1.0,
            2,
            "CPU time of the workload in the kernel",
        ),
        new(
            MAJOR_FAULTS,
            "major_faults",
            "faults",
            1.0,
            0,
            "page faults of the workload that had to read swap or files",
        ),
        new(
            SWAP_AVG,
            "swap.avg",
            MEMORY_UNIT,
            MIB,
            1,
            "memory of the workload in swap, uncompressed, average",
        ),
        new(
            PSI_SOME,
            "psi.some",
            "s",
            1.0,
            3,
            "time in which some task waited for memory (zram waits are under-reported)",
        ),
        ours(new(
            OUR_CPU,
            "thermo.cpu",
            "%",
            1.0,
            2,
            "CPU time of the attached thermo, percent of one CPU",
        )),
        ours(new(
            OUR_RSS,
            "thermo.rss",
            MEMORY_UNIT,
            MIB,
            1,
            "peak resident memory of the attached thermo",
        )),
    ];
    metrics.extend(judged().map(ours));
    metrics.extend([
        new(
            MEMUSED_AVG,
            "memused.avg",
            MEMORY_UNIT,
            MIB,
            1,
            "memory of the whole machine in use (MemTotal less MemFree), average",
        ),
        of_huge(
            HUGE_AVG,
            "anon_huge.avg",
            MEMORY_UNIT,
            MIB,
            "anonymous huge pages of the machine, average",
        ),
        of_huge(COLLAPSES, "collapses", "", 1.0, "huge pages made of small ones"),
        of_huge(SPLITS, "splits", "", 1.0, "huge pages split"),
        of_huge(
            HUGE_FAULTS,
            "huge_faults",
            "",
            1.0,
            "page faults that were given a huge page",
        ),
    ]);
    metrics.extend(latencies.into_iter().map(|name| {
        let about = format!("{name}, as the workload's load printed it");
        Metric {
            adds_up: false,
            ..new(
                &format!("{LATENCY}{name}"),
                &format!("latency.{name}"),
                "",
                1.0,
                3,
                &about,
            )
        }
    }));
    metrics
}

/// Of huge pages: `orig` may have none, so there is nothing to compare to.
fn of_huge(key: &str, title: &str, unit: &'static str, scale: f64, about: &str) -> Metric {
    Metric {
        key: key.to_owned(),
        title: title.to_owned(),
        unit,
        scale,
        decimals: 1,
        about: about.to_owned(),
        adds_up: true,
        compares: false,
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
