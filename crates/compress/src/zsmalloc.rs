//! The size classes of zsmalloc, the allocator of zram (mm/zsmalloc.c, Documentation/mm/zsmalloc.rst).
//!
//! Objects of like size share a zspage, a chain of a few pages. What an object costs is its part of the
//! zspage, which is more than its length: lengths are rounded to a class, and a zspage rarely divides evenly.

use thermo_units::{Bytes, PAGE_SIZE};

/// Most pages in a zspage: the default of `CONFIG_ZSMALLOC_CHAIN_SIZE` since Linux 6.3.
pub const CHAIN_SIZE: usize = 8;
/// Most pages in a zspage before Linux 6.3.
pub const CHAIN_SIZE_BEFORE_6_3: usize = 4;

const PAGE: usize = PAGE_SIZE as usize;
/// The handle stored in front of an object (`ZS_HANDLE_SIZE`), on 64-bit machines.
const HANDLE_SIZE: usize = 8;
/// `ZS_MIN_ALLOC_SIZE` on 64-bit machines with chains of up to 16 pages.
const MIN_SIZE: usize = 32;
/// `ZS_SIZE_CLASS_DELTA`: the step between classes.
const STEP: usize = 16;

/// Objects of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeClass {
    /// Size of the largest object, in bytes, with its handle.
    pub size: usize,
    /// Pages of a zspage.
    pub pages_per_zspage: usize,
    /// Objects that a zspage holds.
    pub objs_per_zspage: usize,
}

impl SizeClass {
    /// The class of this size, with the chain that wastes least (`calculate_zspage_chain_size()`). The
    /// shortest of equally good chains is taken; powers of two fit one page.
    fn new(size: usize, chain_size: usize) -> Self {
        let best = (1..=chain_size).min_by_key(|pages| pages * PAGE % size);
        let pages_per_zspage = if size.is_power_of_two() {
            1
        } else {
            best.unwrap_or(1)
        };
        Self {
            size,
            pages_per_zspage,
            objs_per_zspage: pages_per_zspage * PAGE / size,
        }
    }

    /// Objects of both classes would share zspages of the same shape (`can_merge()`).
    const fn has_shape_of(self, other: Self) -> bool {
        self.pages_per_zspage == other.pages_per_zspage && self.objs_per_zspage == other.objs_per_zspage
    }

    /// The memory of a zspage.
    #[must_use]
    pub const fn zspage_bytes(self) -> Bytes {
        Bytes((self.pages_per_zspage * PAGE) as u64)
    }

    /// The memory of one object in full zspages, in bytes.
    #[must_use]
    pub fn bytes_per_object(self) -> f64 {
        (self.pages_per_zspage * PAGE) as f64 / self.objs_per_zspage as f64
    }
}

/// The classes of a pool.
#[derive(Debug, Clone)]
pub struct SizeClasses {
    /// By index, smallest first. A merged class is that of the largest size.
    classes: Vec<SizeClass>,
    huge_class_size: usize,
}

impl Default for SizeClasses {
    fn default() -> Self {
        Self::new(CHAIN_SIZE)
    }
}

impl SizeClasses {
    /// The classes of a kernel with zspages of up to `chain_size` pages: see [`CHAIN_SIZE`]. No file in
    /// `/sys` or `/proc` has the number, apart from the kernel's configuration.
    #[must_use]
    pub fn new(chain_size: usize) -> Self {
        let mut classes: Vec<SizeClass> = (MIN_SIZE..=PAGE)
            .step_by(STEP)
            .map(|size| SizeClass::new(size, chain_size))
            .collect();
        let shares_zspages = |class: &&SizeClass| class.pages_per_zspage != 1 && class.objs_per_zspage != 1;
        let largest_shared = classes.iter().rev().find(shares_zspages);
        // The smallest object that the handle lifts beyond the last class that shares zspages.
        let huge_class_size = largest_shared.map_or(PAGE, |class| class.size - (HANDLE_SIZE - 1));
        for nth in (0..classes.len() - 1).rev() {
            if classes[nth].has_shape_of(classes[nth + 1]) {
                classes[nth] = classes[nth + 1];
            }
        }
        Self {
            classes,
            huge_class_size,
        }
    }

    /// The compressed length, in bytes, from which on zram stores a page raw (`zs_huge_class_size()`): 3625
    /// with the default [`CHAIN_SIZE`].
    #[must_use]
    pub const fn huge_class_size(&self) -> usize {
        self.huge_class_size
    }

    /// The class of an object of `len` bytes without handle. Objects longer than a page do not exist; they
    /// get the class of a page.
    #[must_use]
    pub fn class_of(&self, len: usize) -> SizeClass {
        let nth = (len + HANDLE_SIZE).saturating_sub(MIN_SIZE).div_ceil(STEP);
        self.classes[nth.min(self.classes.len() - 1)]
    }

    /// The memory that a page of this compressed length occupies, in bytes: its share of a full zspage, or a
    /// page if the length reaches [`Self::huge_class_size`].
    #[must_use]
    pub fn stored_bytes(&self, compressed_len: usize) -> f64 {
        if compressed_len >= self.huge_class_size {
            return PAGE as f64;
        }
        self.class_of(compressed_len).bytes_per_object()
    }

    /// The memory of a pool that holds just objects of these lengths: whole zspages. Half a zspage for each
    /// class in use exceeds the sum of [`Self::stored_bytes`], up to 1.5 MiB in all; it matters for pools of
    /// a few MiB. Raw pages have the length of a page.
    #[must_use]
    pub fn pool_bytes(&self, lens: impl IntoIterator<Item = usize>) -> Bytes {
        // Merged classes have one size, so the size identifies a class.
        let mut objects = std::collections::BTreeMap::<usize, (SizeClass, usize)>::new();
        for len in lens {
            let class = self.class_of(len);
            objects.entry(class.size).or_insert((class, 0)).1 += 1;
        }
        let pages =
            |(class, nr): &(SizeClass, usize)| nr.div_ceil(class.objs_per_zspage) * class.pages_per_zspage;
        Bytes((objects.values().map(pages).sum::<usize>() * PAGE) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(classes: &SizeClasses, size: usize) -> (usize, usize, usize) {
        let class = classes.class_of(size - HANDLE_SIZE);
        (class.size, class.pages_per_zspage, class.objs_per_zspage)
    }

    /// The values printed in Documentation/mm/zsmalloc.rst.
    #[test]
    fn classes_are_those_of_the_kernel() {
        let (old, new, long) = (
            SizeClasses::new(CHAIN_SIZE_BEFORE_6_3),
            SizeClasses::default(),
            SizeClasses::new(16),
        );
        assert_eq!((old.classes.len(), new.classes.len()), (255, 255));
        assert_eq!(
            [&old, &new, &long].map(SizeClasses::huge_class_size),
            [3264 - 7, 3632 - 7, 3840 - 7]
        );
        for (size, pages) in [(3264, 4), (3408, 5), (3504, 6), (3584, 7), (3632, 8), (4096, 1)] {
            let class = shape(&new, size);
            assert_eq!((class.0, class.1), (size, pages));
        }
        // Classes 96 to 100 are merged with chains of four pages. With eight, class 96 has its own zspages.
        assert_eq!(shape(&old, 1568), (1632, 2, 5));
        assert_eq!(shape(&old, 1632), (1632, 2, 5));
        assert_eq!(shape(&new, 1568), (1568, 5, 13));
    }

    #[test]
    fn object_costs_its_part_of_a_zspage() {
        let classes = SizeClasses::default();
        assert_eq!(classes.stored_bytes(24), 32.0);
        assert_eq!(classes.stored_bytes(0), 32.0);
        assert_eq!(classes.stored_bytes(25), 4096.0 * 3.0 / 256.0);
        assert_eq!(classes.stored_bytes(3624), 8.0 * 4096.0 / 9.0);
        assert_eq!(classes.stored_bytes(3625), 4096.0);
        assert_eq!(classes.stored_bytes(9000), 4096.0);
        for len in 0..=4096 {
            let class = classes.class_of(len);
            assert!(class.size >= (len + HANDLE_SIZE).min(PAGE), "{len}: {class:?}");
            assert!(class.objs_per_zspage * class.size <= class.pages_per_zspage * PAGE);
        }
    }

    #[test]
    fn pool_has_whole_zspages() {
        let classes = SizeClasses::default();
        assert_eq!(classes.pool_bytes([]), Bytes(0));
        assert_eq!(classes.pool_bytes([24; 128]), Bytes(4096));
        assert_eq!(classes.pool_bytes([24; 129]), Bytes(8192));
        assert_eq!(classes.pool_bytes([3624, 4096, 4096]), Bytes(10 * 4096));
    }
}
