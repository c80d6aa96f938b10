//! Compression algorithms of zram, and the length that each gives a page.

use std::fmt;
use std::str::FromStr;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use zeroize::Zeroize;

use crate::lzo_rle::LzoRle;
use crate::zram::Page;

/// The level that zram uses for zstd unless configured (`ZSTD_CLEVEL_DEFAULT`,
/// drivers/block/zram/backend_zstd.c).
const ZSTD_LEVEL: i32 = 3;

/// A compression algorithm, with the names of `comp_algorithm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// `lz4`: the fastest in most cases.
    Lz4,
    /// `lzo-rle`: the default of zram.
    LzoRle,
    /// `zstd` at level 3: the smallest, and several times slower.
    Zstd,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 3] = [Self::Lz4, Self::LzoRle, Self::Zstd];

    /// The kernel's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::LzoRle => "lzo-rle",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is none of the algorithms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown compression algorithm {0:?}: use lz4, lzo-rle or zstd")]
pub struct UnknownAlgorithm(String);

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| UnknownAlgorithm(text.to_owned()))
    }
}

/// A compression library failed. Every page fits its output buffer, so the likely cause is lack of memory.
#[derive(Debug, thiserror::Error)]
#[error("cannot compress a page with {algorithm}: {message}")]
pub struct CompressError {
    algorithm: Algorithm,
    message: String,
}

impl CompressError {
    fn new(algorithm: Algorithm, error: &dyn fmt::Display) -> Self {
        let message = error.to_string();
        Self { algorithm, message }
    }
}

/// Compresses single pages and returns only the length.
///
/// Measured against zram of Linux 6.18: `lzo-rle` is exact, `lz4` is up to 0.6 % longer than the kernel's
/// (another hash table finds other matches). `zstd` is the library that the kernel contains; this kernel has
/// no zram with zstd to compare.
pub struct Compressor {
    algorithm: Algorithm,
    engine: Engine,
    output: Vec<u8>,
}

enum Engine {
    Lz4(Box<CompressTable>),
    LzoRle(LzoRle),
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl fmt::Debug for Compressor {
    /// Without the output, which is content of the target.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compressor = &mut f.debug_struct("Compressor");
        compressor
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl Compressor {
    /// A compressor with its work memory: 16 KiB for `lzo-rle` and `lz4`, some 100 KiB for `zstd`.
    ///
    /// # Errors
    /// Fails if the library cannot allocate its work memory.
    pub fn new(algorithm: Algorithm) -> Result<Self, CompressError> {
        let failed = |error: std::io::Error| CompressError::new(algorithm, &error);
        let page = size_of::<Page>();
        let (engine, room) = match algorithm {
            Algorithm::Lz4 => {
                let engine = Engine::Lz4(Box::new(CompressTable::small()));
                (engine, get_maximum_output_size(page))
            }
            Algorithm::LzoRle => (Engine::LzoRle(LzoRle::new()), 0),
            Algorithm::Zstd => {
                let zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(failed)?;
                (
                    Engine::Zstd(Box::new(zstd)),
                    zstd::zstd_safe::compress_bound(page),
                )
            }
        };
        let output = vec![0; room];
        Ok(Self {
            algorithm,
            engine,
            output,
        })
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The length of the compressed page in bytes, which may exceed the length of the page.
    ///
    /// # Errors
    /// Fails if the library fails.
    pub fn compressed_len(&mut self, page: &Page) -> Result<usize, CompressError> {
        let (algorithm, output) = (self.algorithm, self.output.as_mut_slice());
        match &mut self.engine {
            Engine::Lz4(table) => compress_into_with_table(page, output, table)
                .map_err(|error| CompressError::new(algorithm, &error)),
            Engine::LzoRle(lzo) => Ok(lzo.compressed_len(page)),
            Engine::Zstd(zstd) => zstd
                .compress_to_buffer(page, output)
                .map_err(|error| CompressError::new(algorithm, &error)),
        }
    }
}

impl Drop for Compressor {
    /// Erases the compressed page. The work memory of the libraries, which holds parts of it, is freed.
    fn drop(&mut self) {
        self.output.zeroize();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use thermo_engine::rng::Rng;

    use super::*;

    fn len(algorithm: Algorithm, page: &Page) -> usize {
        Compressor::new(algorithm).unwrap().compressed_len(page).unwrap()
    }

    #[test]
    fn names_are_those_of_the_kernel() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        let error = "lzo".parse::<Algorithm>().unwrap_err().to_string();
        assert!(error.contains("\"lzo\"") && error.contains("lzo-rle"), "{error}");
    }

    #[test]
    fn random_page_does_not_compress() {
        let (mut rng, mut page) = (Rng::new(1), [0; 4096]);
        page.fill_with(|| rng.next_u64() as u8);
        for algorithm in Algorithm::ALL {
            assert!(len(algorithm, &page) >= 4096, "{algorithm}");
        }
        // Instruction bytes of one run of literals: version, count, end.
        assert_eq!(len(Algorithm::LzoRle, &page), 2 + 1 + 16 + 4096 + 3);
    }

    #[test]
    fn zero_page_is_two_run_instructions_of_lzo_rle() {
        let page = [0; 4096];
        // Five literals with their count, runs of 2051 and 2020 zeros, 20 literals with two bytes of count.
        assert_eq!(len(Algorithm::LzoRle, &page), 2 + 6 + 4 + 4 + 22 + 3);
        assert!(len(Algorithm::Lz4, &page) < 64 && len(Algorithm::Zstd, &page) < 64);
    }

    #[test]
    fn page_with_pattern_compresses_alike_each_time() {
        let mut page = [0; 4096];
        for (nth, byte) in page.iter_mut().enumerate() {
            *byte = b"thermocline "[nth % 12] ^ u8::from(nth % 97 == 0);
        }
        for algorithm in Algorithm::ALL {
            let mut compressor = Compressor::new(algorithm).unwrap();
            let first = compressor.compressed_len(&page).unwrap();
            assert!(first < 1000, "{algorithm}: {first}");
            assert_eq!(compressor.compressed_len(&page).unwrap(), first);
        }
    }
}
