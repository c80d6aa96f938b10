//! How far pages compress, and how much memory zram would use for them.
//!
//! [`sample`] draws pages from strata (such as idle age by kind of memory), reads them through a
//! [`PageReader`], and compresses each page on its own, as zram does. The result is an [`Estimate`] with a 95
//! % confidence interval for each stratum and algorithm.
//!
//! A page costs memory in three ways (drivers/block/zram/zram_drv.c): a page of one repeated word costs none,
//! a page that hardly compresses is stored raw, every other page occupies an object of a zsmalloc
//! [size class](SizeClasses).
//!
//! Reading leaves traces on the target; [`ProcessReader`] describes them. So sample after monitoring has
//! ended, or do not count accesses to sampled pages. Contents live in one buffer, which is erased, and in the
//! work memory of the compressors, which is freed. Nothing is written to a file.

mod algorithm;
mod estimate;
mod lzo_rle;
mod reader;
mod result;
mod sampler;
mod zram;
mod zsmalloc;

pub use algorithm::{Algorithm, CompressError, Compressor, UnknownAlgorithm};
pub use estimate::Estimate;
pub use reader::{PageReader, ProcessReader, Unread};
pub use result::{AlgorithmResult, Compressibility, StratumResult, Summary, UnreadPages};
pub use sampler::{Candidate, SampleSettings, ShareOf, Stratum, sample, sample_share};
pub use zram::{Page, StoredPage, ZramModel, is_same_filled};
pub use zsmalloc::{CHAIN_SIZE, CHAIN_SIZE_BEFORE_6_3, SizeClass, SizeClasses};
