//! What is shared with the program: structures as in `pagetable.bpf.c`, in maps that both sides see.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Addresses looked at in one call of the program.
pub(crate) const MAX_PROBES: usize = 4096;
/// Tables copied in one call: 512 MiB worth of pages.
pub(crate) const MAX_TABLES: usize = 256;
/// The level of what could not be read.
pub(crate) const UNREADABLE: u8 = 255;

pub(crate) const WHAT_PROBES: u32 = 0;
pub(crate) const WHAT_TABLES: u32 = 1;
pub(crate) const WHAT_WORDS: u32 = 2;
pub(crate) const WHAT_FOLIO: u32 = 3;
pub(crate) const STATUS_OK: u32 = 0;
pub(crate) const STATUS_GONE: u32 = 1;

/// `enum folio_bits`: it was read; it is marked young; it is larger than a page; it is in use as memory of tmpfs is.
pub(crate) const FOLIO_READ: u32 = 1;
pub(crate) const FOLIO_YOUNG: u32 = 2;
pub(crate) const FOLIO_LARGE: u32 = 4;
pub(crate) const FOLIO_SOUND: u32 = 8;

/// `struct call`: what is asked for, and what came of it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Call {
    pub what: u32,
    pub pid: u32,
    pub nr_probes: u32,
    pub levels: u32,
    pub direct_map: u64,
    pub frame_mask: u64,
    pub memory_end: u64,
    pub leaf_mask: u64,
    pub leaf_value: u64,
    pub accessed_mask: u64,
    pub page_array: u64,
    pub folios: u32,
    pub fd: u32,
    pub start: u64,
    pub end: u64,
    pub cursor: u64,
    pub pgd: u64,
    pub status: u32,
    pub nr_tables: u32,
    pub middle: u32,
    pub has_middle: u32,
    pub middle_base: u64,
    pub folio: u64,
    pub page_size: u32,
    pub has_young: u32,
}

/// `struct probe`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProbeSlot {
    pub addr: u64,
    pub entry: u64,
    pub level: u32,
    pub folio: u32,
}

/// `struct head`: which table lies in the slot of the same number.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Head {
    pub base: u64,
    pub level: u64,
    pub young: [u64; 8],
}

/// `struct table`.
pub(crate) type RawTable = [u64; 512];

/// Types that any bits are a value of, so that the kernel may write them.
///
/// # Safety
/// No padding that matters, no pointers, no enums; laid out as in C.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers only, `repr(C)`, no padding.
unsafe impl Plain for Call {}
// SAFETY: as above.
unsafe impl Plain for ProbeSlot {}
// SAFETY: as above.
unsafe impl Plain for Head {}
// SAFETY: an array of integers.
unsafe impl Plain for RawTable {}

/// The values of a mappable array map. The program writes them only while a call of ours runs it, and a call
/// takes `&mut` of all of them: between calls they are plain memory.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    at: NonNull<T>,
    len: usize,
    bytes: usize,
    values: PhantomData<T>,
}

// SAFETY: the mapping belongs to the value alone, as a box's memory would; any thread may use it in turn.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// Maps the first `len` values of the array map `fd`, whose values must be `T`.
    pub(crate) fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let bytes = (len * size_of::<T>()).next_multiple_of(4096);
        // SAFETY: a new mapping at a place the kernel chooses disturbs nothing.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )?
        };
        let at = NonNull::new(at.cast::<T>()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self {
            at,
            len,
            bytes,
            values: PhantomData,
        })
    }

    /// The values, to read.
    pub(crate) fn get(&self) -> &[T] {
        // SAFETY: `len` values lie at `at`, any bits are a `T`, and nothing writes them while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    /// The values, to write.
    pub(crate) fn get_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `get`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives us. What could fail is only a wrong address.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
