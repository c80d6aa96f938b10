//! Recordings: our Arrow streams, and damo's JSON, plain and compressed.

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
