//! The truth: sums of all that was written, counted without the files, and how well ages kept the bound.

use std::collections::BTreeMap;

use serde::Serialize;
use thermo_engine::access_tables::NR_AGES;
use thermo_fleet::Row;
use thermo_units::SharePerMinute;

use crate::ages::Ages;
use crate::anchor::Anchor;
use crate::class::CLASSES;

/// What `truth.json` holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Truth {
    /// Version of the format: 1.
    pub schema: u32,
    /// Seed of the fleet.
    pub seed: u64,
    /// Number of hosts.
    pub hosts: u64,
    /// Hours of data.
    pub hours: u64,
    /// Start, Unix time in ms.
    pub start_ms: u64,
    /// Length of an interval in ms.
    pub interval_ms: u64,
    /// Number of files.
    pub files: u64,
    /// Number of rows, with those of agents.
    pub rows: u64,
    /// Sums by class, sorted by name.
    pub classes: Vec<ClassTruth>,
    /// Hosts by cluster, sorted by name.
    pub clusters: Vec<ClusterTruth>,
    /// Recordings that classes followed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub anchors: Vec<Anchor>,
    /// How well ages kept the bound; with ages only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<BoundTruth>,
}

/// Sums over the rows of a class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ClassTruth {
    /// Name of the class.
    pub class: String,
    /// Hosts that run it.
    pub hosts: u64,
    /// Its targets.
    pub targets: u64,
    /// Its rows.
    pub rows: u64,
    /// Sum of `resident_bytes`.
    pub resident_byte_intervals: u64,
    /// Sums of `idle_bytes`.
    pub idle_byte_intervals: [u64; NR_AGES],
    /// Sums of `reaccess_bytes`.
    pub reaccess_bytes: [u64; NR_AGES],
    /// Sum of `paged_out_bytes`.
    pub paged_out_bytes: u64,
    /// Sum of `back_bytes`.
    pub back_bytes: u64,
    /// Sum of `net_saved_bytes`.
    pub net_saved_byte_intervals: i64,
    /// Sum of `watching_cpu_us`.
    pub watching_cpu_us: u64,
    /// Sums of resident bytes that are not shared by their exact idle age, from the last access to each page.
    pub true_idle_byte_intervals: [u64; NR_AGES],
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterTruth {
    /// Name of the cluster.
    pub cluster: String,
    /// Its hosts.
    pub hosts: u64,
}

/// How well ages kept the bound: in how many host-hours the bytes that came back in a minute were, on
/// average, at most the bound's share of the working set. Classes without an age do not count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BoundTruth {
    /// The bound: share of the working set per minute.
    pub max_refaults_per_min: f64,
    /// By class, sorted by name.
    pub classes: Vec<ClassBound>,
    /// All targets of a host together.
    pub all: HostHours,
}

/// A class and its age.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassBound {
    /// Name of the class.
    pub class: String,
    /// Minimum age in seconds.
    pub min_age_s: u64,
    /// Host-hours.
    #[serde(flatten)]
    pub hours: HostHours,
}

/// Host-hours, and how many kept the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostHours {
    /// All.
    pub host_hours: u64,
    /// Those within the bound.
    pub within: u64,
}

impl HostHours {
    /// Those within the bound as a share of all; 1 without any.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.host_hours == 0 {
            return 1.0;
        }
        self.within as f64 / self.host_hours as f64
    }

    fn add(&mut self, hour: HourSums, bound: SharePerMinute) {
        self.host_hours += 1;
        self.within += u64::from(hour.is_within(bound));
    }
}

impl Serialize for HostHours {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut fields = serializer.serialize_struct("HostHours", 3)?;
        fields.serialize_field("host_hours", &self.host_hours)?;
        fields.serialize_field("within", &self.within)?;
        fields.serialize_field("share", &self.share())?;
        fields.end()
    }
}

/// The refaults of an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HourSums {
    back: u64,
    working_set: u64,
    rows: u64,
}

impl HourSums {
    pub(crate) const fn add(&mut self, row: &Row) {
        self.back += row.back_bytes;
        self.working_set += row.working_set_bytes;
        self.rows += 1;
    }

    /// Adds the same hour of another target.
    pub(crate) fn add_target(&mut self, other: Self) {
        self.back += other.back;
        self.working_set += other.working_set;
        self.rows = self.rows.max(other.rows);
    }

    /// Whether at most this share of the mean working set came back in a minute.
    fn is_within(self, bound: SharePerMinute) -> bool {
        let working_set = u128::from(self.working_set) / u128::from(self.rows.max(1));
        u128::from(self.back) * 1_000_000 <= working_set * u128::from(bound.0) * 60
    }
}

/// What the hosts add up to. All sums are whole numbers, so their order does not matter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    pub(crate) files: u64,
    pub(crate) rows: u64,
    classes: BTreeMap<&'static str, ClassTruth>,
    clusters: BTreeMap<&'static str, u64>,
    bounds: BTreeMap<&'static str, HostHours>,
    all: HostHours,
}

impl Sums {
    /// Counts a host.
    pub(crate) fn add_host(&mut self, cluster: &'static str) {
        *self.clusters.entry(cluster).or_default() += 1;
    }

    /// Counts a target of a host.
    pub(crate) fn add_target(&mut self, class: &'static str) {
        let sums = self.classes.entry(class).or_default();
        sums.hosts += 1;
        sums.targets += 1;
    }

    /// Adds a row of a target.
    pub(crate) fn add_row(&mut self, class: &'static str, row: &Row, true_idle: &[u64; NR_AGES]) {
        self.rows += 1;
        let sums = self.classes.entry(class).or_default();
        sums.rows += 1;
        sums.resident_byte_intervals += row.resident_bytes;
        add(&mut sums.idle_byte_intervals, &row.idle_bytes);
        add(&mut sums.reaccess_bytes, &row.reaccess_bytes);
        add(&mut sums.true_idle_byte_intervals, true_idle);
        sums.paged_out_bytes += row.paged_out_bytes;
        sums.back_bytes += row.back_bytes;
        sums.net_saved_byte_intervals += row.net_saved_bytes;
        sums.watching_cpu_us += row.watching_cpu_us;
    }

    /// Counts an hour of the targets of a host that have an age.
    pub(crate) fn add_hour(&mut self, hours: &[(&'static str, HourSums)], bound: SharePerMinute) {
        let mut all = HourSums::default();
        for (class, hour) in hours {
            self.bounds.entry(class).or_default().add(*hour, bound);
            all.add_target(*hour);
        }
        if !hours.is_empty() {
            self.all.add(all, bound);
        }
    }

    /// Adds the sums of other hosts.
    pub(crate) fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.rows += other.rows;
        for (class, sums) in other.classes {
            self.classes.entry(class).or_default().merge(&sums);
        }
        for (cluster, hosts) in other.clusters {
            *self.clusters.entry(cluster).or_default() += hosts;
        }
        for (class, hours) in other.bounds {
            self.bounds.entry(class).or_default().merge(hours);
        }
        self.all.merge(other.all);
    }

    /// The sums of all classes, also of those that no host runs.
    pub(crate) fn classes(&self) -> Vec<ClassTruth> {
        let sums = |name: &'static str| ClassTruth {
            class: name.to_owned(),
            ..self.classes.get(name).cloned().unwrap_or_default()
        };
        CLASSES.iter().map(|class| sums(class.name)).collect()
    }

    pub(crate) fn clusters(&self) -> Vec<ClusterTruth> {
        let cluster = |(name, hosts): (&&str, &u64)| ClusterTruth {
            cluster: (*name).to_owned(),
            hosts: *hosts,
        };
        self.clusters.iter().map(cluster).collect()
    }

    pub(crate) fn bound(&self, ages: &Ages, bound: SharePerMinute) -> BoundTruth {
        let class = |(name, age): (&String, &u64)| ClassBound {
            class: name.clone(),
            min_age_s: *age,
            hours: self.bounds.get(name.as_str()).copied().unwrap_or_default(),
        };
        BoundTruth {
            max_refaults_per_min: f64::from(bound.0) / 1e6,
            classes: ages.iter().map(class).collect(),
            all: self.all,
        }
    }
}

impl HostHours {
    const fn merge(&mut self, other: Self) {
        self.host_hours += other.host_hours;
        self.within += other.within;
    }
}

impl ClassTruth {
    fn merge(&mut self, other: &Self) {
        self.hosts += other.hosts;
        self.targets += other.targets;
        self.rows += other.rows;
        self.resident_byte_intervals += other.resident_byte_intervals;
        add(&mut self.idle_byte_intervals, &other.idle_byte_intervals);
        add(&mut self.reaccess_bytes, &other.reaccess_bytes);
        self.paged_out_bytes += other.paged_out_bytes;
        self.back_bytes += other.back_bytes;
        self.net_saved_byte_intervals += other.net_saved_byte_intervals;
        self.watching_cpu_us += other.watching_cpu_us;
        add(
            &mut self.true_idle_byte_intervals,
            &other.true_idle_byte_intervals,
        );
    }
}

fn add(sums: &mut [u64; NR_AGES], bytes: &[u64; NR_AGES]) {
    sums.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_compares_refaults_per_minute_with_the_mean_working_set() {
        let row = |back_bytes| Row {
            back_bytes,
            working_set_bytes: 1_000_000,
            ..Row::default()
        };
        let is_within = |back: [u64; 2]| {
            let mut hour = HourSums::default();
            back.iter().for_each(|back| hour.add(&row(*back)));
            hour.is_within(SharePerMinute(2000))
        };
        // 0.2 % of 1 MB a minute are 120 kB an hour.
        assert!(is_within([60_000, 60_000]));
        assert!(!is_within([60_000, 60_001]));
        assert!(is_within([0, 120_000]));
    }
}
