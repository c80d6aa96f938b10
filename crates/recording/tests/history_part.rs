//! A part of a history is what the whole has of this time and target, although less of it is decoded.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use proptest::prelude::*;
use thermo_engine::access_tables::AccessTables;
use thermo_engine::budget::Method;
use thermo_engine::ops::TargetId;
use thermo_recording::history::*;
use thermo_recording::model::*;
use thermo_units::{Bytes, Nanos};

const OFFSET: u64 = 1_790_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;
const LENGTH: u64 = 400;
const NAMES: [&str; 3] = ["redis", "nginx", "redis"];

fn clocks(second: u64) -> Clocks {
    Clocks {
        monotonic: Nanos::secs(second),
        unix: Nanos(OFFSET + second * SECOND),
    }
}

/// The last target has no access tables: its totals come from its regions.
fn target(id: u32, second: u64) -> Target {
    let mut tables = AccessTables::new(Method::Scan);
    tables.nr_passes = second;
    tables.idle[0][4] = Bytes::mib(second);
    let region = Region {
        start: 0x1000,
        end: 0x1000 + (second << 20),
        ..Region::default()
    };
    Target {
        id,
        pid: Some(1000 + id),
        scanned: Some(id < 2),
        tables: (id < 2).then(|| Box::new(tables)),
        regions: vec![region],
        ..Target::default()
    }
}

fn write(dir: &Path) {
    let limits = WriteLimits {
        segment_age: Nanos::secs(120),
        mappings_every: Nanos::secs(30),
        ..WriteLimits::default()
    };
    let mut writer = SegmentWriter::new(dir, "p", limits, clocks(0), Metadata::default).unwrap();
    for second in 1..LENGTH {
        let time_ns = second * SECOND;
        // The second target appears later.
        let living = || (0..3).filter(|id| *id != 1 || second >= 150);
        for id in living() {
            if second == if id == 1 { 150 } else { 1 } {
                writer.name(Nanos(time_ns), TargetId(id), Some(1000 + id), NAMES[id as usize]);
            }
            writer.record(&Record::Footprint(Footprint {
                time_ns,
                target: id,
                rss: second,
                ..Footprint::default()
            }));
            if second % 40 == 7 {
                writer.record(&Record::Mappings(Mappings {
                    time_ns,
                    target: id,
                    mappings: vec![Mapping {
                        end: second,
                        ..Mapping::default()
                    }],
                }));
            }
        }
        writer.record(&Record::Cost(Cost {
            time_ns,
            cpu_ns: second,
            ..Cost::default()
        }));
        writer.record(&Record::Snapshot(Snapshot {
            start_ns: time_ns - SECOND,
            time_ns,
            aggr_ns: SECOND,
            max_nr_accesses: 20,
            targets: living().map(|id| target(id, second)).collect(),
        }));
        writer.tick(clocks(second));
    }
    assert!(writer.finish().is_empty());
}

/// The snapshots, sizes and mappings of the query in the records after its begin, all of which may be there.
fn selected(records: Vec<Record>, query: &Query, ids: &[u32]) -> Vec<Record> {
    let from = query.from.unwrap_or_default().0;
    let is_in_time = |time: u64| time > from && query.to.is_none_or(|to| time <= to.0);
    let select = |record: Record| match record {
        Record::Snapshot(mut snapshot) if is_in_time(snapshot.time_ns) => {
            snapshot.targets.retain(|target| ids.contains(&target.id));
            for target in snapshot
                .targets
                .iter_mut()
                .filter(|target| target.tables.is_some())
            {
                target.regions.retain(|_| !query.totals_only);
            }
            (!snapshot.targets.is_empty()).then_some(Record::Snapshot(snapshot))
        }
        Record::Footprint(footprint) => {
            let is_selected = is_in_time(footprint.time_ns) && ids.contains(&footprint.target);
            is_selected.then_some(Record::Footprint(footprint))
        }
        Record::Mappings(mappings) => {
            let is_selected = is_in_time(mappings.time_ns) && ids.contains(&mappings.target);
            is_selected.then_some(Record::Mappings(mappings))
        }
        _ => None,
    };
    records.into_iter().filter_map(select).collect()
}

/// The records, with an id for each name: numbers depend on the segments that are read.
fn read(dir: &Path, query: &Query) -> Vec<Record> {
    let mut records = History::open(dir).unwrap().records(query).unwrap();
    let mut all: Vec<Record> = records.by_ref().collect();
    let rename = |id: &mut u32| *id = id_of(&records.target(*id).unwrap().name);
    for record in &mut all {
        match record {
            Record::Snapshot(snapshot) => snapshot
                .targets
                .iter_mut()
                .for_each(|target| rename(&mut target.id)),
            Record::Footprint(footprint) => rename(&mut footprint.target),
            Record::Mappings(mappings) => rename(&mut mappings.target),
            _ => {}
        }
    }
    all
}

fn id_of(name: &str) -> u32 {
    u32::from(name == "nginx")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn part_has_what_the_whole_has(
        from in prop::option::of(0..LENGTH + 50),
        length in prop::option::of(1..LENGTH),
        name in prop::option::of(prop::sample::select(vec!["redis", "nginx"])),
        totals_only in any::<bool>(),
    ) {
        static DIR: std::sync::LazyLock<tempfile::TempDir> = std::sync::LazyLock::new(|| {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path());
            dir
        });
        let unix = |second: u64| Nanos(OFFSET + second * SECOND);
        let query = Query {
            target: name.map(str::to_owned),
            from: from.map(unix),
            to: length.map(|length| unix(from.unwrap_or(0) + length)),
            totals_only,
            ..Query::default()
        };
        let whole = read(DIR.path(), &Query::default());
        prop_assert!(selected(whole.clone(), &Query::default(), &[0, 1]).len() > 100);
        let expected = match name {
            Some(name) => selected(whole, &query, &[id_of(name)]),
            None => selected(whole, &query, &[0, 1]),
        };
        // What holds at the begin is repeated with the time of the begin.
        let found = selected(read(DIR.path(), &query), &query, &[0, 1]);
        prop_assert_eq!(found, expected);
    }
}
