//! A chain of descriptors, read once: where a request's bytes lie in the memory of the guest.
//!
//! The guest may write to a chain while it is read. So each descriptor is looked at a single time, no more of them are
//! kept than were agreed on, and every copy checks again where it goes.

use std::collections::VecDeque;
use std::ops::Deref;

use virtio_queue::DescriptorChain;
use vm_memory::{Address as _, Bytes as _, GuestAddress, GuestMemoryMmap};

use super::config::MOST_SEGMENTS;

/// Descriptors of a chain: the segments, and one each for the head and the status.
const MOST_PARTS: usize = MOST_SEGMENTS as usize + 2;

/// Some memory of the guest is not there, or there is not as much as is needed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutOfMemory;

#[derive(Debug)]
struct Part {
    addr: GuestAddress,
    len: u32,
}

/// Bytes of a chain, in parts; what was copied is behind us.
#[derive(Debug)]
pub(super) struct ByteRun<'a> {
    memory: &'a GuestMemoryMmap,
    parts: VecDeque<Part>,
    left: u64,
}

impl<'a> ByteRun<'a> {
    fn of(memory: &'a GuestMemoryMmap) -> Self {
        let parts = VecDeque::new();
        Self {
            memory,
            parts,
            left: 0,
        }
    }

    fn push(&mut self, part: Part) {
        self.left += u64::from(part.len);
        self.parts.push_back(part);
    }

    // Gives up the last byte and tells where it lies; none when the last part has no byte.
    fn pop_byte(&mut self) -> Option<GuestAddress> {
        let last = self.parts.back_mut()?;
        last.len = last.len.checked_sub(1)?;
        self.left -= 1;
        last.addr.checked_add(u64::from(last.len))
    }

    /// Bytes that are still there.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// Fills `bytes` from the guest's memory.
    pub(super) fn read(&mut self, mut bytes: &mut [u8]) -> Result<(), OutOfMemory> {
        while !bytes.is_empty() {
            let (addr, len) = self.step(bytes.len()).ok_or(OutOfMemory)?;
            let (now, later) = bytes.split_at_mut(len);
            self.memory.read_slice(now, addr).map_err(|_| OutOfMemory)?;
            bytes = later;
        }
        Ok(())
    }

    /// Copies `bytes` to the guest's memory.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), OutOfMemory> {
        while !bytes.is_empty() {
            let (addr, len) = self.step(bytes.len()).ok_or(OutOfMemory)?;
            let (now, later) = bytes.split_at(len);
            self.memory.write_slice(now, addr).map_err(|_| OutOfMemory)?;
            bytes = later;
        }
        Ok(())
    }

    // The next bytes that lie together, at most so many.
    fn step(&mut self, most: usize) -> Option<(GuestAddress, usize)> {
        while self.parts.front()?.len == 0 {
            self.parts.pop_front();
        }
        let part = self.parts.front_mut()?;
        let len = part.len.min(u32::try_from(most).unwrap_or(u32::MAX));
        let addr = part.addr;
        // A part that ends beyond the last address has no memory there either.
        part.addr = addr.checked_add(u64::from(len))?;
        part.len -= len;
        self.left -= u64::from(len);
        Some((addr, len as usize))
    }
}

/// A chain that has a place for its answer.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    memory: &'a GuestMemoryMmap,
    /// What the guest wrote: the head, and data.
    pub(super) theirs: ByteRun<'a>,
    /// What we are to write, before the status.
    pub(super) ours: ByteRun<'a>,
    status: GuestAddress,
    /// It is no longer than was agreed on, and what we write lies behind what we read.
    pub(super) is_sound: bool,
}

impl<'a> Chain<'a> {
    /// None for one whose end is not found, or that has no byte for the status there.
    pub(super) fn read<M>(memory: &'a GuestMemoryMmap, chain: DescriptorChain<M>) -> Option<Self>
    where
        M: Deref<Target = GuestMemoryMmap>,
    {
        let (mut theirs, mut ours) = (ByteRun::of(memory), ByteRun::of(memory));
        let (mut count, mut is_ordered, mut ends) = (0, true, false);
        for descriptor in chain {
            let (addr, len) = (descriptor.addr(), descriptor.len());
            count += 1;
            ends = descriptor.is_write_only() && !descriptor.has_next();
            let run = if descriptor.is_write_only() {
                &mut ours
            } else {
                is_ordered &= ours.parts.is_empty();
                &mut theirs
            };
            if count > MOST_PARTS {
                // Of what will not be done only the last part is of use: the status goes there.
                run.parts.pop_back();
            }
            run.push(Part { addr, len });
        }
        let status = ours.pop_byte().filter(|_| ends)?;
        Some(Self {
            memory,
            theirs,
            ours,
            status,
            is_sound: is_ordered && count <= MOST_PARTS,
        })
    }

    /// Puts the status in its place; false when the guest has no memory there.
    pub(super) fn answer(&self, status: u8) -> bool {
        self.memory.write_obj(status, self.status).is_ok()
    }
}
