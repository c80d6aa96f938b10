//! A synthetic recording, the same on every machine: a server of two processes with a moving hot set.

use thermo_engine::access_tables::{AGE_EDGES_S, Backing, PageKind, UnknownReason, age_bucket};
use thermo_engine::budget::Method;
use thermo_recording::model::{
    AccessTables, Cost, Footprint, Mapping, Mappings, Metadata, Note, Record, Region, SCHEMA, SchemeApplied,
    Settings, Snapshot, Target, Totals,
};
use thermo_units::{Bytes, Nanos};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const HEAP: u64 = 0x5581_6c2f_3000;
const ARENA: u64 = 0x7f3a_1000_0000;
const LIBC: u64 = 0x7f3a_93c0_0000;
const STACK: u64 = 0x7ffd_1f5c_4000;
const CHILD: u64 = 0x7f10_2000_0000;

/// Metadata of the recording.
pub fn metadata() -> Metadata {
    Metadata {
        schema: SCHEMA,
        writer: "thermo 0.1.0".to_owned(),
        kernel: "6.1.0-25-amd64".to_owned(),
        arch: "x86_64".to_owned(),
        tracker: "pte".to_owned(),
        tracker_reason: "page tables can be read through BPF".to_owned(),
        seed: Some(42),
        wall_clock_offset_ns: Some(1_700_000_000_000_000_000),
        start_ns: 1_000 * MS,
        targets: "process 4242 (redis-server) and its children".to_owned(),
        settings: Settings {
            sample_ns: Some(5 * MS),
            aggr_ns: Some(100 * MS),
            update_ns: Some(1_000 * MS),
            min_nr_regions: Some(10),
            max_nr_regions: Some(1_000),
            cpu_budget_percent: Some(1.0),
        },
        schemes: vec!["page out memory not accessed for 5 s".to_owned()],
        imported: false,
    }
}

/// `snapshots` snapshots of 100 ms each, with mappings, footprints, costs, schemes and a warning.
pub fn records(snapshots: u64) -> Vec<Record> {
    let mut records = vec![mappings(1, true), mappings(2, false)];
    for n in 0..snapshots {
        let time_ns = (1_000 + (n + 1) * 100) * MS;
        if n % 10 == 0 {
            records.push(footprint(
                1,
                time_ns,
                1_240 * MIB,
                (980 - 4 * n.min(100)) * MIB,
                4 * n.min(100) * MIB,
            ));
            records.push(footprint(2, time_ns, 300 * MIB, 120 * MIB, 0));
            let cost = Cost {
                time_ns,
                cpu_ns: n * MS,
                monitoring_cpu_ns: n * MS * 7 / 10,
                rss: 7 * MIB + n * 1024,
            };
            records.push(Record::Cost(cost));
        }
        records.push(Record::Snapshot(snapshot(n, time_ns, snapshots)));
        if n % 5 == 4 {
            records.push(scheme(n, time_ns));
        }
    }
    if snapshots > 50 {
        let text = "one sample in 300 came late by more than its interval.".to_owned();
        records.push(Record::Note(Note {
            time_ns: 4_000 * MS,
            kind: "warning".to_owned(),
            text,
        }));
    }
    records
}

/// [`records`] with access tables of scan passes of 130 ms, and with totals of the machine.
#[allow(dead_code, reason = "some tests need no tables")]
pub fn records_with_tables(snapshots: u64) -> Vec<Record> {
    let mut records = records(snapshots);
    let mut rss = [0; 3];
    for record in &mut records {
        match record {
            Record::Footprint(footprint) => rss[footprint.target as usize] = footprint.rss,
            Record::Snapshot(snapshot) => {
                let age = Nanos(snapshot.time_ns - 1_000 * MS);
                for target in &mut snapshot.targets {
                    let resident = Bytes(rss[target.id as usize]);
                    target.tables = Some(Box::new(tables(age, resident, snapshot.time_ns)));
                }
            }
            _ => {}
        }
    }
    let rows = [("mapped, monitored", 700), ("page cache", 2_100), ("free", 1_296)];
    records.push(Record::Totals(Totals {
        time_ns: 1_000 * MS,
        scope: "machine".to_owned(),
        rows: rows.map(|(name, mib)| (name.to_owned(), mib * MIB)).to_vec(),
    }));
    records
}

/// Tables after monitoring for `age`: hot memory, some memory of each idle age, and the rest cold.
fn tables(age: Nanos, resident: Bytes, time_ns: u64) -> AccessTables {
    let mut tables = AccessTables::new(Method::Scan);
    if age < Nanos::millis(200) {
        tables.unknown[UnknownReason::FirstScan.index()] = Bytes::mib(30);
        tables.fit_to(resident);
        return tables;
    }
    (tables.pass, tables.nr_passes) = (Nanos::millis(130), age.0 / (130 * MS));
    tables.as_of = Nanos(time_ns - 130 * MS);
    let oldest = age_bucket(age);
    let [anon, huge] = [false, true].map(|huge| PageKind::new(Backing::Anon, huge).index());
    let file = PageKind::new(Backing::File, false).index();
    tables.idle[huge][0] = Bytes::mib(64);
    tables.idle[anon][0] = Bytes::mib(20);
    for bucket in 1..=oldest {
        tables.idle[anon][bucket] = Bytes::mib(3 * bucket as u64);
        tables.reaccessed[bucket] = Bytes::kib(4 * (AGE_EDGES_S.len() - bucket) as u64);
    }
    tables.unknown[UnknownReason::Uncleared.index()] = Bytes::mib(2);
    tables.idle[file][oldest] += resident.saturating_sub(tables.resident());
    tables.fit_to(resident);
    tables
}

fn mappings(target: u32, server: bool) -> Record {
    let mapping = |start, bytes, name: &str| Mapping {
        start,
        end: start + bytes,
        name: name.to_owned(),
    };
    let mappings = match server {
        true => vec![
            mapping(0x5581_6a00_0000, 2 * MIB, "/usr/bin/redis-server"),
            mapping(HEAP, 12 * MIB, "[heap]"),
            mapping(ARENA, 1_200 * MIB, ""),
            mapping(LIBC, 2 * MIB, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
            mapping(STACK, 132 * 1024, "[stack]"),
        ],
        false => vec![mapping(CHILD, 300 * MIB, "/var/lib/redis/dump.rdb")],
    };
    Record::Mappings(Mappings {
        time_ns: 1_000 * MS,
        target,
        mappings,
    })
}

fn footprint(target: u32, time_ns: u64, vsz: u64, rss: u64, swap: u64) -> Record {
    Record::Footprint(Footprint {
        time_ns,
        target,
        vsz,
        rss,
        swap,
    })
}

fn snapshot(n: u64, time_ns: u64, all: u64) -> Snapshot {
    let mut targets = vec![Target {
        id: 1,
        pid: Some(4242),
        scanned: Some(false),
        averaged: 0,
        tables: None,
        regions: server(n, all),
    }];
    // The child is live in the middle third.
    if (all / 3..all * 2 / 3).contains(&n) {
        targets.push(Target {
            id: 2,
            pid: Some(4243),
            scanned: Some(false),
            averaged: 0,
            tables: None,
            regions: child(n - all / 3),
        });
    }
    Snapshot {
        start_ns: time_ns - 100 * MS,
        time_ns,
        aggr_ns: 100 * MS,
        max_nr_accesses: 20,
        targets,
    }
}

/// A hot set of 96 MiB that moves up through the arena, a warm index, a shared library, and cold memory.
fn server(n: u64, all: u64) -> Vec<Region> {
    let hot = ARENA + (100 + n * 800 / all.max(1)) * MIB;
    let age = n as u32;
    let region = |start, end, nr_accesses, age| Region {
        start,
        end,
        nr_accesses,
        age: Some(age),
        unknown: false,
    };
    vec![
        region(0x5581_6a00_0000, 0x5581_6a20_0000, 6, age),
        region(0x5581_6a20_0000, HEAP + 4 * MIB, 0, age),
        region(HEAP + 4 * MIB, HEAP + 12 * MIB, 20, age),
        region(ARENA, ARENA + 40 * MIB, 1 + (n % 3) as u32, age.min(4)),
        region(ARENA + 40 * MIB, hot, 0, age),
        region(hot, hot + 64 * MIB, 19, 3),
        region(hot + 64 * MIB, hot + 96 * MIB, 7, 2),
        region(hot + 96 * MIB, ARENA + 1_200 * MIB, 0, age),
        Region {
            unknown: true,
            ..region(LIBC, LIBC + 2 * MIB, 0, age)
        },
        region(STACK, STACK + 132 * 1024, 12, age),
    ]
}

fn child(n: u64) -> Vec<Region> {
    let at = CHILD + (n * 5).min(280) * MIB;
    let region = |start, end, nr_accesses| Region {
        start,
        end,
        nr_accesses,
        age: Some(1),
        unknown: false,
    };
    let regions = [
        region(CHILD, at, 0),
        region(at, at + 20 * MIB, 11),
        region(at + 20 * MIB, CHILD + 300 * MIB, 0),
    ];
    regions
        .into_iter()
        .filter(|region| region.start < region.end)
        .collect()
}

fn scheme(n: u64, time_ns: u64) -> Record {
    Record::Scheme(SchemeApplied {
        time_ns,
        index: 0,
        action: "pageout".to_owned(),
        nr_tried: n * 2,
        sz_tried: n * 8 * MIB,
        nr_applied: n,
        sz_applied: n * 4 * MIB,
        sz_ops_filter_passed: n * 5 * MIB,
        sz_changed: n * 3 * MIB,
        qt_exceeds: n / 10,
        effective_sz: 20 * MIB,
        skipped: vec![("young".to_owned(), MIB), ("quota used up".to_owned(), 3 * MIB)],
    })
}
