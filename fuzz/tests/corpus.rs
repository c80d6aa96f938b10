//! Every target runs on its corpus: seeds, and inputs that were findings once.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use thermo_fuzz::{Target, daemons, formats, machine, network, recordings, reports};

fn targets() -> impl Iterator<Item = &'static Target> {
    let groups = [
        machine::TARGETS,
        formats::TARGETS,
        recordings::TARGETS,
        reports::TARGETS,
        daemons::TARGETS,
        network::TARGETS,
    ];
    groups.into_iter().flatten()
}

fn corpus() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}

#[test]
fn every_target_accepts_its_corpus() {
    let mut failed = Vec::new();
    for target in targets() {
        let folder = fs::read_dir(corpus().join(target.name)).unwrap();
        let mut inputs: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{} has no seed", target.name);
        for input in inputs {
            let data = fs::read(&input).unwrap();
            if catch_unwind(|| (target.run)(&data)).is_err() {
                failed.push(input);
            }
        }
        (target.run)(b"");
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn every_folder_of_the_corpus_has_a_target() {
    let names: BTreeSet<String> = targets().map(|target| target.name.to_owned()).collect();
    assert_eq!(names.len(), targets().count(), "names are unique");
    let folders = fs::read_dir(corpus()).unwrap();
    let mut folders: BTreeSet<String> = folders
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    if cfg!(not(target_arch = "x86_64")) {
        folders.remove("seccomp");
    }
    assert_eq!(folders, names);
}
