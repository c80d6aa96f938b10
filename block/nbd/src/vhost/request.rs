//! One request of a virtual machine: a chain of descriptors becomes work on an export.
//!
//! Whatever a chain says was written by the guest, who may be mistaken or malicious. What cannot be understood is
//! answered with `VIRTIO_BLK_S_IOERR`, what was not offered with `VIRTIO_BLK_S_UNSUPP`; a chain whose end cannot be
//! found has no place for an answer and is only given back. Data go through buffers of at most [`CHUNK`] bytes,
//! whatever length a request has.

use std::sync::atomic::Ordering;

use thermo_pool::AcquireError;
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};

use super::chain::{ByteRun, Chain, OutOfMemory};
use super::config::{MOST_RANGE_SECTORS, MOST_RANGES, SECTOR};
use crate::client::read_job::{CHUNK, Lend};
use crate::export::Export;
use crate::protocol::request::Refusal;
use crate::server::shared::Counts;

/// Bytes of a request's head: its kind, a word for others, the sector.
const HEAD: usize = 16;
/// Bytes of a range in a discard or write-zeroes: the sector, their count, flags.
const RANGE: usize = 16;
/// Bytes of all ranges of one request.
const MOST_RANGE_BYTES: u64 = MOST_RANGES as u64 * RANGE as u64;

/// Why a request was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Failed,
    Unsupported,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotSupported => Self::Unsupported,
            _ => Self::Failed,
        }
    }
}

impl From<OutOfMemory> for Failure {
    fn from(_: OutOfMemory) -> Self {
        Self::Failed
    }
}

impl From<AcquireError> for Failure {
    fn from(_: AcquireError) -> Self {
        Self::Failed
    }
}

/// An export as the disk of a machine.
#[derive(Debug)]
pub(super) struct Disk<'a> {
    pub(super) export: &'a Export,
    /// Every write is to be on stable storage when it is answered: the machine does not flush.
    pub(super) writes_through: bool,
    pub(super) counts: &'a Counts,
}

impl Disk<'_> {
    /// Does what the chain asks for and puts the status into it; tells how many bytes of it were written.
    pub(super) fn answer(&self, mut chain: Chain<'_>, lend: Lend<'_>) -> u32 {
        let room = chain.ours.left();
        let outcome = if chain.is_sound {
            self.perform(&mut chain.theirs, &mut chain.ours, lend)
        } else {
            Err(Failure::Failed)
        };
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let status = match outcome {
            Ok(()) => VIRTIO_BLK_S_OK,
            Err(Failure::Failed) => VIRTIO_BLK_S_IOERR,
            Err(Failure::Unsupported) => VIRTIO_BLK_S_UNSUPP,
        };
        // The three of them are 0 to 2.
        if !chain.answer(status as u8) {
            return 0;
        }
        // A chain has less than 4 GiB.
        u32::try_from(room - chain.ours.left() + 1).unwrap_or(u32::MAX)
    }

    fn perform(
        &self,
        theirs: &mut ByteRun<'_>,
        ours: &mut ByteRun<'_>,
        lend: Lend<'_>,
    ) -> Result<(), Failure> {
        let mut head = [0; HEAD];
        theirs.read(&mut head)?;
        let [kind, _, low, high] = words(&head);
        let sector = u64::from(high) << 32 | u64::from(low);
        match kind {
            VIRTIO_BLK_T_IN => self.read(sector, ours, lend),
            VIRTIO_BLK_T_OUT => self.write(sector, theirs, lend),
            VIRTIO_BLK_T_FLUSH => Ok(self.export.flush()?),
            VIRTIO_BLK_T_GET_ID => self.tell_id(ours),
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => self.ranges(kind, theirs),
            _ => Err(Failure::Unsupported),
        }
    }

    // Where on the export it begins; a failure when it is no whole number of sectors, or does not lie within the disk.
    fn place(&self, sector: u64, bytes: u64) -> Result<u64, Failure> {
        let start = sector.checked_mul(SECTOR).ok_or(Failure::Failed)?;
        let end = start.checked_add(bytes).ok_or(Failure::Failed)?;
        let disk = self.export.size() / SECTOR * SECTOR;
        if end > disk || !bytes.is_multiple_of(SECTOR) {
            return Err(Failure::Failed);
        }
        Ok(start)
    }

    fn read(&self, sector: u64, ours: &mut ByteRun<'_>, lend: Lend<'_>) -> Result<(), Failure> {
        let bytes = ours.left();
        let mut at = self.place(sector, bytes)?;
        while ours.left() > 0 {
            let mut buffer = lend(piece(ours.left()))?;
            self.export.read(&mut buffer, at)?;
            ours.write(&buffer)?;
            at += buffer.len() as u64;
        }
        self.counts.read.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn write(&self, sector: u64, theirs: &mut ByteRun<'_>, lend: Lend<'_>) -> Result<(), Failure> {
        self.may_change()?;
        let bytes = theirs.left();
        let mut at = self.place(sector, bytes)?;
        while theirs.left() > 0 {
            let mut buffer = lend(piece(theirs.left()))?;
            theirs.read(&mut buffer)?;
            self.export.write(&buffer, at, self.writes_through)?;
            at += buffer.len() as u64;
        }
        self.counts.written.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    // The disk's serial number: its name, as far as that has room.
    fn tell_id(&self, ours: &mut ByteRun<'_>) -> Result<(), Failure> {
        let mut id = [0; VIRTIO_BLK_ID_BYTES as usize];
        let name = self.export.name().as_bytes();
        let len = name.len().min(id.len());
        id[..len].copy_from_slice(&name[..len]);
        let room = usize::try_from(ours.left()).unwrap_or(usize::MAX).min(id.len());
        Ok(ours.write(&id[..room])?)
    }

    // All ranges are looked at before the first is changed.
    fn ranges(&self, kind: u32, theirs: &mut ByteRun<'_>) -> Result<(), Failure> {
        self.may_change()?;
        let bytes = theirs.left();
        if bytes == 0 || !bytes.is_multiple_of(RANGE as u64) || bytes > MOST_RANGE_BYTES {
            return Err(Failure::Failed);
        }
        let mut ranges = Vec::new();
        while theirs.left() > 0 {
            let mut range = [0; RANGE];
            theirs.read(&mut range)?;
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

    // Its place and length in bytes, and whether its storage may be given up.
    fn range(&self, kind: u32, range: &[u8; RANGE]) -> Result<(u64, u64, bool), Failure> {
        let [low, high, sectors, flags] = words(range);
        let known = match kind {
            VIRTIO_BLK_T_DISCARD => 0,
            _ => VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
        };
        if flags & !known != 0 {
            return Err(Failure::Unsupported);
        }
        if sectors > MOST_RANGE_SECTORS {
            return Err(Failure::Failed);
        }
        let length = u64::from(sectors) * SECTOR;
        let at = self.place(u64::from(high) << 32 | u64::from(low), length)?;
        Ok((at, length, flags != 0))
    }

    fn may_change(&self) -> Result<(), Failure> {
        if self.export.is_read_only() {
            return Err(Failure::Failed);
        }
        Ok(())
    }
}

fn piece(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK)
}

// Sixteen bytes as four little-endian words.
fn words(bytes: &[u8; 16]) -> [u32; 4] {
    let (words, _) = bytes.as_chunks::<4>();
    [words[0], words[1], words[2], words[3]].map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests;
