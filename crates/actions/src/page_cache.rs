//! LRU sorting of page cache that perhaps no process maps: what of a file is in memory moves up or down.
//!
//! The actor works on address spaces, where such pages are not seen. Here the user names the file. Hot: each page
//! that is in memory is read twice (with MGLRU five times), a byte, without waiting for any disk. Cold: the file is mapped by ourselves, only
//! what is in memory of it, and that mapping is given up (`MADV_COLD`); `POSIX_FADV_DONTNEED` would drop the pages,
//! which costs reading them again. Pages that a process maps too move up, and do not move down: they are counted as
//! shared. Devices, pipes and the like are refused.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use thermo_engine::Action;
use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::lru_gen::uses;
use thermo_kernel::page_cache::{CachedFile, Window};
use thermo_kernel::pagemap::Pagemap;
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

/// What is looked at and acted on between two questions whether to stop, in pages.
const WINDOW: u64 = (64 << 20) / PAGE_SIZE;

/// Why nothing is done to a file at all.
#[derive(Debug, thiserror::Error)]
pub enum PageCacheError {
    /// Only sorting can be done to page cache.
    #[error("{action} is nothing to do to a file in memory: use lru_prio, lru_deprio or stat")]
    Action {
        /// What was asked for.
        action: Action,
    },
    /// It is a folder, a device, a pipe.
    #[error("{path} is no regular file: only those have page cache; name each file of a folder", path = path.display())]
    NoFile {
        /// What was named.
        path: PathBuf,
    },
    /// The kernel would not tell which pages are there.
    #[error(
        "{path} belongs to somebody else and cannot be written, so the kernel does not tell what of it is in memory: \
         run it as its owner or as root",
        path = path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be opened or mapped.
    #[error("cannot look at {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// How far to go.
#[derive(Debug, Clone, Copy)]
pub struct PageCache<'a> {
    /// At most this much, if any limit.
    pub max_bytes: Option<Bytes>,
    /// Decide and count everything, and do nothing.
    pub dry_run: bool,
    /// Set to true, it leaves alone what it has not begun.
    pub cancel: &'a AtomicBool,
}

impl PageCache<'_> {
    /// Does `action` (`lru_prio`, `lru_deprio`; `stat` does nothing) to what is in memory of the file at `path`.
    ///
    /// # Errors
    /// Nothing was done: the action is none of these, or the file cannot be looked at.
    pub fn apply(&self, action: Action, path: &Path) -> Result<Applied, PageCacheError> {
        if !matches!(action, Action::LruPrio | Action::LruDeprio | Action::Stat) {
            return Err(PageCacheError::Action { action });
        }
        let path_buf = || path.to_owned();
        let file = CachedFile::open(path).map_err(|source| match source.raw_os_error() {
            Some(libc::EINVAL) => PageCacheError::NoFile { path: path_buf() },
            Some(libc::EPERM) => PageCacheError::NotOurs { path: path_buf() },
            _ => PageCacheError::File {
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
            let done = self.window(action, &file, (next, pages), &mut applied);
            done.map_err(|source| PageCacheError::File {
                path: path_buf(),
                source,
            })?;
            next += pages;
        }
        Ok(applied)
    }

    fn window(
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
        let room = self.max_bytes.map_or(u64::MAX, |most| {
            most.saturating_sub(applied.applied).0 / PAGE_SIZE
        });
        let fits = usize::try_from(room).unwrap_or(usize::MAX).min(resident.len());
        applied.skip(Skip::Cancelled, bytes((resident.len() - fits) as u64));
        resident.truncate(fits);
        let there = bytes(resident.len() as u64);
        match action {
            _ if self.dry_run => applied.skip(Skip::DryRun, there),
            Action::LruPrio => match file.use_often(&resident, uses(Path::new("/"))) {
                Ok(used) => {
                    applied.applied += bytes(used);
                    applied.skip(Skip::NotPresent, there.saturating_sub(bytes(used)));
                }
                // Its file system cannot read without waiting, and we will not wait.
                Err(_) => applied.skip(Skip::Refused, there),
            },
            Action::LruDeprio => {
                let mapped = bytes(window.map(&resident));
                applied.skip(Skip::NotPresent, there.saturating_sub(mapped));
                let shared = shared(&window, &resident).min(mapped);
                match window.give_up() {
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
}

/// What of the `resident` pages that we map is mapped by others, too.
fn shared(window: &Window<'_>, resident: &[u64]) -> Bytes {
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
