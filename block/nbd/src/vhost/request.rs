//! One request of a virtual machine: executes a descriptor chain on an export.
//!
//! The guest controls the chain and may be faulty or malicious. Invalid requests get `VIRTIO_BLK_S_IOERR`;
//! requests that were not offered get `VIRTIO_BLK_S_UNSUPP`. A chain without an end has no status byte and is
//! only returned. Data goes through buffers of at most [`CHUNK_SIZE`] bytes, whatever the length of a
//! request.

use std::sync::atomic::Ordering;

use thermo_pool::AcquireError;
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};

use super::chain::{Chain, GuestMemoryError, Segments};
use super::config::{MAX_RANGE_SECTORS, MAX_RANGES, SECTOR};
use crate::client::read_job::{AcquireBuffer, CHUNK_SIZE};
use crate::export::Export;
use crate::protocol::request::NbdError;
use crate::server::shared::Counters;

/// Length of a request header: type, reserved word, sector.
const HEADER_LEN: usize = 16;
/// Length of a range of discard or write-zeroes: sector, number of sectors, flags.
const RANGE: usize = 16;
/// Maximum length of all ranges of one request, in bytes.
const MAX_RANGE_BYTES: u64 = MAX_RANGES as u64 * RANGE as u64;

/// The error status of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Failed,
    Unsupported,
}

impl From<NbdError> for Failure {
    fn from(error: NbdError) -> Self {
        match error {
            NbdError::NotSupported => Self::Unsupported,
            _ => Self::Failed,
        }
    }
}

impl From<GuestMemoryError> for Failure {
    fn from(_: GuestMemoryError) -> Self {
        Self::Failed
    }
}

impl From<AcquireError> for Failure {
    fn from(_: AcquireError) -> Self {
        Self::Failed
    }
}

/// An export as a virtio block device.
#[derive(Debug)]
pub(crate) struct Disk<'a> {
    pub(crate) export: &'a Export,
    /// Every write must be on stable storage before its reply, because the driver does not flush.
    pub(crate) writes_through: bool,
    pub(crate) counters: &'a Counters,
}

impl Disk<'_> {
    /// Executes the request and writes its status. Returns the number of bytes written to the chain.
    pub(crate) fn execute(&self, mut chain: Chain<'_>, acquire: AcquireBuffer<'_>) -> u32 {
        let writable_len = chain.writable.remaining();
        let outcome = if chain.is_valid {
            self.perform(&mut chain.readable, &mut chain.writable, acquire)
        } else {
            Err(Failure::Failed)
        };
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let status = match outcome {
            Ok(()) => VIRTIO_BLK_S_OK,
            Err(Failure::Failed) => VIRTIO_BLK_S_IOERR,
            Err(Failure::Unsupported) => VIRTIO_BLK_S_UNSUPP,
        };
        // The status values are 0 to 2.
        if !u8::try_from(status).is_ok_and(|status| chain.write_status(status)) {
            return 0;
        }
        // A chain is shorter than 4 GiB.
        u32::try_from(writable_len - chain.writable.remaining() + 1).unwrap_or(u32::MAX)
    }

    fn perform(
        &self,
        readable: &mut Segments<'_>,
        writable: &mut Segments<'_>,
        acquire: AcquireBuffer<'_>,
    ) -> Result<(), Failure> {
        let mut header = [0; HEADER_LEN];
        readable.read(&mut header)?;
        let [kind, _, low, high] = le_words(&header);
        let sector = u64::from(high) << 32 | u64::from(low);
        match kind {
            VIRTIO_BLK_T_IN => self.read(sector, writable, acquire),
            VIRTIO_BLK_T_OUT => self.write(sector, readable, acquire),
            VIRTIO_BLK_T_FLUSH => Ok(self.export.flush()?),
            VIRTIO_BLK_T_GET_ID => self.read_id(writable),
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => self.ranges(kind, readable),
            _ => Err(Failure::Unsupported),
        }
    }

    // Byte offset of `sector`. Fails if the range is not a whole number of sectors or lies outside the disk.
    fn byte_offset(&self, sector: u64, bytes: u64) -> Result<u64, Failure> {
        let start = sector.checked_mul(SECTOR).ok_or(Failure::Failed)?;
        let end = start.checked_add(bytes).ok_or(Failure::Failed)?;
        let disk = self.export.size() / SECTOR * SECTOR;
        if end > disk || !bytes.is_multiple_of(SECTOR) {
            return Err(Failure::Failed);
        }
        Ok(start)
    }

    fn read(
        &self,
        sector: u64,
        writable: &mut Segments<'_>,
        acquire: AcquireBuffer<'_>,
    ) -> Result<(), Failure> {
        let bytes = writable.remaining();
        let mut at = self.byte_offset(sector, bytes)?;
        while writable.remaining() > 0 {
            let mut buffer = acquire(chunk_len(writable.remaining()))?;
            self.export.read(&mut buffer, at)?;
            writable.write(&buffer)?;
            at += buffer.len() as u64;
        }
        self.counters.read.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn write(
        &self,
        sector: u64,
        readable: &mut Segments<'_>,
        acquire: AcquireBuffer<'_>,
    ) -> Result<(), Failure> {
        self.check_writable()?;
        let bytes = readable.remaining();
        let mut at = self.byte_offset(sector, bytes)?;
        while readable.remaining() > 0 {
            let mut buffer = acquire(chunk_len(readable.remaining()))?;
            readable.read(&mut buffer)?;
            self.export.write(&buffer, at, self.writes_through)?;
            at += buffer.len() as u64;
        }
        self.counters.written.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    // Returns the serial number: the name of the export, truncated to fit.
    fn read_id(&self, writable: &mut Segments<'_>) -> Result<(), Failure> {
        let mut id = [0; VIRTIO_BLK_ID_BYTES as usize];
        let name = self.export.name().as_bytes();
        id.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        let writable_len = usize::try_from(writable.remaining()).unwrap_or(usize::MAX);
        Ok(writable.write(id.get(..writable_len).unwrap_or(&id))?)
    }

    // All ranges are validated before the first is changed.
    fn ranges(&self, kind: u32, readable: &mut Segments<'_>) -> Result<(), Failure> {
        self.check_writable()?;
        let bytes = readable.remaining();
        if bytes == 0 || !bytes.is_multiple_of(RANGE as u64) || bytes > MAX_RANGE_BYTES {
            return Err(Failure::Failed);
        }
        let mut ranges = Vec::new();
        while readable.remaining() > 0 {
            let mut range = [0; RANGE];
            readable.read(&mut range)?;
            ranges.push(self.range(kind, &range)?);
        }
        for (at, length, unmap) in ranges {
            if kind == VIRTIO_BLK_T_DISCARD {
                self.export.trim(at, length)?;
            } else {
                self.export.zero(at, length, !unmap, false)?;
            }
        }
        if self.writes_through {
            self.export.flush()?;
        }
        Ok(())
    }

    // Offset and length of a range in bytes, and whether its storage may be deallocated.
    fn range(&self, kind: u32, range: &[u8; RANGE]) -> Result<(u64, u64, bool), Failure> {
        let [low, high, sectors, flags] = le_words(range);
        let known = match kind {
            VIRTIO_BLK_T_DISCARD => 0,
            _ => VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
        };
        if flags & !known != 0 {
            return Err(Failure::Unsupported);
        }
        if sectors > MAX_RANGE_SECTORS {
            return Err(Failure::Failed);
        }
        let length = u64::from(sectors) * SECTOR;
        let at = self.byte_offset(u64::from(high) << 32 | u64::from(low), length)?;
        Ok((at, length, flags != 0))
    }

    fn check_writable(&self) -> Result<(), Failure> {
        if self.export.is_read_only() {
            return Err(Failure::Failed);
        }
        Ok(())
    }
}

fn chunk_len(remaining: u64) -> usize {
    usize::try_from(remaining).unwrap_or(usize::MAX).min(CHUNK_SIZE)
}

// Decodes four little-endian words.
fn le_words(bytes: &[u8; 16]) -> [u32; 4] {
    let (words, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|nth| words.get(nth).copied().map_or(0, u32::from_le_bytes))
}

#[cfg(test)]
mod tests;
