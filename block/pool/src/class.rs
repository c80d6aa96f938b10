//! Size classes: a buffer is a power of two of bytes, at least a page, at most [`LARGEST`].

use thermo_units::Bytes;

/// The largest buffer: what NBD clients may ask for in one request.
pub const LARGEST: Bytes = Bytes::mib(32);

const SMALLEST_SHIFT: u32 = 12;
/// How many there are.
pub(crate) const CLASSES: usize = (LARGEST.0.trailing_zeros() - SMALLEST_SHIFT + 1) as usize;

/// Address space is mapped in pieces of at least this many bytes, or of one buffer. Each buffer in it is written down
/// (some 48 bytes), used or not: with pieces of 1 MiB, 256 pools of which each lent one buffer of each small class held
/// 5 MiB of notes, most of them of buffers that nobody ever took.
const SLAB: usize = 128 << 10;

/// A class, by its position from the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(usize);

impl Class {
    /// The smallest class that holds `len` bytes; none when `len` is above [`LARGEST`].
    pub(crate) fn holding(len: usize) -> Option<Self> {
        let size = len.max(rustix::param::page_size()).checked_next_power_of_two()?;
        let index = (size.trailing_zeros() - SMALLEST_SHIFT) as usize;
        (index < CLASSES).then_some(Self(index))
    }

    pub(crate) const fn index(self) -> usize {
        self.0
    }

    /// Bytes of a buffer of this class.
    pub(crate) const fn len(self) -> usize {
        1 << (self.0 + SMALLEST_SHIFT as usize)
    }

    /// Buffers that are mapped together.
    pub(crate) const fn per_slab(self) -> usize {
        let count = SLAB / self.len();
        if count == 0 { 1 } else { count }
    }
}

/// Pages of this machine in `len` bytes, which are whole pages.
pub(crate) fn pages(len: usize) -> usize {
    len / rustix::param::page_size()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_length_goes_to_the_smallest_class_that_holds_it() {
        let len = |bytes| Class::holding(bytes).map(Class::len);
        let page = rustix::param::page_size();
        assert_eq!((len(0), len(1), len(page)), (Some(page), Some(page), Some(page)));
        assert_eq!(len(page + 1), Some(2 * page));
        assert_eq!(len(128 << 10), Some(128 << 10));
        assert_eq!(len(32 << 20), Some(32 << 20));
        assert_eq!((len((32 << 20) + 1), len(usize::MAX)), (None, None));
    }
}
