//! The predicted size of pages against what zram really uses for them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use common::{CONTENTS, content};
use thermo_compress::{
    Algorithm, Candidate, Compressor, Page, PageReader, SampleSettings, StoredPage, Stratum, Unread,
    ZramModel, sample,
};
use thermo_kernel::leftovers::{self, Leftover, Note, Until};
use thermo_kernel::zram::{self, MmStat, Zram};
use thermo_units::{Addr, AddrRange, Bytes};

const DEVICE: Bytes = Bytes::mib(64);

/// Our own device. It is removed when dropped, so also after a failed assertion; a note lists it if the test
/// is killed.
struct Device {
    zram: Zram,
    note: Option<Note>,
}

impl Device {
    fn add() -> Option<Self> {
        let root = Path::new("/");
        if !zram::exists(root) {
            eprintln!("SKIP: cannot add zram devices (the module is not loaded)");
            return None;
        }
        match Zram::add(root) {
            Ok(zram) => {
                let undo = format!("echo {} > /sys/class/zram-control/hot_remove", zram.id);
                let change = Leftover {
                    until: Until::RemovalOf(zram.device()),
                    description: format!("a zram device of a test: `{undo}` removes it"),
                };
                let note = leftovers::note_change(root, "zram-test", change).unwrap();
                Some(Self {
                    zram,
                    note: Some(note),
                })
            }
            Err(error) => {
                eprintln!("SKIP: cannot add a zram device: {error}");
                None
            }
        }
    }

    /// Writes `pages` to the empty device, and returns its memory use.
    fn store(&self, algorithm: Algorithm, pages: &[Page]) -> MmStat {
        let root = Path::new("/");
        self.zram.set_algorithm(root, algorithm.name()).unwrap();
        self.zram.set_size(root, DEVICE).unwrap();
        let mut file = OpenOptions::new().write(true).open(self.zram.device()).unwrap();
        file.write_all(pages.as_flattened()).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let stat = self.zram.mm_stat(root).unwrap();
        self.zram.reset(root).unwrap();
        stat
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let root = Path::new("/");
        if let Err(error) = self.zram.reset(root).and_then(|()| self.zram.remove(root)) {
            eprintln!("cannot remove {}: {error}", self.zram.device().display());
            self.note.take().into_iter().for_each(Note::keep);
        }
    }
}

/// Every page as the model stores it.
fn predict(model: &ZramModel, algorithm: Algorithm, pages: &[Page]) -> Vec<StoredPage> {
    let mut compressor = Compressor::new(algorithm).unwrap();
    let store = |page| model.store(page, &mut compressor).unwrap();
    pages.iter().map(store).collect()
}

/// Difference in percent of the truth.
fn off(predicted: u64, truth: u64) -> f64 {
    if predicted == truth {
        return 0.0;
    }
    (predicted as f64 / truth as f64 - 1.0) * 100.0
}

fn count(stored: &[StoredPage], kind: StoredPage) -> u64 {
    stored.iter().filter(|page| **page == kind).count() as u64
}

/// Compares all pages, and prints a row of the table in docs/evaluation.md.
fn compare(device: &Device, algorithm: Algorithm, name: &str, pages: &[Page]) -> MmStat {
    let model = ZramModel::default();
    let stored = predict(&model, algorithm, pages);
    let lens = || stored.iter().filter_map(|page| page.object_len());
    let (compr, pool) = (lens().sum::<usize>() as u64, model.classes.pool_bytes(lens()).0);
    let stat = device.store(algorithm, pages);
    println!(
        "| {name} | {algorithm} | {compr} / {} ({:+.2} %) | {pool} / {} ({:+.2} %) | {} / {} | {} / {} |",
        stat.compr_data.0,
        off(compr, stat.compr_data.0),
        stat.mem_used.0,
        off(pool, stat.mem_used.0),
        count(&stored, StoredPage::SameFilled),
        stat.same_pages,
        count(&stored, StoredPage::Raw),
        stat.huge_pages,
    );
    assert_eq!(count(&stored, StoredPage::SameFilled), stat.same_pages);
    assert!(off(compr, stat.compr_data.0).abs() < 5.0, "{name} {algorithm}");
    assert!(off(pool, stat.mem_used.0).abs() < 5.0, "{name} {algorithm}");
    if algorithm == Algorithm::LzoRle {
        assert_eq!(compr, stat.compr_data.0, "the length of lzo-rle is exact");
    }
    stat
}

struct Pages<'a>(&'a [Page]);

impl PageReader for Pages<'_> {
    fn read(&mut self, _pid: u32, addr: Addr, page: &mut Page) -> Result<(), Unread> {
        *page = self.0[addr.0 as usize / page.len()];
        Ok(())
    }
}

/// Samples the pages in one stratum for each content. Prints the estimate.
fn estimate_is_near(algorithm: Algorithm, all: &[Page], each: usize, stat: MmStat) {
    let strata: Vec<Stratum<usize>> = (0..all.len() / each)
        .map(|nth| Stratum {
            key: nth,
            bytes: Bytes((each * 4096) as u64),
            candidates: vec![Candidate {
                pid: 1,
                range: AddrRange::new((nth * each * 4096) as u64, ((nth + 1) * each * 4096) as u64),
            }],
        })
        .collect();
    let algorithms = vec![algorithm];
    let settings = SampleSettings {
        algorithms,
        ..SampleSettings::default()
    };
    let found = sample(&strata, &mut Pages(all), &settings).unwrap();
    let (lz, original) = (found.total.algorithms[0], (all.len() * 4096) as f64);
    let partly_filled = lz.partly_filled.0 as f64;
    let bytes = |share: f64| share * original + partly_filled;
    let (predicted, truth) = (bytes(lz.stored.mean), stat.mem_used.0 as f64);
    println!(
        "{algorithm}: {} pages predict {:.2} MiB ({:.2} to {:.2}, of which {:.2} for partly filled zspages), zram \
         uses {:.2} MiB: {:+.2} %",
        found.total.nr_read,
        predicted / 1_048_576.0,
        bytes(lz.stored.low) / 1_048_576.0,
        bytes(lz.stored.high) / 1_048_576.0,
        partly_filled / 1_048_576.0,
        truth / 1_048_576.0,
        (predicted / truth - 1.0) * 100.0
    );
    assert!((predicted / truth - 1.0).abs() < 0.05);
}

#[test]
fn predicted_size_is_that_of_zram() {
    let Some(device) = Device::add() else { return };
    let (offered, _) = device.zram.algorithms(Path::new("/")).unwrap();
    println!("| content | algorithm | compressed, bytes | memory, bytes | same-filled | raw |");
    for algorithm in Algorithm::ALL {
        if !offered.iter().any(|name| name == algorithm.name()) {
            eprintln!(
                "SKIP: this kernel has no zram with {algorithm}, only with {}",
                offered.join(", ")
            );
            continue;
        }
        let mut all = Vec::new();
        for name in CONTENTS {
            let pages = content(name);
            compare(&device, algorithm, name, &pages);
            all.extend(pages);
        }
        let stat = compare(&device, algorithm, "all", &all);
        estimate_is_near(algorithm, &all, all.len() / CONTENTS.len(), stat);
    }
}
