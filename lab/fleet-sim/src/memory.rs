//! The memory of a simulated target: pages with their accessed bits, and the exact time of each last access.

use thermo_units::Nanos;

/// Pages of one target. A multiple of 64; 512 are one chunk of the engine.
pub(crate) const PAGES: usize = 512;
const WORDS: usize = PAGES / 64;

/// A bit for each page.
pub(crate) type Bitmap = [u64; WORDS];

/// The pages of a target, and what happened to them.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    pub(crate) present: Bitmap,
    pub(crate) accessed: Bitmap,
    /// Paged out by the policy, and neither accessed nor freed since.
    pub(crate) out: Bitmap,
    /// Pages of files, which need no swap.
    pub(crate) file: Bitmap,
    /// Pages that other processes map too: accesses cannot be known, and no action applies.
    pub(crate) shared: Bitmap,
    last_access: [Nanos; PAGES],
    /// Pages paged out so far.
    pub(crate) nr_paged_out: u64,
    /// Pages accessed so far while they were out.
    pub(crate) nr_back: u64,
}

/// Word and bit of a page.
const fn bit(page: usize) -> (usize, u64) {
    (page / 64, 1 << (page % 64))
}

pub(crate) fn count(bitmap: &Bitmap) -> u64 {
    bitmap.iter().map(|word| u64::from(word.count_ones())).sum()
}

impl Memory {
    pub(crate) const fn new() -> Self {
        Self {
            present: [0; WORDS],
            accessed: [0; WORDS],
            out: [0; WORDS],
            file: [0; WORDS],
            shared: [0; WORDS],
            last_access: [Nanos::ZERO; PAGES],
            nr_paged_out: 0,
            nr_back: 0,
        }
    }

    /// Accesses `page` at `at`. It becomes resident.
    pub(crate) fn touch(&mut self, page: usize, at: Nanos) {
        let (word, bit) = bit(page);
        self.nr_back += u64::from(self.out[word] & bit != 0);
        self.out[word] &= !bit;
        self.present[word] |= bit;
        self.accessed[word] |= bit;
        self.last_access[page] = at;
    }

    /// Frees `page`, wherever it is.
    pub(crate) fn free(&mut self, page: usize) {
        let (word, bit) = bit(page);
        for bitmap in [&mut self.present, &mut self.accessed, &mut self.out] {
            bitmap[word] &= !bit;
        }
    }

    /// Pages `page` out.
    pub(crate) fn page_out(&mut self, page: usize) {
        let (word, bit) = bit(page);
        self.present[word] &= !bit;
        self.out[word] |= bit;
        self.nr_paged_out += 1;
    }

    pub(crate) fn is_set(bitmap: &Bitmap, page: usize) -> bool {
        let (word, bit) = bit(page);
        bitmap[word] & bit != 0
    }

    pub(crate) fn set(bitmap: &mut Bitmap, page: usize) {
        let (word, bit) = bit(page);
        bitmap[word] |= bit;
    }

    /// The exact idle age at `now` of each resident page that is not shared.
    pub(crate) fn idle_ages(&self, now: Nanos) -> impl Iterator<Item = Nanos> {
        let pages = (0..PAGES)
            .filter(|page| Self::is_set(&self.present, *page) && !Self::is_set(&self.shared, *page));
        pages.map(move |page| now.saturating_sub(self.last_access[page]))
    }

    /// Number of pages out, and the number of these in swap.
    pub(crate) fn nr_out(&self) -> (u64, u64) {
        let words = self.out.iter().zip(&self.file);
        let swapped = words.map(|(out, file)| u64::from((out & !file).count_ones()));
        (count(&self.out), swapped.sum())
    }
}
