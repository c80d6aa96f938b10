//! Data shared with the BPF program: the structures of `pagetable.bpf.c`, in maps that both sides access.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Addresses probed in one call of the program.
pub(crate) const MAX_PROBES: usize = 4096;
/// Tables copied in one call: they map 512 MiB of 4 KiB pages.
pub(crate) const MAX_TABLES: usize = 256;
/// The level of an entry that could not be read.
pub(crate) const UNREADABLE: u8 = 255;

pub(crate) const OP_PROBES: u32 = 0;
pub(crate) const OP_TABLES: u32 = 1;
pub(crate) const OP_WORDS: u32 = 2;
pub(crate) const OP_FILE: u32 = 3;
pub(crate) const OP_KERNEL: u32 = 4;
pub(crate) const STATUS_OK: u32 = 0;
pub(crate) const STATUS_GONE: u32 = 1;

/// `enum folio_bits`: the folio was read; it is young; it is larger than a page; it is up to date and
/// swap-backed, as memory of tmpfs is.
pub(crate) const FOLIO_READ: u32 = 1;
pub(crate) const FOLIO_YOUNG: u32 = 2;
pub(crate) const FOLIO_LARGE: u32 = 4;
pub(crate) const FOLIO_SHMEM: u32 = 8;

/// `struct call`: the request and its result.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Call {
    pub op: u32,
    pub pid: u32,
    pub nr_probes: u32,
    pub levels: u32,
    pub direct_map: u64,
    pub frame_mask: u64,
    pub memory_end: u64,
    pub leaf_mask: u64,
    pub leaf_value: u64,
    pub accessed_mask: u64,
    pub vmemmap: u64,
    pub folios: u32,
    pub fd: u32,
    pub start: u64,
    pub end: u64,
    pub cursor: u64,
    pub pgd: u64,
    pub status: u32,
    pub nr_tables: u32,
    pub pmd_slot: u32,
    pub has_pmd: u32,
    pub pmd_base: u64,
    pub folio: u64,
    pub page_size: u32,
    pub has_young: u32,
    pub file_position: u64,
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

/// `struct head`: describes the table in the slot of the same number.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Head {
    pub base: u64,
    pub level: u64,
    pub young: [u64; 8],
}

/// `struct table`.
pub(crate) type RawTable = [u64; 512];

/// Types for which any bit pattern is a valid value, so that the kernel may write them.
///
/// # Safety
/// No padding, no pointers, no enums; laid out as in C.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers only, `repr(C)`, no padding.
unsafe impl Plain for Call {}
// SAFETY: as above.
unsafe impl Plain for ProbeSlot {}
// SAFETY: as above.
unsafe impl Plain for Head {}
// SAFETY: an array of integers.
unsafe impl Plain for RawTable {}

/// The values of a mappable array map. The program writes them only while one of our calls runs it, and a
/// call borrows all of them mutably. Between calls they are plain memory.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    ptr: NonNull<T>,
    len: usize,
    bytes: usize,
    values: PhantomData<T>,
}

// SAFETY: the value owns the mapping, as a box owns its memory; any thread may use it in turn.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// Maps the first `len` values of the array map `fd`, whose values must be `T`.
    pub(crate) fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let bytes = (len * size_of::<T>()).next_multiple_of(4096);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let ptr = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )?
        };
        let ptr = NonNull::new(ptr.cast::<T>()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self {
            ptr,
            len,
            bytes,
            values: PhantomData,
        })
    }

    /// The values.
    pub(crate) fn get(&self) -> &[T] {
        // SAFETY: `ptr` points to `len` values, any bit pattern is a `T`, and nothing writes them while
        // `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The values, mutable.
    pub(crate) fn get_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `get`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives `self`. munmap fails only for a wrong
        // address.
        let _ = unsafe { munmap(self.ptr.as_ptr().cast(), self.bytes) };
    }
}
