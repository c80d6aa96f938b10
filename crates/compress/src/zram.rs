//! What zram does with a page: drops it, compresses it, or stores it raw (`zram_write_page()`,
//! drivers/block/zram/zram_drv.c).

use crate::algorithm::{CompressError, Compressor};
use crate::zsmalloc::SizeClasses;

/// The contents of a page. Larger pages than 4 KiB are not supported.
pub type Page = [u8; 4096];

/// True if all words of the page are equal: zram stores only the word, in its table.
#[must_use]
pub fn is_same_filled(page: &Page) -> bool {
    page.chunks_exact(8).all(|word| word == &page[..8])
}

/// How a page is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredPage {
    /// All words are equal: the page occupies no memory of the pool.
    SameFilled,
    /// Compressed to this many bytes.
    Compressed(usize),
    /// Not worth compressing: a whole page (`huge_pages` in `mm_stat`).
    Raw,
}

impl StoredPage {
    /// Length of the object in bytes (`compr_data_size`); `None` without object.
    #[must_use]
    pub const fn object_len(self) -> Option<usize> {
        match self {
            Self::SameFilled => None,
            Self::Compressed(len) => Some(len),
            Self::Raw => Some(size_of::<Page>()),
        }
    }
}

/// A zram device as a model: its allocator decides what is stored raw.
#[derive(Debug, Clone, Default)]
pub struct ZramModel {
    /// The size classes of its pool.
    pub classes: SizeClasses,
}

impl ZramModel {
    /// How the device stores `page`.
    ///
    /// # Errors
    /// Fails if the compression library fails.
    pub fn store(&self, page: &Page, compressor: &mut Compressor) -> Result<StoredPage, CompressError> {
        if is_same_filled(page) {
            return Ok(StoredPage::SameFilled);
        }
        compressor.compressed_len(page).map(|len| self.stored(len))
    }

    /// How the device stores a page of this compressed length.
    #[must_use]
    pub const fn stored(&self, compressed_len: usize) -> StoredPage {
        if compressed_len >= self.classes.huge_class_size() {
            StoredPage::Raw
        } else {
            StoredPage::Compressed(compressed_len)
        }
    }

    /// The memory of a stored page in bytes, as part of full zspages.
    #[must_use]
    pub fn bytes(&self, stored: StoredPage) -> f64 {
        let len = stored.object_len();
        len.map_or(0.0, |len| self.classes.stored_bytes(len))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::Algorithm;

    #[test]
    fn page_of_one_word_occupies_nothing() {
        let mut page = [0; 4096];
        for word in page.chunks_exact_mut(8) {
            word.copy_from_slice(b"12345678");
        }
        assert!(is_same_filled(&page) && is_same_filled(&[7; 4096]));
        let (model, mut lz4) = (ZramModel::default(), Compressor::new(Algorithm::Lz4).unwrap());
        let stored = model.store(&page, &mut lz4).unwrap();
        assert_eq!((stored, model.bytes(stored)), (StoredPage::SameFilled, 0.0));
        page[4095] = 0;
        assert!(!is_same_filled(&page));
        let stored = model.store(&page, &mut lz4).unwrap();
        assert!(
            matches!(stored, StoredPage::Compressed(len) if len < 64),
            "{stored:?}"
        );
    }

    #[test]
    fn page_that_hardly_compresses_is_stored_raw() {
        let model = ZramModel::default();
        assert_eq!(model.stored(3624), StoredPage::Compressed(3624));
        assert_eq!(model.stored(3625), StoredPage::Raw);
        assert_eq!(model.bytes(StoredPage::Raw), 4096.0);
    }
}
