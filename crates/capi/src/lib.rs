//! `libthermo`: hints for programs in C. What each function does is said in `include/thermo.h`; here they are thin
//! wrappers on [`thermo_actions::hint`], and nothing else.
//!
//! A panic ends the process at the border (`extern "C"` aborts), as C cannot take it over.

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

/// The version of the structs in the header.
const ABI: u32 = 1;

/// What `struct thermo` is.
#[derive(Debug, Default)]
pub struct Thermo {
    held: Mutex<Held>,
    /// Stops the hints that are being given.
    cancel: Mutex<Option<Arc<AtomicBool>>>,
}

#[derive(Debug, Default)]
struct Held {
    processes: Processes,
    next: u32,
}

impl Thermo {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, open: impl FnOnce(TargetId) -> io::Result<Process>) -> i64 {
        let mut held = self.held();
        let id = TargetId(held.next);
        match open(id) {
            Ok(process) => {
                held.next += 1;
                held.processes.insert(id, process);
                i64::from(id.0)
            }
            Err(why) => negative(&why),
        }
    }

    fn give(&self, hints: &[ThermoHint], limits: &ThermoLimits) -> Result<Vec<ThermoResult>, c_int> {
        let hints = hints.iter().map(ThermoHint::hint).collect::<Option<Vec<Hint>>>();
        let (hints, kind) = hints.zip(limits.kind()).ok_or(-libc::EINVAL)?;
        let within = Limits {
            max_bytes: some(limits.max_bytes).map(Bytes),
            max_time: some(limits.max_ns).map(Nanos),
            max_cpu: some(limits.max_cpu_ns).map(Nanos),
        };
        let actor = Actor::new(PageoutLimits::default(), limits.flags & DRY != 0);
        let cancel = actor.cancel_flag();
        let mut hinter = Hinter::new(actor, within);
        if let Some(kind) = kind {
            hinter = hinter.only(kind);
        }
        if limits.flags & SKIP_YOUNG != 0 {
            hinter = hinter.skip_young(PteTracker::new().map_err(|_| -libc::EOPNOTSUPP)?);
        }
        let held = self.held();
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel);
        let given = hinter.give(&held.processes, &hints);
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(given.iter().map(ThermoResult::of).collect())
    }
}

const fn some(limit: u64) -> Option<u64> {
    if limit == 0 { None } else { Some(limit) }
}

fn negative(why: &io::Error) -> i64 {
    -i64::from(why.raw_os_error().unwrap_or(libc::EIO))
}

/// The version of the structs.
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
        // SAFETY: it came from `Box::into_raw` and is not used any more, says the caller.
        drop(unsafe { Box::from_raw(thermo) });
    }
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_add_pid(thermo: *mut Thermo, pid: u32) -> i64 {
    // SAFETY: it is valid, says the caller, and is only ever borrowed shared.
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
    // SAFETY: it is valid, says the caller, and is only ever borrowed shared.
    let Some(thermo) = (unsafe { thermo.as_ref() }) else {
        return -i64::from(libc::EINVAL);
    };
    if pidfd < 0 {
        return -i64::from(libc::EBADF);
    }
    thermo.add(|id| {
        // SAFETY: it is borrowed for the duplication only; one that is not open makes that fail with EBADF.
        let fd = unsafe { BorrowedFd::borrow_raw(pidfd) }.try_clone_to_owned()?;
        let (pidfd, pid) = PidFd::take(fd)?;
        Ok(Process { id, pid, pidfd })
    })
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_remove(thermo: *mut Thermo, process: u32) {
    // SAFETY: it is valid, says the caller, and is only ever borrowed shared.
    if let Some(thermo) = unsafe { thermo.as_ref() } {
        thermo.held().processes.remove(&TargetId(process));
    }
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_is_alive(thermo: *const Thermo, process: u32) -> c_int {
    // SAFETY: it is valid, says the caller, and is only ever borrowed shared.
    let thermo = unsafe { thermo.as_ref() };
    let lives = |thermo: &Thermo| {
        let held = thermo.held();
        held.processes
            .get(&TargetId(process))
            .is_some_and(Process::is_alive)
    };
    c_int::from(thermo.is_some_and(lives))
}

/// See the header.
///
/// # Safety
/// `thermo` came from [`thermo_new`] and is not freed; `name` is NULL or a text with its end; `starts` and `ends` have
/// room for `n`, or `n` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_ranges(
    thermo: *const Thermo,
    process: u32,
    name: *const c_char,
    starts: *mut u64,
    ends: *mut u64,
    n: usize,
) -> i64 {
    // SAFETY: it is valid, says the caller, and is only ever borrowed shared.
    let Some(thermo) = (unsafe { thermo.as_ref() }) else {
        return -i64::from(libc::EINVAL);
    };
    let mut selection = Selection::default();
    if !name.is_null() {
        // SAFETY: it is a text with its end, says the caller.
        let name = unsafe { CStr::from_ptr(name) };
        selection.names.push(name.to_string_lossy().into_owned());
    }
    let pid = thermo
        .held()
        .processes
        .get(&TargetId(process))
        .map(|process| process.pid);
    let Some(found) = pid.map(|pid| selection.ranges(Path::new("/"), pid)) else {
        return -i64::from(libc::ENOENT);
    };
    // A number that passed on while it was read is not the process that is held.
    // SAFETY: as above.
    if unsafe { thermo_is_alive(thermo, process) } == 0 {
        return -i64::from(libc::ESRCH);
    }
    let Ok(ranges) = found else {
        return -i64::from(libc::EPERM);
    };
    if n > 0 && !starts.is_null() && !ends.is_null() {
        for (nth, range) in ranges.iter().take(n).enumerate() {
            // SAFETY: both have room for `n`, says the caller, and `nth` is below it.
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
/// `thermo` came from [`thermo_new`] and is not freed; `hints` holds `n`, `results` has room for as many, or `n` is 0;
/// `limits` is NULL or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_give(
    thermo: *mut Thermo,
    hints: *const ThermoHint,
    n: usize,
    limits: *const ThermoLimits,
    results: *mut ThermoResult,
) -> c_int {
    // SAFETY: both are valid or NULL, says the caller, and are only borrowed shared.
    let (thermo, limits) = unsafe { (thermo.as_ref(), limits.as_ref()) };
    let Some(thermo) = thermo.filter(|_| n == 0 || !(hints.is_null() || results.is_null())) else {
        return -libc::EINVAL;
    };
    if n == 0 {
        return 0;
    }
    // SAFETY: it holds `n`, says the caller, and nobody writes to it meanwhile.
    let hints = unsafe { std::slice::from_raw_parts(hints, n) };
    match thermo.give(hints, limits.unwrap_or(&ThermoLimits::default())) {
        Ok(given) => {
            for (nth, result) in given.into_iter().take(n).enumerate() {
                // SAFETY: there is room for `n`, says the caller, and `nth` is below it.
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
    // SAFETY: it is valid, says the caller, and is only ever borrowed shared, by other threads too.
    let Some(thermo) = (unsafe { thermo.as_ref() }) else {
        return;
    };
    if let Some(cancel) = &*thermo.cancel.lock().unwrap_or_else(PoisonError::into_inner) {
        cancel.store(true, Ordering::Release);
    }
}
