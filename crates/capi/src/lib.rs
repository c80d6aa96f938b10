//! `libthermo`: hints for programs in C. `include/thermo.h` documents every function. The functions are thin
//! wrappers around [`thermo_actions::hint`].
//!
//! A panic aborts the process (`extern "C"` does not unwind), because C cannot handle it.

mod convert;
mod layout;

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thermo_actions::hint::{Hint, Hinter, Limits, Selection};
use thermo_actions::{Actor, PageoutLimits};
use thermo_backends::PteTracker;
use thermo_engine::TargetId;
use thermo_kernel::pidfd::PidFd;
use thermo_targets::{Process, Processes};
use thermo_units::{Bytes, Nanos};

use layout::{DRY, SKIP_YOUNG, ThermoHint, ThermoLimits, ThermoResult};

/// `THERMO_ABI`.
const ABI: u32 = 1;

/// `struct thermo`.
#[derive(Debug, Default)]
pub struct Thermo {
    table: Mutex<ProcessTable>,
    /// The cancel flag of the running `thermo_give()`.
    cancel: Mutex<Option<Arc<AtomicBool>>>,
}

#[derive(Debug, Default)]
struct ProcessTable {
    processes: Processes,
    next_id: u32,
}

impl Thermo {
    fn table(&self) -> MutexGuard<'_, ProcessTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, open: impl FnOnce(TargetId) -> io::Result<Process>) -> i64 {
        let mut table = self.table();
        let id = TargetId(table.next_id);
        match open(id) {
            Ok(process) => {
                table.next_id += 1;
                table.processes.insert(id, process);
                i64::from(id.0)
            }
            Err(why) => negative_errno(&why),
        }
    }

    fn apply_hints(&self, hints: &[ThermoHint], limits: &ThermoLimits) -> Result<Vec<ThermoResult>, c_int> {
        let hints = hints.iter().map(ThermoHint::hint).collect::<Option<Vec<Hint>>>();
        let (hints, kind) = hints.zip(limits.kind()).ok_or(-libc::EINVAL)?;
        let hint_limits = Limits {
            max_bytes: nonzero(limits.max_bytes).map(Bytes),
            max_time: nonzero(limits.max_ns).map(Nanos),
            max_cpu: nonzero(limits.max_cpu_ns).map(Nanos),
        };
        let actor = Actor::new(PageoutLimits::default(), limits.flags & DRY != 0);
        let cancel = actor.cancel_flag();
        let mut hinter = Hinter::new(actor, hint_limits);
        if let Some(kind) = kind {
            hinter = hinter.only(kind);
        }
        if limits.flags & SKIP_YOUNG != 0 {
            hinter = hinter.skip_young(PteTracker::new().map_err(|_| -libc::EOPNOTSUPP)?);
        }
        let table = self.table();
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel);
        let results = hinter.give(&table.processes, &hints);
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(results.iter().map(ThermoResult::new).collect())
    }
}

const fn nonzero(limit: u64) -> Option<u64> {
    if limit == 0 { None } else { Some(limit) }
}

fn negative_errno(why: &io::Error) -> i64 {
    -i64::from(why.raw_os_error().unwrap_or(libc::EIO))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn thermo_abi() -> u32 {
    ABI
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn thermo_new() -> *mut Thermo {
    Box::into_raw(Box::default())
}

/// See the header.
///
/// # Safety
/// `thermo` is NULL or came from [`thermo_new`], is not freed yet, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_free(thermo: *mut Thermo) {
    if !thermo.is_null() {
        // SAFETY: the caller guarantees that it came from `Box::into_raw` and that no other call uses it.
        drop(unsafe { Box::from_raw(thermo) });
    }
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_add_pid(thermo: *mut Thermo, pid: u32) -> i64 {
    // SAFETY: the caller guarantees that it is valid; it is only borrowed shared.
    let Some(thermo) = (unsafe { thermo.as_ref() }) else {
        return -i64::from(libc::EINVAL);
    };
    thermo.add(|id| Process::open(id, pid))
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_add_pidfd(thermo: *mut Thermo, pidfd: c_int) -> i64 {
    // SAFETY: the caller guarantees that it is valid; it is only borrowed shared.
    let Some(thermo) = (unsafe { thermo.as_ref() }) else {
        return -i64::from(libc::EINVAL);
    };
    if pidfd < 0 {
        return -i64::from(libc::EBADF);
    }
    thermo.add(|id| {
        // SAFETY: borrowed only while it is duplicated; duplicating a closed descriptor fails with EBADF.
        let fd = unsafe { BorrowedFd::borrow_raw(pidfd) }.try_clone_to_owned()?;
        let (pidfd, pid) = PidFd::take(fd)?;
        Ok(Process {
            id,
            pid,
            pidfd,
            runs_vm: None,
        })
    })
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_remove(thermo: *mut Thermo, process: u32) {
    // SAFETY: the caller guarantees that it is valid; it is only borrowed shared.
    if let Some(thermo) = unsafe { thermo.as_ref() } {
        thermo.table().processes.remove(&TargetId(process));
    }
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_is_alive(thermo: *const Thermo, process: u32) -> c_int {
    // SAFETY: the caller guarantees that it is valid; it is only borrowed shared.
    let thermo = unsafe { thermo.as_ref() };
    let is_alive = |thermo: &Thermo| {
        let table = thermo.table();
        table
            .processes
            .get(&TargetId(process))
            .is_some_and(Process::is_alive)
    };
    c_int::from(thermo.is_some_and(is_alive))
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed. `name` is NULL or a NUL-terminated string. `starts`
/// and `ends` have room for `n` elements, or `n` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_ranges(
    thermo: *const Thermo,
    process: u32,
    name: *const c_char,
    starts: *mut u64,
    ends: *mut u64,
    n: usize,
) -> i64 {
    // SAFETY: the caller guarantees that it is valid; it is only borrowed shared.
    let Some(thermo) = (unsafe { thermo.as_ref() }) else {
        return -i64::from(libc::EINVAL);
    };
    let mut selection = Selection::default();
    if !name.is_null() {
        // SAFETY: the caller guarantees a NUL-terminated string.
        let name = unsafe { CStr::from_ptr(name) };
        selection.names.push(name.to_string_lossy().into_owned());
    }
    let pid = thermo
        .table()
        .processes
        .get(&TargetId(process))
        .map(|process| process.pid);
    let Some(found) = pid.map(|pid| selection.ranges(Path::new("/"), pid)) else {
        return -i64::from(libc::ENOENT);
    };
    // If the process has ended, its pid may have been reused during the read.
    // SAFETY: as above.
    if unsafe { thermo_is_alive(thermo, process) } == 0 {
        return -i64::from(libc::ESRCH);
    }
    let Ok(ranges) = found else {
        return -i64::from(libc::EPERM);
    };
    if n > 0 && !starts.is_null() && !ends.is_null() {
        for (nth, range) in ranges.iter().take(n).enumerate() {
            // SAFETY: the caller guarantees room for `n` elements, and `nth < n`.
            unsafe {
                starts.add(nth).write(range.start.0);
                ends.add(nth).write(range.end.0);
            }
        }
    }
    i64::try_from(ranges.len()).unwrap_or(i64::MAX)
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed. `hints` has `n` elements and `results` room for `n`,
/// or `n` is 0. `limits` is NULL or points to a valid struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_give(
    thermo: *mut Thermo,
    hints: *const ThermoHint,
    n: usize,
    limits: *const ThermoLimits,
    results: *mut ThermoResult,
) -> c_int {
    // SAFETY: the caller guarantees that both are valid or NULL; they are only borrowed shared.
    let (thermo, limits) = unsafe { (thermo.as_ref(), limits.as_ref()) };
    let Some(thermo) = thermo.filter(|_| n == 0 || !(hints.is_null() || results.is_null())) else {
        return -libc::EINVAL;
    };
    if n == 0 {
        return 0;
    }
    // SAFETY: the caller guarantees `n` elements that no other thread writes to.
    let hints = unsafe { std::slice::from_raw_parts(hints, n) };
    match thermo.apply_hints(hints, limits.unwrap_or(&ThermoLimits::default())) {
        Ok(returned) => {
            for (nth, result) in returned.into_iter().take(n).enumerate() {
                // SAFETY: the caller guarantees room for `n` elements, and `nth < n`.
                unsafe { results.add(nth).write(result) };
            }
            0
        }
        Err(errno) => errno,
    }
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_cancel(thermo: *mut Thermo) {
    // SAFETY: the caller guarantees that it is valid; it is only borrowed shared, also by other threads.
    let Some(thermo) = (unsafe { thermo.as_ref() }) else {
        return;
    };
    if let Some(cancel) = &*thermo.cancel.lock().unwrap_or_else(PoisonError::into_inner) {
        cancel.store(true, Ordering::Release);
    }
}
