//! A recording made of a few records.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use thermo_agent::api::DecisionKind;
use thermo_engine::access_tables::AccessTables;
use thermo_engine::budget::Method;
use thermo_recording::model::{Mapping, Mappings, Note, Record, Region, SchemeApplied, Snapshot, Target};
use thermo_units::Bytes;

use super::reader::{Reader, process_ids};
use super::*;

const SECOND: u64 = 1_000_000_000;

fn snapshot(second: u64) -> Record {
    let mut tables = AccessTables::new(Method::Scan);
    tables.nr_passes = second;
    tables.idle[0][second as usize] = Bytes::mib(4);
    let region = Region {
        end: 4 << 20,
        nr_accesses: 5,
        ..Region::default()
    };
    Record::Snapshot(Snapshot {
        start_ns: (second - 1) * SECOND,
        time_ns: second * SECOND,
        aggr_ns: SECOND,
        max_nr_accesses: 10,
        targets: vec![Target {
            id: 3,
            pid: Some(4242),
            tables: Some(Box::new(tables)),
            regions: vec![region],
            ..Target::default()
        }],
    })
}

fn scheme(second: u64, sz_applied: u64) -> Record {
    Record::Scheme(SchemeApplied {
        time_ns: second * SECOND,
        action: "pageout".to_owned(),
        sz_applied,
        skipped: vec![("young".to_owned(), 7), ("locked".to_owned(), 0)],
        ..SchemeApplied::default()
    })
}

fn note(kind: &str) -> Record {
    Record::Note(Note {
        time_ns: SECOND,
        kind: kind.to_owned(),
        text: format!("of kind {kind}"),
    })
}

fn source() -> RecordingSource {
    let metadata = Metadata {
        schemes: vec!["page out".to_owned()],
        wall_clock_offset_ns: Some(1_000_000 * SECOND as i64),
        ..Metadata::default()
    };
    let mapping = Mapping {
        end: 4 << 20,
        name: "/usr/bin/server".to_owned(),
        ..Mapping::default()
    };
    let mappings = Record::Mappings(Mappings {
        target: 3,
        mappings: vec![mapping],
        ..Mappings::default()
    });
    let mut reader = Reader::new(metadata);
    let records = [
        note("plan"),
        note("target_name"),
        mappings,
        snapshot(1),
        scheme(1, 100),
    ];
    for record in records.iter().chain(&[snapshot(2), scheme(2, 150), snapshot(3)]) {
        reader.add(record);
    }
    let ids = process_ids(&reader.metadata, &reader.processes);
    reader.finish("replay".to_owned(), ids)
}

#[test]
fn recording_answers_for_its_moment() {
    let mut source = source();
    let at = |second: u64| Some((1_000_000 + second) * 1000);
    assert_eq!(source.facts().times_ms.len(), 3);
    let targets = source.targets(at(2)).unwrap();
    let [target] = &targets.targets[..] else {
        panic!("{targets:?}");
    };
    assert_eq!(
        (target.name.as_str(), target.policy.as_str()),
        ("server 4242", POLICY)
    );
    assert_eq!((Some(targets.time_ms), target.ages[2].bytes), (at(2), 4 << 20));
    let policies = source.policies(at(2)).unwrap().policies;
    assert_eq!(
        (policies[0].processes, &policies[0].does[..]),
        (1, &["page out".to_owned()][..])
    );
    assert!(!source.is_empty() && source.pause(POLICY, true).is_err());
}

#[test]
fn applications_and_events_become_decisions() {
    let mut source = source();
    let decisions = source.decisions(&TargetId::default(), None).unwrap().decisions;
    let texts: Vec<(DecisionKind, &str, u64, &str)> = decisions
        .iter()
        .map(|one| (one.kind, one.action.as_str(), one.bytes, one.why.as_str()))
        .collect();
    assert_eq!(
        texts,
        [
            (DecisionKind::Warning, "plan", 0, "of kind plan"),
            (DecisionKind::Acted, "pageout", 100, "page out"),
            (DecisionKind::Skipped, "pageout", 7, "young"),
            (DecisionKind::Acted, "pageout", 50, "page out"),
            (DecisionKind::Skipped, "pageout", 7, "young"),
        ]
    );
    let until = Some(1_000_001_000);
    assert_eq!(
        source
            .decisions(&TargetId::default(), until)
            .unwrap()
            .decisions
            .len(),
        3
    );
}

#[test]
fn heatmap_and_history_are_of_the_target() {
    let mut source = source();
    let extent = |name: &str| Extent {
        target: TargetId {
            policy: POLICY.to_owned(),
            name: name.to_owned(),
        },
        columns: 100,
        rows: 2,
    };
    let map = source.heatmap(&extent("server 4242")).unwrap();
    assert_eq!(map.times_ms, [1_000_000_000, 1_000_001_000, 1_000_002_000]);
    assert_eq!(
        map.rows.iter().map(|row| row.pid).collect::<Vec<_>>(),
        [4242, 4242]
    );
    assert_eq!(
        (map.rows[0].heat[1], map.rows[0].name.as_str()),
        (50, "/usr/bin/server")
    );
    assert_eq!(source.history(&extent("server 4242")).unwrap().points.len(), 3);
    assert!(source.heatmap(&extent("other")).is_err());
}
