//! Settings that can change at run time, for one pool or for all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thermo_units::Nanos;

/// The madvise(2) advice that releases free pages to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReleaseAdvice {
    /// MADV_DONTNEED: resident memory falls at once. The next use of a page costs a page fault and zeroing.
    #[default]
    DontNeed,
    /// MADV_FREE: the kernel takes the pages when it needs them. Until then they are cheap to reuse, but
    /// still count as resident. Locked memory is released at once.
    Free,
}

/// The settings of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Free pages that a pool keeps for later requests. 0: none.
    pub max_buffer_pages: u64,
    /// How long a pool keeps no free page after a report of pressure. A new report restarts the time. 0:
    /// reports are ignored.
    pub buffer_squeeze_duration_ms: u64,
    /// How pages are released.
    pub release_advice: ReleaseAdvice,
    /// Zero each buffer before it is lent. Only needed if users who must not see each other's data share a
    /// pool: pages move between pools only through the kernel, which zeroes them.
    pub zero: bool,
}

impl Default for Settings {
    /// The defaults of blkback: 1024 pages, 10 ms.
    fn default() -> Self {
        Self {
            max_buffer_pages: 1024,
            buffer_squeeze_duration_ms: 10,
            release_advice: ReleaseAdvice::DontNeed,
            zero: false,
        }
    }
}

/// Settings that other threads may change at any time. Each is independent, so relaxed order is enough.
#[derive(Debug)]
pub(crate) struct AtomicSettings {
    max_buffer_pages: AtomicU64,
    squeeze_ms: AtomicU64,
    lazy_free: AtomicBool,
    zero: AtomicBool,
}

impl AtomicSettings {
    pub(crate) fn new(settings: Settings) -> Self {
        let atomic = Self {
            max_buffer_pages: AtomicU64::new(0),
            squeeze_ms: AtomicU64::new(0),
            lazy_free: AtomicBool::new(false),
            zero: AtomicBool::new(false),
        };
        atomic.set(settings);
        atomic
    }

    pub(crate) fn set(&self, settings: Settings) {
        self.max_buffer_pages
            .store(settings.max_buffer_pages, Ordering::Relaxed);
        self.squeeze_ms
            .store(settings.buffer_squeeze_duration_ms, Ordering::Relaxed);
        self.lazy_free
            .store(settings.release_advice == ReleaseAdvice::Free, Ordering::Relaxed);
        self.zero.store(settings.zero, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Settings {
        Settings {
            max_buffer_pages: self.max_buffer_pages.load(Ordering::Relaxed),
            buffer_squeeze_duration_ms: self.squeeze_ms.load(Ordering::Relaxed),
            release_advice: self.release_advice(),
            zero: self.zero(),
        }
    }

    pub(crate) fn max_buffer_pages(&self) -> usize {
        usize::try_from(self.max_buffer_pages.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    pub(crate) fn squeeze(&self) -> Nanos {
        Nanos::millis(self.squeeze_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn release_advice(&self) -> ReleaseAdvice {
        if self.lazy_free.load(Ordering::Relaxed) {
            ReleaseAdvice::Free
        } else {
            ReleaseAdvice::DontNeed
        }
    }

    pub(crate) fn zero(&self) -> bool {
        self.zero.load(Ordering::Relaxed)
    }
}
