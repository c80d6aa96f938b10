//! Page cache that no process maps: sorted both ways, as `/proc/kpageflags` tells it, without any of it leaving memory.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use common::repeat_until_good;
use thermo_actions::page_cache::{PageCache, PageCacheError};
use thermo_engine::Action;
use thermo_engine::ops::Skip;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::lru_gen;
use thermo_kernel::page_cache::CachedFile;
use thermo_kernel::pagemap::Pagemap;
use thermo_units::{Addr, Bytes, PAGE_SIZE};

const PAGES: u64 = 1024;
static GO_ON: AtomicBool = AtomicBool::new(false);
const ALL: PageCache = PageCache {
    max_bytes: None,
    dry_run: false,
    cancel: &GO_ON,
};

/// A file on a disk (where this machine has one), written and in memory.
fn file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let page = |n: u64| (n * 7919).to_le_bytes().repeat(PAGE_SIZE as usize / 8);
    fs::write(file.path(), (0..PAGES).flat_map(page).collect::<Vec<u8>>()).unwrap();
    // Dirty pages may be on their way to the disk, and are not moved then.
    file.as_file().sync_all().unwrap();
    file
}

/// How many pages of the file are on an active and on an inactive list; `None` where that cannot be seen.
fn lists(path: &Path) -> Option<(usize, usize)> {
    if lru_gen::is_on(Path::new("/")) {
        eprintln!("SKIP: this kernel keeps generations (MGLRU), which /proc/kpageflags does not show");
        return None;
    }
    let frames = PageFrames::open(Path::new("/"))
        .inspect_err(|why| eprintln!("SKIP: /proc/kpageflags cannot be read: {why}"))
        .ok()?;
    let cached = CachedFile::open(path).unwrap();
    let window = cached.window(0, PAGES).unwrap();
    let resident = window.resident().unwrap();
    let _ = window.map(&resident);
    let pagemap = Pagemap::open(Path::new("/"), std::process::id()).unwrap();
    let flags = resident.iter().filter_map(|page| {
        let pfn = pagemap.page(Addr(window.addr(*page)?)).ok()?.pfn()?;
        frames.flags(pfn).ok()
    });
    let (active, inactive): (Vec<_>, Vec<_>) = flags
        .filter(|flags| flags.is_lru())
        .partition(|flags| flags.is_active());
    Some((active.len(), inactive.len()))
}

#[test]
fn unmapped_page_cache_goes_up_and_down_and_stays() {
    let file = file();
    if lists(file.path()).is_none() {
        return;
    }
    repeat_until_good(|| {
        let up = ALL.apply(Action::LruPrio, file.path()).unwrap();
        let was_up = lists(file.path()).unwrap();
        let down = ALL.apply(Action::LruDeprio, file.path()).unwrap();
        let was_down = lists(file.path()).unwrap();
        eprintln!("(active, inactive): up {was_up:?} of {up:?}, down {was_down:?} of {down:?}");
        if up.skipped.iter().any(|(why, _)| *why == Skip::Refused) {
            eprintln!("SKIP: this file system cannot read without waiting");
            return Ok(());
        }
        // Others may reclaim or read it, too; batches of other processors are moved later.
        let good = was_up.0 > 2 * was_up.1 && was_down.1 > 2 * was_down.0;
        let there = down.passed_filters > Bytes(PAGES * PAGE_SIZE / 2);
        if good && there {
            Ok(())
        } else {
            Err(format!("up: {was_up:?}, down: {was_down:?}"))
        }
    });
}

#[test]
fn what_others_map_is_counted_and_a_dry_run_does_nothing() {
    // The text of a program that runs.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("a-cat-of-its-own");
    fs::copy("/bin/cat", &program).unwrap();
    let mut cat = Command::new(&program);
    cat.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cat = cat.spawn().unwrap();
    // It answers: its text is mapped.
    let (mut to, mut from) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
    std::io::Write::write_all(&mut to, b"x").unwrap();
    std::io::Read::read_exact(&mut from, &mut [0]).unwrap();
    let down = ALL.apply(Action::LruDeprio, &program).unwrap();
    let shared = down.skipped.iter().find(|(why, _)| *why == Skip::Shared);
    assert!(shared.is_some(), "{down:?}");
    drop((to, from));
    cat.wait().unwrap();
    let dry = PageCache { dry_run: true, ..ALL };
    let told = dry.apply(Action::LruPrio, &program).unwrap();
    assert_eq!(told.applied, Bytes::ZERO);
    let few = PageCache {
        max_bytes: Some(Bytes(2 * PAGE_SIZE)),
        ..ALL
    };
    assert!(few.apply(Action::LruDeprio, &program).unwrap().applied <= Bytes(2 * PAGE_SIZE));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let refused = |action, path: &str| ALL.apply(action, Path::new(path)).unwrap_err();
    assert!(matches!(
        refused(Action::Pageout, "/bin/cat"),
        PageCacheError::Action { .. }
    ));
    assert!(matches!(
        refused(Action::LruPrio, "/proc"),
        PageCacheError::NoFile { .. }
    ));
    assert!(matches!(
        refused(Action::LruPrio, "/dev/zero"),
        PageCacheError::NoFile { .. }
    ));
    let told = refused(Action::LruDeprio, "/no/such/file").to_string();
    assert!(told.starts_with("cannot look at /no/such/file: "), "{told}");
}
