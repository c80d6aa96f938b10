//! Size classes. A buffer's size is a power of two, at least a page and at most [`MAX_BUFFER_SIZE`].

use thermo_units::Bytes;

/// The largest buffer: the largest request that NBD clients may send by default.
pub const MAX_BUFFER_SIZE: Bytes = Bytes::mib(32);

const SMALLEST_SHIFT: u32 = 12;
/// Number of size classes.
pub(crate) const CLASS_COUNT: usize = (MAX_BUFFER_SIZE.0.trailing_zeros() - SMALLEST_SHIFT + 1) as usize;

/// Address space is mapped in slabs of at least this many bytes, or of one buffer. Each buffer of a slab
/// needs about 48 bytes of metadata, used or not. With slabs of 1 MiB, 256 pools that each lent one buffer of
/// each small class held 5 MiB of metadata, mostly of buffers that were never used.
const SLAB: usize = 128 << 10;

/// A size class, by its index from the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(usize);

impl Class {
    /// The smallest class that holds `len` bytes. `None` if `len` exceeds [`MAX_BUFFER_SIZE`].
    pub(crate) fn holding(len: usize) -> Option<Self> {
        let size = len.max(rustix::param::page_size()).checked_next_power_of_two()?;
        let index = (size.trailing_zeros() - SMALLEST_SHIFT) as usize;
        (index < CLASS_COUNT).then_some(Self(index))
    }

    pub(crate) const fn index(self) -> usize {
        self.0
    }

    /// Size of a buffer of this class, in bytes.
    pub(crate) const fn len(self) -> usize {
        1 << (self.0 + SMALLEST_SHIFT as usize)
    }

    /// Number of buffers in one slab.
    pub(crate) const fn per_slab(self) -> usize {
        let count = SLAB / self.len();
        if count == 0 { 1 } else { count }
    }
}

/// Number of pages in `len` bytes. `len` is a multiple of the page size.
pub(crate) fn pages(len: usize) -> usize {
    len / rustix::param::page_size()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn class_holding_returns_smallest_fitting_class() {
        let len = |bytes| Class::holding(bytes).map(Class::len);
        let page = rustix::param::page_size();
        assert_eq!((len(0), len(1), len(page)), (Some(page), Some(page), Some(page)));
        assert_eq!(len(page + 1), Some(2 * page));
        assert_eq!(len(128 << 10), Some(128 << 10));
        assert_eq!(len(32 << 20), Some(32 << 20));
        assert_eq!((len((32 << 20) + 1), len(usize::MAX)), (None, None));
    }
}
