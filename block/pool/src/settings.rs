//! What can be set, at run time, for one pool or for all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thermo_units::Nanos;

/// How free pages go back to the kernel (madvise(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GiveBack {
    /// At once: resident memory falls now, and the next use of a page costs a fault and a cleared page.
    #[default]
    DontNeed,
    /// When the kernel needs them: cheap to take back before that, but resident memory does not show it. Memory
    /// that is locked goes at once all the same.
    Free,
}

/// The settings of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Free pages a pool keeps for the next requests. 0 keeps none: always squeezed.
    pub max_buffer_pages: u64,
    /// For how long after a report of pressure a pool keeps no free page; a new report starts it anew. 0: reports
    /// are ignored.
    pub buffer_squeeze_duration_ms: u64,
    /// How pages go back.
    pub give_back: GiveBack,
    /// Buffers are zeroed before they are lent again. Needed only when users who must not see each other's data share
    /// a pool: pages never go from one pool to another but through the kernel, which clears them.
    pub zero: bool,
}

impl Default for Settings {
    /// As blkback: 1024 pages, 10 ms.
    fn default() -> Self {
        Self {
            max_buffer_pages: 1024,
            buffer_squeeze_duration_ms: 10,
            give_back: GiveBack::DontNeed,
            zero: false,
        }
    }
}

/// Settings that threads read while another changes them. Each stands for itself, so none needs the others' order.
#[derive(Debug)]
pub(crate) struct Knobs {
    max_buffer_pages: AtomicU64,
    squeeze_ms: AtomicU64,
    lazily: AtomicBool,
    zero: AtomicBool,
}

impl Knobs {
    pub(crate) fn new(settings: Settings) -> Self {
        let knobs = Self {
            max_buffer_pages: AtomicU64::new(0),
            squeeze_ms: AtomicU64::new(0),
            lazily: AtomicBool::new(false),
            zero: AtomicBool::new(false),
        };
        knobs.set(settings);
        knobs
    }

    pub(crate) fn set(&self, settings: Settings) {
        self.max_buffer_pages
            .store(settings.max_buffer_pages, Ordering::Relaxed);
        self.squeeze_ms
            .store(settings.buffer_squeeze_duration_ms, Ordering::Relaxed);
        self.lazily
            .store(settings.give_back == GiveBack::Free, Ordering::Relaxed);
        self.zero.store(settings.zero, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Settings {
        Settings {
            max_buffer_pages: self.max_buffer_pages.load(Ordering::Relaxed),
            buffer_squeeze_duration_ms: self.squeeze_ms.load(Ordering::Relaxed),
            give_back: self.give_back(),
            zero: self.zero(),
        }
    }

    pub(crate) fn max_buffer_pages(&self) -> usize {
        usize::try_from(self.max_buffer_pages.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    pub(crate) fn squeeze(&self) -> Nanos {
        Nanos::millis(self.squeeze_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn give_back(&self) -> GiveBack {
        if self.lazily.load(Ordering::Relaxed) {
            GiveBack::Free
        } else {
            GiveBack::DontNeed
        }
    }

    pub(crate) fn zero(&self) -> bool {
        self.zero.load(Ordering::Relaxed)
    }
}
