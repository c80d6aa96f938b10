//! How much of some memory is there: counted from the pagemap, whole or in samples.

use thermo_core::{AddrRange, Bytes, PAGE_SIZE};
use thermo_sys::pagemap::Pagemap;

use super::spans;

/// What is read at once of memory that is looked at whole.
const WHOLE: Bytes = Bytes::mib(16);
/// What is taken or left out as a whole where memory is looked at in samples: less where few are taken.
const CHUNK: std::ops::RangeInclusive<Bytes> = Bytes::kib(16)..=Bytes::kib(64);

/// What was found; estimates where the memory was larger than what was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Survey {
    /// In memory.
    pub present: Bytes,
    /// In memory and mapped by others too.
    pub shared: Bytes,
}

/// Looks at `ranges`: at all of them up to `most` bytes, and beyond that at every n-th chunk, the same ones each
/// time. Nothing is present where the process does not let itself be read any more.
pub(super) fn survey(pagemap: &Pagemap, ranges: &[AddrRange], most: Bytes) -> Survey {
    let total = spans::sum(ranges);
    let stride = total.0.div_ceil(most.0.max(1)).max(1) as usize;
    let (mut present, mut shared, mut looked) = (0_u64, 0_u64, Bytes::ZERO);
    let mut pages = Vec::new();
    let chunk = if stride == 1 {
        WHOLE
    } else {
        most.clamp(*CHUNK.start(), *CHUNK.end())
    };
    let chunks = spans::cut(ranges, chunk);
    // From the middle of what each stands for.
    let first = stride.min(chunks.len()) / 2;
    for chunk in chunks.into_iter().skip(first).step_by(stride) {
        looked += chunk.len();
        if pagemap.read(chunk, &mut pages).is_err() {
            continue;
        }
        present += pages.iter().filter(|page| page.is_present()).count() as u64;
        shared += pages
            .iter()
            .filter(|page| page.is_present() && !page.is_exclusive())
            .count() as u64;
    }
    let scaled = |pages: u64| {
        let bytes = u128::from(pages * PAGE_SIZE) * u128::from(total.0) / u128::from(looked.0.max(1));
        // Pages are there whole or not at all, also in an estimate.
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX).min(total.0) / PAGE_SIZE * PAGE_SIZE)
    };
    Survey {
        present: scaled(present),
        shared: scaled(shared),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const PRESENT: u64 = 1 << 63;
    const EXCLUSIVE: u64 = 1 << 56;

    fn pagemap(root: &std::path::Path, page: impl Fn(u64) -> u64, pages: u64) -> Pagemap {
        let bytes: Vec<u8> = (0..pages).flat_map(|n| page(n).to_ne_bytes()).collect();
        std::fs::create_dir_all(root.join("proc/1")).unwrap();
        std::fs::write(root.join("proc/1/pagemap"), bytes).unwrap();
        Pagemap::open(root, 1).unwrap()
    }

    #[test]
    fn an_estimate_is_of_whole_pages() {
        let root = tempfile::tempdir().unwrap();
        let map = pagemap(root.path(), |n| if n % 3 == 0 { PRESENT } else { 0 }, 4096);
        for pages in [17, 100, 1000, 4095] {
            let found = survey(&map, &[AddrRange::new(0, pages * PAGE_SIZE)], Bytes::kib(128));
            assert!(found.present > Bytes::ZERO, "{pages} pages");
            assert_eq!(found.present.0 % PAGE_SIZE, 0, "{pages} pages");
            assert_eq!(found.shared, found.present, "{pages} pages");
        }
    }

    #[test]
    fn small_memory_is_counted_and_large_memory_estimated() {
        let root = tempfile::tempdir().unwrap();
        // Every second page is there, every fourth shared.
        let page = |n: u64| {
            if n % 2 == 1 {
                0
            } else {
                PRESENT | if n.is_multiple_of(4) { 0 } else { EXCLUSIVE }
            }
        };
        let map = pagemap(root.path(), page, 4096);
        let all = [AddrRange::new(0, 6 << 20), AddrRange::new(8 << 20, 16 << 20)];
        for most in [Bytes::mib(64), Bytes::mib(14), Bytes::mib(3), Bytes(1)] {
            let found = survey(&map, &all, most);
            assert_eq!(found.present, Bytes::mib(7), "looking at {most}");
            assert_eq!(found.shared, Bytes::kib(3584), "looking at {most}");
        }
        assert_eq!(survey(&map, &[], Bytes::mib(1)), Survey::default());
        assert_eq!(
            survey(&map, &[AddrRange::new(1 << 40, 2 << 40)], Bytes::mib(1)),
            Survey::default()
        );
    }
}
