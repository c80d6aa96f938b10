//! Recordings: our Arrow streams, and damo's JSON, plain and compressed. Files of a fleet.

use std::sync::Once;

use thermo_recording::model::Record;
use thermo_recording::open;

use crate::Target;
use crate::root::Root;

/// The targets of this group.
pub const TARGETS: &[Target] = &[
    // The first bytes decide the type, so any input reaches any reader. The targets differ in their corpus.
    Target::new("recording", is_read),
    Target::new("damo_json", is_read),
    Target::new("damo_zlib", is_read),
    Target::new("fleet_file", is_fleet_file),
];

/// A recording has records, then an end, a truncation or an error. Its regions are ascending and disjoint.
fn is_read(data: &[u8]) {
    thread_local! {
        static ROOT: Root = Root::new(&["r"]);
    }
    ROOT.with(|root| {
        let path = root.fill_whole(data).join("r");
        if let Ok(mut recording) = open(&path) {
            recording
                .by_ref()
                .flatten()
                .for_each(|record| regions_are_in_order(&record));
            if let Some(truncated) = recording.truncated() {
                assert_eq!(truncated.whole_bytes + truncated.lost_bytes, data.len() as u64);
            }
        }
    });
}

/// A file of a fleet is read or refused, and has as many rows as it claims. Its name is that of its facts.
fn is_fleet_file(data: &[u8]) {
    // The Parquet library panics on some damaged files, and the reader catches that. The fuzzing engine ends
    // the program in its hook for panics, before anything can catch them. It also sees panics that nobody
    // catches.
    if cfg!(feature = "libfuzzer") {
        static WITHOUT_HOOK: Once = Once::new();
        WITHOUT_HOOK.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    }
    if let Ok((facts, rows)) = thermo_fleet::read(data.to_vec()) {
        assert!(rows.len() < 250_000, "{} rows", rows.len());
        let name = thermo_fleet::file_name(&facts).expect("facts that were read are checked");
        assert!(name.split('/').count() == 3 && !name.contains(".."), "{name}");
    }
}

fn regions_are_in_order(record: &Record) {
    let Record::Snapshot(snapshot) = record else {
        return;
    };
    for target in &snapshot.targets {
        assert!(
            target.regions.iter().all(|region| region.start < region.end),
            "{target:?}"
        );
        assert!(
            target.regions.is_sorted_by_key(|region| region.start),
            "{target:?}"
        );
    }
}
