//! Controls a kdamond: configuration, start and stop, results.

use std::path::{Path, PathBuf};

use thermo_units::AddrRange;

use super::setup::{Folder, Setup};
use crate::file::{self, FileError};

/// The folder `kdamonds` of the tree.
#[derive(Debug, Clone)]
pub struct Admin(PathBuf);

/// The folder of one configured kdamond.
#[derive(Debug, Clone)]
pub struct KdamondControl(PathBuf);

/// Commands to a kdamond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Start.
    On,
    /// Stop.
    Off,
    /// Apply the configuration that is set now, and keep the regions.
    Commit,
    /// Update the statistics files.
    UpdateStats,
    /// Update the folders of tried regions, by the end of the current aggregation.
    UpdateTriedRegions,
}

impl Command {
    /// The keyword that is written to `state`.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Commit => "commit",
            Self::UpdateStats => "update_schemes_stats",
            Self::UpdateTriedRegions => "update_schemes_tried_regions",
        }
    }
}

/// A region that a scheme tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriedRegion {
    /// Its addresses.
    pub range: AddrRange,
    /// The number of samples in which it was accessed.
    pub nr_accesses: u32,
    /// In aggregation intervals.
    pub age: u32,
}

/// Totals of a scheme since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchemeStats {
    /// Regions on which it was tried.
    pub nr_tried: u64,
    /// Their bytes.
    pub sz_tried: u64,
    /// Regions to which it was applied.
    pub nr_applied: u64,
    /// Bytes to which it was applied.
    pub sz_applied: u64,
    /// How often the quota was exceeded.
    pub qt_exceeds: u64,
}

impl Admin {
    /// The tree of the machine at `root` (`/`).
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self(root.join("sys/kernel/mm/damon/admin/kdamonds"))
    }

    /// The number of configured kdamonds, of any user.
    ///
    /// # Errors
    /// Fails if the kernel has no DAMON, or without permission.
    pub fn nr_kdamonds(&self) -> Result<u64, FileError> {
        file::number(&self.0.join("nr_kdamonds"))
    }

    /// Sets the number of kdamonds. All existing configurations are lost.
    ///
    /// # Errors
    /// Fails if one of them runs.
    pub fn set_nr_kdamonds(&self, count: u64) -> Result<(), FileError> {
        Folder(self.0.clone()).write("nr_kdamonds", count)
    }

    /// The kdamond at this index.
    #[must_use]
    pub fn kdamond(&self, index: u64) -> KdamondControl {
        KdamondControl(self.0.join(index.to_string()))
    }
}

impl KdamondControl {
    /// Whether the kdamond runs. It stops by itself when all its targets have ended.
    ///
    /// # Errors
    /// Fails if the kdamond is no longer configured.
    pub fn is_running(&self) -> Result<bool, FileError> {
        let path = self.0.join("state");
        let state = file::while_busy(|| file::text(&path))?;
        Ok(state.trim() != "off")
    }

    /// The pid of its thread, while it runs.
    ///
    /// # Errors
    /// Fails if the kdamond is no longer configured.
    pub fn pid(&self) -> Result<Option<u32>, FileError> {
        let path = self.0.join("pid");
        let pid = file::while_busy(|| file::text(&path))?;
        Ok(pid.trim().parse().ok())
    }

    /// Sends `command` and waits until it is done.
    ///
    /// # Errors
    /// Fails if the kernel refuses the command.
    pub fn send(&self, command: Command) -> Result<(), FileError> {
        Folder(self.0.clone()).write("state", command.keyword())
    }

    /// Writes the whole configuration of its context. It takes effect with the next [`Command::On`] or
    /// [`Command::Commit`].
    ///
    /// # Errors
    /// Fails if a value is invalid, or this kernel does not support it.
    pub fn set_up(&self, setup: &Setup) -> Result<(), FileError> {
        let folder = Folder(self.0.join("contexts"));
        folder.write("nr_contexts", 1)?;
        folder.subfolder("0").set_up(setup)
    }

    /// The regions that the scheme at this index tried, as of the last [`Command::UpdateTriedRegions`], in
    /// the order of trying: by target, then by address.
    ///
    /// # Errors
    /// Fails if the scheme is not configured.
    pub fn tried_regions(&self, scheme: usize) -> Result<Vec<TriedRegion>, FileError> {
        let dir = self.scheme(scheme).join("tried_regions");
        let entries = std::fs::read_dir(&dir).map_err(|source| FileError::new(&dir, source))?;
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok());
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        numbers
            .into_iter()
            .map(|number| tried_region(&dir.join(number.to_string())))
            .collect()
    }

    /// The totals of the scheme at this index, as of the last [`Command::UpdateStats`].
    ///
    /// # Errors
    /// Fails if the scheme is not configured.
    pub fn stats(&self, scheme: usize) -> Result<SchemeStats, FileError> {
        let dir = self.scheme(scheme).join("stats");
        let number = |name| file::number(&dir.join(name));
        Ok(SchemeStats {
            nr_tried: number("nr_tried")?,
            sz_tried: number("sz_tried")?,
            nr_applied: number("nr_applied")?,
            sz_applied: number("sz_applied")?,
            qt_exceeds: number("qt_exceeds")?,
        })
    }

    fn scheme(&self, index: usize) -> PathBuf {
        self.0.join(format!("contexts/0/schemes/{index}"))
    }
}

fn tried_region(dir: &Path) -> Result<TriedRegion, FileError> {
    let number = |name| file::number(&dir.join(name));
    let small = |name| number(name).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    Ok(TriedRegion {
        range: AddrRange::new(number("start")?, number("end")?),
        nr_accesses: small("nr_accesses")?,
        age: small("age")?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::fs;

    use super::*;
    use crate::damon::setup::{Filter, FilterKind, Quota, Scheme, Watermarks};

    /// A fake tree with the files `names`.
    fn tree(names: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/mm/damon/admin/kdamonds");
        for name in names {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        (root, dir)
    }

    const CONTEXT: [&str; 11] = [
        "nr_kdamonds",
        "0/state",
        "0/pid",
        "0/contexts/nr_contexts",
        "0/contexts/0/operations",
        "0/contexts/0/monitoring_attrs/intervals/sample_us",
        "0/contexts/0/monitoring_attrs/intervals/aggr_us",
        "0/contexts/0/monitoring_attrs/intervals/update_us",
        "0/contexts/0/monitoring_attrs/nr_regions/min",
        "0/contexts/0/monitoring_attrs/nr_regions/max",
        "0/contexts/0/targets/nr_targets",
    ];
    const SCHEME: [&str; 21] = [
        "action",
        "access_pattern/sz/min",
        "access_pattern/sz/max",
        "access_pattern/nr_accesses/min",
        "access_pattern/nr_accesses/max",
        "access_pattern/age/min",
        "access_pattern/age/max",
        "quotas/ms",
        "quotas/bytes",
        "quotas/reset_interval_ms",
        "quotas/weights/sz_permil",
        "quotas/weights/nr_accesses_permil",
        "quotas/weights/age_permil",
        "watermarks/metric",
        "watermarks/interval_us",
        "watermarks/high",
        "watermarks/mid",
        "watermarks/low",
        "filters/nr_filters",
        "filters/0/type",
        "filters/0/matching",
    ];

    fn names() -> Vec<String> {
        let scheme = SCHEME.iter().map(|name| format!("0/contexts/0/schemes/0/{name}"));
        let more = [
            "0/contexts/0/targets/0/pid_target",
            "0/contexts/0/schemes/nr_schemes",
            "0/contexts/0/schemes/0/filters/0/damon_target_idx",
        ];
        CONTEXT
            .iter()
            .chain(&more)
            .map(|name| (*name).to_owned())
            .chain(scheme)
            .collect()
    }

    fn setup() -> Setup {
        let filter = Filter {
            kind: FilterKind::Target(0),
            matching: false,
            allow: false,
        };
        let scheme = Scheme {
            age: (7, 9),
            quota: Quota {
                ms: 10,
                reset_interval_ms: 1000,
                ..Quota::default()
            },
            watermarks: Some(Watermarks {
                interval_us: 1,
                high: 500,
                mid: 400,
                low: 50,
            }),
            filters: vec![filter],
            ..Scheme::new("pageout")
        };
        Setup {
            sample_us: 5000,
            aggr_us: 100_000,
            update_us: 1_000_000,
            nr_regions: (10, 1000),
            targets: vec![77],
            schemes: vec![scheme],
        }
    }

    #[test]
    fn set_up_writes_every_file() {
        let names = names();
        let (root, dir) = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let admin = Admin::new(root.path());
        admin.set_nr_kdamonds(1).unwrap();
        assert_eq!(admin.nr_kdamonds().unwrap(), 1);
        admin.kdamond(0).set_up(&setup()).unwrap();
        admin.kdamond(0).send(Command::On).unwrap();
        for (name, value) in [
            ("0/state", "on"),
            ("0/contexts/0/operations", "vaddr"),
            ("0/contexts/0/monitoring_attrs/intervals/aggr_us", "100000"),
            ("0/contexts/0/monitoring_attrs/nr_regions/max", "1000"),
            ("0/contexts/0/targets/0/pid_target", "77"),
            ("0/contexts/0/schemes/0/action", "pageout"),
            ("0/contexts/0/schemes/0/access_pattern/age/min", "7"),
            ("0/contexts/0/schemes/0/quotas/reset_interval_ms", "1000"),
            ("0/contexts/0/schemes/0/watermarks/metric", "free_mem_rate"),
            ("0/contexts/0/schemes/0/filters/0/matching", "N"),
        ] {
            assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), value, "{name}");
        }
    }

    #[test]
    fn destinations_are_written_with_their_weights() {
        let dests = ["nr_dests", "0/id", "0/weight", "1/id", "1/weight"];
        let dests = dests.map(|name| format!("0/contexts/0/schemes/0/dests/{name}"));
        let names: Vec<String> = names().into_iter().chain(dests).collect();
        let names = [names, vec!["0/contexts/0/schemes/0/target_nid".to_owned()]].concat();
        let (root, dir) = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut migrating = setup();
        migrating.schemes[0].dests = vec![(0, 3), (2, 1)];
        Admin::new(root.path()).kdamond(0).set_up(&migrating).unwrap();
        let written = |name: &str| fs::read_to_string(dir.join("0/contexts/0/schemes/0").join(name)).unwrap();
        let of_second = (written("dests/1/id"), written("dests/1/weight"));
        assert_eq!(
            (written("dests/nr_dests").as_str(), of_second),
            ("2", ("2".into(), "1".into()))
        );
        migrating.schemes[0].dests = vec![(5, 1)];
        Admin::new(root.path()).kdamond(0).set_up(&migrating).unwrap();
        assert_eq!(written("target_nid"), "5");
    }

    #[test]
    fn unsupported_setting_error_names_file() {
        let names = names();
        let (root, _dir) = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut allowing = setup();
        allowing.schemes[0].filters[0].allow = true;
        let error = Admin::new(root.path()).kdamond(0).set_up(&allowing).unwrap_err();
        assert!(error.to_string().contains("filters/0/allow"), "{error}");
    }

    #[test]
    fn tried_regions_are_sorted_by_number() {
        let (root, dir) = tree(&CONTEXT);
        let tried = dir.join("0/contexts/0/schemes/1/tried_regions");
        for (number, start) in [(9, 4096), (10, 8192), (37, 4096)] {
            let region = tried.join(number.to_string());
            fs::create_dir_all(&region).unwrap();
            let end = start + 4096;
            for (name, value) in [
                ("start", start),
                ("end", end),
                ("nr_accesses", 3),
                ("age", number),
            ] {
                fs::write(region.join(name), format!("{value}\n")).unwrap();
            }
        }
        fs::write(tried.join("total_bytes"), "12288\n").unwrap();
        let regions = Admin::new(root.path()).kdamond(0).tried_regions(1).unwrap();
        let ages: Vec<u32> = regions.iter().map(|region| region.age).collect();
        assert_eq!(ages, [9, 10, 37]);
        assert_eq!(regions[1].range, AddrRange::new(8192, 12288));
        assert!(Admin::new(root.path()).kdamond(0).tried_regions(2).is_err());
    }

    #[test]
    fn is_running_and_pid_follow_state() {
        let (root, dir) = tree(&CONTEXT);
        let kdamond = Admin::new(root.path()).kdamond(0);
        fs::write(dir.join("0/state"), "on\n").unwrap();
        fs::write(dir.join("0/pid"), "123\n").unwrap();
        assert!(kdamond.is_running().unwrap());
        assert_eq!(kdamond.pid().unwrap(), Some(123));
        fs::write(dir.join("0/state"), "off\n").unwrap();
        fs::write(dir.join("0/pid"), "-1\n").unwrap();
        assert!(!kdamond.is_running().unwrap());
        assert_eq!(kdamond.pid().unwrap(), None);
    }
}
