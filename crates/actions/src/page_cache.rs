//! LRU sorting of a file's page cache, including pages that no process maps.
//!
//! The actor works on address spaces and does not see unmapped page cache. Here the user names the file.
//!
//! * `lru_prio` reads one byte of each resident page twice (five times with MGLRU). Reads never wait for a
//!   disk.
//! * `lru_deprio` maps the resident pages into this process and applies `MADV_COLD` to the mapping.
//!   `POSIX_FADV_DONTNEED` would drop the pages, so they would have to be read again.
//!
//! Pages that another process also maps can move up but not down: `lru_deprio` counts them as shared. Only
//! regular files are accepted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use thermo_engine::Action;
use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::lru_gen::accesses_to_activate;
use thermo_kernel::page_cache::{CachedFile, Window};
use thermo_kernel::pagemap::Pagemap;
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

/// Pages processed between two checks of the cancel flag.
const WINDOW: u64 = (64 << 20) / PAGE_SIZE;

/// Why nothing was done to a file.
#[derive(Debug, thiserror::Error)]
pub enum PageCacheError {
    /// The action does not apply to page cache.
    #[error("the action {action} does not apply to page cache: use lru_prio, lru_deprio or stat")]
    UnsupportedAction {
        /// The requested action.
        action: Action,
    },
    /// The path is a folder, a device or a pipe.
    #[error(
        "{path} is not a regular file, and only regular files have page cache: name each file of a folder",
        path = path.display()
    )]
    NotRegularFile {
        /// The path.
        path: PathBuf,
    },
    /// `mincore()` reports residency only to the owner, to root, and to users who may write the file.
    #[error(
        "{path} belongs to another user and is not writable, so the kernel does not report which of its pages are \
         resident: run as its owner or as root",
        path = path.display()
    )]
    NotOwner {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened or mapped.
    #[error("cannot read the page cache of {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
}

/// Sorts the page cache of files, within limits.
#[derive(Debug, Clone, Copy)]
pub struct PageCacheSorter<'a> {
    /// Maximum number of bytes to act on; `None`: no limit.
    pub max_bytes: Option<Bytes>,
    /// Count what would be done, and do nothing.
    pub dry_run: bool,
    /// When set to true, remaining pages are skipped.
    pub cancel: &'a AtomicBool,
}

impl PageCacheSorter<'_> {
    /// Applies `action` (`lru_prio`, `lru_deprio`, or `stat`, which only counts) to the resident pages of the
    /// file at `path`.
    ///
    /// # Errors
    /// Another action, or a file whose residency cannot be read. Nothing was done.
    pub fn apply(&self, action: Action, path: &Path) -> Result<Applied, PageCacheError> {
        if !matches!(action, Action::LruPrio | Action::LruDeprio | Action::Stat) {
            return Err(PageCacheError::UnsupportedAction { action });
        }
        let path_buf = || path.to_owned();
        let file = CachedFile::open(path).map_err(|source| match source.raw_os_error() {
            Some(libc::EINVAL) => PageCacheError::NotRegularFile { path: path_buf() },
            Some(libc::EPERM) => PageCacheError::NotOwner { path: path_buf() },
            _ => PageCacheError::Io {
                path: path_buf(),
                source,
            },
        })?;
        let mut applied = Applied::default();
        let mut next = 0;
        while next < file.pages() {
            let pages = WINDOW.min(file.pages() - next);
            if self.cancel.load(Ordering::Relaxed) {
                applied.skip(Skip::Cancelled, bytes(file.pages() - next));
                break;
            }
            let done = self.apply_window(action, &file, (next, pages), &mut applied);
            done.map_err(|source| PageCacheError::Io {
                path: path_buf(),
                source,
            })?;
            next += pages;
        }
        if self.dry_run {
            applied.into_dry_run();
        }
        Ok(applied)
    }

    fn apply_window(
        &self,
        action: Action,
        file: &CachedFile,
        (first, pages): (u64, u64),
        applied: &mut Applied,
    ) -> io::Result<()> {
        let window = file.window(first, pages)?;
        let mut resident = window.resident()?;
        applied.skip(Skip::NotPresent, bytes(pages - resident.len() as u64));
        applied.passed_filters += bytes(resident.len() as u64);
        let max_pages = self.max_bytes.map_or(u64::MAX, |max_bytes| {
            max_bytes.saturating_sub(applied.applied).0 / PAGE_SIZE
        });
        let fits = usize::try_from(max_pages)
            .unwrap_or(usize::MAX)
            .min(resident.len());
        applied.skip(Skip::Cancelled, bytes((resident.len() - fits) as u64));
        resident.truncate(fits);
        let present = bytes(resident.len() as u64);
        match action {
            Action::LruPrio => match self.mark_accessed(file, &resident) {
                Ok(used) => {
                    applied.applied += bytes(used);
                    applied.skip(Skip::NotPresent, present.saturating_sub(bytes(used)));
                }
                Err(error) => skip_unread(applied, &error, present),
            },
            Action::LruDeprio => {
                let mapped = bytes(window.populate(&resident));
                applied.skip(Skip::NotPresent, present.saturating_sub(mapped));
                let shared = shared_bytes(&window, &resident).min(mapped);
                let deactivated = if self.dry_run { Ok(()) } else { window.deactivate() };
                match deactivated {
                    Ok(()) => {
                        applied.skip(Skip::Shared, shared);
                        applied.applied += mapped.saturating_sub(shared);
                    }
                    Err(_) => applied.skip(Skip::Unadvisable, mapped),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The number of `resident` pages that were marked accessed; in a dry run, that would be.
    fn mark_accessed(&self, file: &CachedFile, resident: &[u64]) -> io::Result<u64> {
        if self.dry_run {
            return file.check_mark_accessed().map(|()| resident.len() as u64);
        }
        file.mark_accessed(resident, accesses_to_activate(Path::new("/")))
    }
}

/// Counts bytes of pages that could not be read without blocking.
fn skip_unread(applied: &mut Applied, error: &io::Error, bytes: Bytes) {
    let is_unsupported = error.raw_os_error() == Some(libc::EOPNOTSUPP);
    let (why, what) = match is_unsupported {
        true => (Skip::Unsupported, "the file system cannot read without blocking"),
        false => (Skip::Refused, "the kernel refused to read a page"),
    };
    applied.skip(why, bytes);
    if applied.error.is_none() {
        applied.error = Some(format!("{what}: preadv2(RWF_NOWAIT): {error}"));
    }
}

/// Bytes of the `resident` pages in our mapping that other processes also map.
fn shared_bytes(window: &Window<'_>, resident: &[u64]) -> Bytes {
    let Ok(pagemap) = Pagemap::open(Path::new("/"), std::process::id()) else {
        return Bytes::ZERO;
    };
    let mut pages = Vec::new();
    let mut shared = 0;
    for run in resident.chunk_by(|a, b| a + 1 == *b) {
        let start = run.first().and_then(|first| window.addr(*first));
        let Some(start) = start.map(Addr) else { continue };
        let range = AddrRange {
            start,
            end: start + bytes(run.len() as u64),
        };
        if pagemap.read(range, &mut pages).is_ok() {
            shared += pages
                .iter()
                .filter(|page| page.is_present() && !page.is_exclusive())
                .count();
        }
    }
    bytes(shared as u64)
}

const fn bytes(pages: u64) -> Bytes {
    Bytes(pages * PAGE_SIZE)
}
