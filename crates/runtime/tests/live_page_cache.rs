//! Unmapped page cache is moved up and down the LRU lists, checked with `/proc/kpageflags`, and stays in
//! memory.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use common::retry;
use thermo_actions::page_cache::{PageCacheError, PageCacheSorter};
use thermo_engine::Action;
use thermo_engine::ops::Skip;
use thermo_kernel::kpageflags::PageFrames;
use thermo_kernel::lru_gen;
use thermo_kernel::page_cache::CachedFile;
use thermo_kernel::pagemap::Pagemap;
use thermo_units::{Addr, Bytes, PAGE_SIZE};

const PAGES: u64 = 1024;
static NOT_CANCELLED: AtomicBool = AtomicBool::new(false);
const ALL: PageCacheSorter = PageCacheSorter {
    max_bytes: None,
    dry_run: false,
    cancel: &NOT_CANCELLED,
};

/// A resident file, on a disk if this machine has one.
fn file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let page = |n: u64| (n * 7919).to_le_bytes().repeat(PAGE_SIZE as usize / 8);
    fs::write(file.path(), (0..PAGES).flat_map(page).collect::<Vec<u8>>()).unwrap();
    // Pages under writeback are not moved, so all pages are written back first.
    file.as_file().sync_all().unwrap();
    file
}

/// Number of pages of the file on active and on inactive lists; `None` if the lists cannot be read.
fn lists(path: &Path) -> Option<(usize, usize)> {
    if lru_gen::is_enabled(Path::new("/")) {
        eprintln!("SKIP: this kernel uses MGLRU, whose generations /proc/kpageflags does not show");
        return None;
    }
    let frames = PageFrames::open(Path::new("/"))
        .inspect_err(|why| eprintln!("SKIP: /proc/kpageflags cannot be read: {why}"))
        .ok()?;
    let cached = CachedFile::open(path).unwrap();
    let window = cached.window(0, PAGES).unwrap();
    let resident = window.resident().unwrap();
    let _ = window.populate(&resident);
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
fn unmapped_page_cache_moves_up_and_down() {
    let file = file();
    if lists(file.path()).is_none() {
        return;
    }
    retry(|| {
        let up = ALL.apply(Action::LruPrio, file.path()).unwrap();
        let lists_up = lists(file.path()).unwrap();
        let down = ALL.apply(Action::LruDeprio, file.path()).unwrap();
        let lists_down = lists(file.path()).unwrap();
        eprintln!("(active, inactive): up {lists_up:?} of {up:?}, down {lists_down:?} of {down:?}");
        if up.skipped.iter().any(|(why, _)| *why == Skip::Unsupported) {
            eprintln!("SKIP: this file system does not support RWF_NOWAIT");
            return Ok(());
        }
        // Other programs may reclaim or read the pages. The batches of other CPUs are moved later.
        let is_sorted = lists_up.0 > 2 * lists_up.1 && lists_down.1 > 2 * lists_down.0;
        let is_resident = down.passed_filters > Bytes(PAGES * PAGE_SIZE / 2);
        if is_sorted && is_resident {
            Ok(())
        } else {
            Err(format!("up: {lists_up:?}, down: {lists_down:?}"))
        }
    });
}

#[test]
fn mapped_pages_are_skipped_and_limits_hold() {
    // The text of a running program.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("private-cat");
    fs::copy("/bin/cat", &program).unwrap();
    let mut cat = Command::new(&program);
    cat.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cat = cat.spawn().unwrap();
    // After its first output, the text of the program is mapped.
    let (mut stdin, mut stdout) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
    std::io::Write::write_all(&mut stdin, b"x").unwrap();
    std::io::Read::read_exact(&mut stdout, &mut [0]).unwrap();
    let down = ALL.apply(Action::LruDeprio, &program).unwrap();
    let shared = down.skipped.iter().find(|(why, _)| *why == Skip::Shared);
    assert!(shared.is_some(), "{down:?}");
    drop((stdin, stdout));
    cat.wait().unwrap();
    let dry_run = PageCacheSorter { dry_run: true, ..ALL };
    let result = dry_run.apply(Action::LruPrio, &program).unwrap();
    assert_eq!(result.applied, Bytes::ZERO);
    let limited = PageCacheSorter {
        max_bytes: Some(Bytes(2 * PAGE_SIZE)),
        ..ALL
    };
    assert!(limited.apply(Action::LruDeprio, &program).unwrap().applied <= Bytes(2 * PAGE_SIZE));
}

#[test]
fn unsupported_actions_and_files_are_refused() {
    let refused = |action, path: &str| ALL.apply(action, Path::new(path)).unwrap_err();
    assert!(matches!(
        refused(Action::Pageout, "/bin/cat"),
        PageCacheError::UnsupportedAction { .. }
    ));
    assert!(matches!(
        refused(Action::LruPrio, "/proc"),
        PageCacheError::NotRegularFile { .. }
    ));
    assert!(matches!(
        refused(Action::LruPrio, "/dev/zero"),
        PageCacheError::NotRegularFile { .. }
    ));
    let error = refused(Action::LruDeprio, "/no/such/file").to_string();
    assert!(
        error.starts_with("cannot read the page cache of /no/such/file: "),
        "{error}"
    );
}
