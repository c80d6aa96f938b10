//! A descriptor chain, read once: the guest memory of one request.
//!
//! The guest may modify a chain while it is read. So each descriptor is read once, no more of them are kept
//! than the negotiated maximum, and every copy checks its addresses again.

use std::collections::VecDeque;
use std::ops::Deref;

use virtio_queue::DescriptorChain;
use vm_memory::{Address as _, Bytes as _, GuestAddress, GuestMemoryMmap};

use super::config::MAX_SEGMENTS;

/// Maximum number of descriptors: data segments, header and status.
const MAX_CHAIN_SEGMENTS: usize = MAX_SEGMENTS as usize + 2;

/// Guest memory is not mapped, or a range is too short.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GuestMemoryError;

#[derive(Debug)]
struct Segment {
    addr: GuestAddress,
    len: u32,
}

/// The remaining bytes of a chain, as a list of segments.
#[derive(Debug)]
pub(crate) struct Segments<'a> {
    memory: &'a GuestMemoryMmap,
    segments: VecDeque<Segment>,
    remaining: u64,
}

impl<'a> Segments<'a> {
    fn new(memory: &'a GuestMemoryMmap) -> Self {
        let segments = VecDeque::new();
        Self {
            memory,
            segments,
            remaining: 0,
        }
    }

    fn push(&mut self, segment: Segment) {
        self.remaining += u64::from(segment.len);
        self.segments.push_back(segment);
    }

    // Removes the last byte and returns its address. `None` if the last segment is empty.
    fn pop_last_byte(&mut self) -> Option<GuestAddress> {
        let last = self.segments.back_mut()?;
        last.len = last.len.checked_sub(1)?;
        self.remaining -= 1;
        last.addr.checked_add(u64::from(last.len))
    }

    /// Remaining bytes.
    pub(crate) const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Fills `bytes` from guest memory.
    pub(crate) fn read(&mut self, mut bytes: &mut [u8]) -> Result<(), GuestMemoryError> {
        while !bytes.is_empty() {
            let (addr, len) = self.step(bytes.len()).ok_or(GuestMemoryError)?;
            let (now, later) = bytes.split_at_mut(len);
            self.memory.read_slice(now, addr).map_err(|_| GuestMemoryError)?;
            bytes = later;
        }
        Ok(())
    }

    /// Copies `bytes` to guest memory.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), GuestMemoryError> {
        while !bytes.is_empty() {
            let (addr, len) = self.step(bytes.len()).ok_or(GuestMemoryError)?;
            let (now, later) = bytes.split_at(len);
            self.memory.write_slice(now, addr).map_err(|_| GuestMemoryError)?;
            bytes = later;
        }
        Ok(())
    }

    // Removes the next contiguous range of at most `max_len` bytes.
    fn step(&mut self, max_len: usize) -> Option<(GuestAddress, usize)> {
        while self.segments.front()?.len == 0 {
            self.segments.pop_front();
        }
        let segment = self.segments.front_mut()?;
        let len = segment.len.min(u32::try_from(max_len).unwrap_or(u32::MAX));
        let addr = segment.addr;
        // A segment that wraps the address space has no memory there either.
        segment.addr = addr.checked_add(u64::from(len))?;
        segment.len -= len;
        self.remaining -= u64::from(len);
        Some((addr, len as usize))
    }
}

/// A descriptor chain with a status byte.
#[derive(Debug)]
pub(crate) struct Chain<'a> {
    memory: &'a GuestMemoryMmap,
    /// Device-readable bytes: header and data of the guest.
    pub(crate) readable: Segments<'a>,
    /// Device-writable bytes before the status.
    pub(crate) writable: Segments<'a>,
    status: GuestAddress,
    /// The chain has no more segments than negotiated, and writable segments follow readable ones.
    pub(crate) is_valid: bool,
}

impl<'a> Chain<'a> {
    /// `None` if the chain has no end or no status byte at its end.
    pub(crate) fn read<M>(memory: &'a GuestMemoryMmap, chain: DescriptorChain<M>) -> Option<Self>
    where
        M: Deref<Target = GuestMemoryMmap>,
    {
        let (mut readable, mut writable) = (Segments::new(memory), Segments::new(memory));
        let (mut count, mut is_ordered, mut has_end) = (0, true, false);
        for descriptor in chain {
            let (addr, len) = (descriptor.addr(), descriptor.len());
            count += 1;
            has_end = descriptor.is_write_only() && !descriptor.has_next();
            let target = if descriptor.is_write_only() {
                &mut writable
            } else {
                is_ordered &= writable.segments.is_empty();
                &mut readable
            };
            if count > MAX_CHAIN_SEGMENTS {
                // The request will fail, so only the last segment is needed: it holds the status.
                target.segments.pop_back();
            }
            target.push(Segment { addr, len });
        }
        let status = writable.pop_last_byte().filter(|_| has_end)?;
        Some(Self {
            memory,
            readable,
            writable,
            status,
            is_valid: is_ordered && count <= MAX_CHAIN_SEGMENTS,
        })
    }

    /// Writes the status byte. False if its address is not mapped.
    pub(crate) fn write_status(&self, status: u8) -> bool {
        self.memory.write_obj(status, self.status).is_ok()
    }
}
