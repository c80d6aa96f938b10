//! Inflates zlib data within a limit: a file of zlib may hold a thousand times its size, and damo's records
//! are read into memory as a whole.

use std::io::{self, BufRead, Read};

use flate2::bufread::ZlibDecoder;

/// Maximum inflated bytes for each compressed byte. Snapshots of an idle process compress 80 times at most.
const MAX_RATIO: u64 = 128;
/// Inflated bytes that any file may have.
const FREE: u64 = 4 << 20;

/// The inflated data. Reading fails where they exceed the limit.
pub(crate) struct Inflated<R> {
    decoder: ZlibDecoder<R>,
    /// The compressed bytes read and the maximum of inflated bytes, once the maximum was exceeded.
    pub(crate) exceeded: Option<(u64, u64)>,
}

impl<R: BufRead> Inflated<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            decoder: ZlibDecoder::new(input),
            exceeded: None,
        }
    }
}

impl<R: BufRead> Read for Inflated<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.decoder.read(buffer)?;
        let read = self.decoder.total_in();
        let max = FREE.saturating_add(read.saturating_mul(MAX_RATIO));
        if self.decoder.total_out() > max {
            self.exceeded = Some((read, max));
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(len)
    }
}
