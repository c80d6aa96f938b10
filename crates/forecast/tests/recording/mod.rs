//! Recordings made by hand, whose truth is known: areas of memory that are accessed at fixed times.

use thermo_engine::access_tables::{Backing, PageKind, age_bucket};
use thermo_engine::budget::Method;
use thermo_recording::model::{
    AccessTables, Mapping, Mappings, Metadata, Record, Region, SCHEMA, SchemeApplied, Settings, Snapshot,
    Target, Totals,
};
use thermo_units::{Bytes, Nanos};

pub const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// Memory that is accessed every `period` seconds, and was accessed at the start.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    pub mib: u64,
    /// `None`: never accessed again.
    pub period: Option<u64>,
    pub backing: Backing,
}

pub const fn idle(mib: u64) -> Area {
    Area {
        mib,
        period: None,
        backing: Backing::Anon,
    }
}

pub const fn every(period: u64, mib: u64) -> Area {
    Area {
        period: Some(period),
        ..idle(mib)
    }
}

impl Area {
    /// Seconds at `now` since the last access.
    fn age(&self, now: u64) -> u64 {
        self.period.map_or(now, |period| now % period)
    }
}

pub fn metadata() -> Metadata {
    Metadata {
        schema: SCHEMA,
        writer: "test".to_owned(),
        tracker: "pte".to_owned(),
        seed: Some(1),
        targets: "pid 1".to_owned(),
        settings: Settings {
            sample_ns: Some(SECOND / 70),
            aggr_ns: Some(SECOND),
            update_ns: Some(SECOND),
            min_nr_regions: Some(10),
            max_nr_regions: Some(1000),
            cpu_budget_percent: Some(1.0),
        },
        ..Metadata::default()
    }
}

/// A recording of `seconds`, a snapshot each second. `method`: with [`Method::Sampling`], schemes see
/// regions.
pub fn records(areas: &[Area], seconds: u64, method: Method) -> Vec<Record> {
    let snapshots = (1..=seconds).map(|now| Record::Snapshot(snapshot(areas, now, method)));
    std::iter::once(mappings(areas)).chain(snapshots).collect()
}

/// First address of each area, then the end of the last.
pub fn bounds(areas: &[Area]) -> Vec<u64> {
    let mut bounds = vec![16 * MIB];
    for area in areas {
        bounds.push(bounds[bounds.len() - 1] + area.mib * MIB);
    }
    bounds
}

fn snapshot(areas: &[Area], now: u64, method: Method) -> Snapshot {
    let bounds = bounds(areas);
    let region = |(nth, area): (usize, &Area)| Region {
        start: bounds[nth],
        end: bounds[nth + 1],
        nr_accesses: if area.age(now) == 0 { 70 } else { 0 },
        age: Some(u32::try_from(area.age(now)).unwrap()),
        unknown: false,
    };
    Snapshot {
        start_ns: (now - 1) * SECOND,
        time_ns: now * SECOND,
        aggr_ns: SECOND,
        max_nr_accesses: 70,
        targets: vec![Target {
            id: 0,
            pid: Some(1),
            scanned: Some(method == Method::Scan),
            averaged: 0,
            tables: Some(Box::new(tables(areas, now, method))),
            regions: areas.iter().enumerate().map(region).collect(),
        }],
    }
}

fn tables(areas: &[Area], now: u64, method: Method) -> AccessTables {
    let mut tables = AccessTables {
        pass: Nanos::millis(200),
        nr_passes: now,
        as_of: Nanos(now * SECOND - SECOND / 5),
        ..AccessTables::new(method)
    };
    for area in areas {
        let kind = PageKind::new(area.backing, false).index();
        tables.idle[kind][age_bucket(Nanos::secs(area.age(now)))] += Bytes::mib(area.mib);
        if let Some(period) = area.period.filter(|_| area.age(now) == 0) {
            tables.reaccessed[age_bucket(Nanos::secs(period))] += Bytes::mib(area.mib);
        }
    }
    tables
}

fn mappings(areas: &[Area]) -> Record {
    let bounds = bounds(areas);
    let mapping = |(nth, area): (usize, &Area)| Mapping {
        start: bounds[nth],
        end: bounds[nth + 1],
        name: match area.backing {
            Backing::Anon => String::new(),
            Backing::File => "/usr/lib/libc.so.6".to_owned(),
            Backing::Shmem => "/memfd:area".to_owned(),
        },
    };
    Record::Mappings(Mappings {
        time_ns: 0,
        target: 0,
        mappings: areas.iter().enumerate().map(mapping).collect(),
    })
}

/// Totals of the machine with `free` of 1000 MiB free.
pub fn totals(free: u64) -> Record {
    Record::Totals(Totals {
        time_ns: 0,
        scope: "machine".to_owned(),
        rows: vec![
            ("kernel".to_owned(), (1000 - free) * MIB),
            ("free".to_owned(), free * MIB),
        ],
    })
}

/// A scheme paged out `mib` while the recording was made.
pub fn paged_out(mib: u64) -> Record {
    Record::Scheme(SchemeApplied {
        action: "pageout".to_owned(),
        sz_tried: mib * MIB,
        sz_applied: mib * MIB,
        ..SchemeApplied::default()
    })
}
