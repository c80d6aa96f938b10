//! The functions of `include/thermo_pool.h`. The header documents them and the duties of callers.
//!
//! Every object is a box, and C holds the pointer. A null pointer instead of an object makes a function do
//! nothing, so a program that forgot a check loses its buffer but does not crash. No panic crosses the
//! interface: pools do not panic, and a panic would end the process (`extern "C"`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use ::thermo_pool::{Buffer, Pool, Pools, PressureMonitor, ReclaimBus, Registration, Settings, source};
use thermo_units::{Bytes, Nanos};

/// All pools of a process.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct thermo_pools {
    pools: Pools,
    bus: ReclaimBus,
    // Dropped in this order: first the monitor that reports, then the registration.
    _monitor: PressureMonitor,
    _pools_registration: Registration,
}

/// The buffers of one device.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct thermo_pool(Pool);

/// A buffer lent by a pool.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct thermo_buffer(Buffer);

/// A registered reclaimer.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct thermo_registration {
    _registration: Registration,
}

/// An opaque pointer of the caller. The header allows its use on any thread.
struct UserData(*mut c_void);

// SAFETY: the pointer is only passed back to the caller's function. `thermo_pools_register` requires that
// this may happen on another thread.
unsafe impl Send for UserData {}

impl UserData {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

fn boxed<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// # Safety
/// `object` is null, or came from [`boxed`] and was not freed.
unsafe fn borrow<'a, T>(object: *const T) -> Option<&'a T> {
    // SAFETY: guaranteed by the caller.
    unsafe { object.as_ref() }
}

/// # Safety
/// As for [`borrow`], and `object` is not used afterwards.
unsafe fn free<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// # Safety
/// `text` is null or a NUL-terminated string.
unsafe fn parse_name<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn thermo_pools_new(budget: u64) -> *mut thermo_pools {
    let pools = Pools::new(Bytes(budget), Settings::default());
    let bus = ReclaimBus::default();
    let pools_registration = pools.register_on(&bus, 0);
    let choice = source::choose(Path::new("/"), |name| std::env::var(name).ok());
    match PressureMonitor::start(&pools, &bus, choice.sources) {
        Ok(monitor) => boxed(thermo_pools {
            pools,
            bus,
            _monitor: monitor,
            _pools_registration: pools_registration,
        }),
        Err(_) => std::ptr::null_mut(),
    }
}

/// # Safety
/// See the header. This holds for every function here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_free(pools: *mut thermo_pools) {
    // SAFETY: as the header requires.
    unsafe { free(pools) }
}

unsafe fn configure(pools: *mut thermo_pools, change: impl FnOnce(&mut Settings)) {
    // SAFETY: as the header requires.
    if let Some(pools) = unsafe { borrow(pools) } {
        let mut settings = pools.pools.settings();
        change(&mut settings);
        pools.pools.configure(settings);
    }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_set_max_buffer_pages(pools: *mut thermo_pools, pages: u64) {
    // SAFETY: as the header requires.
    unsafe { configure(pools, |settings| settings.max_buffer_pages = pages) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_set_buffer_squeeze_duration_ms(pools: *mut thermo_pools, ms: u64) {
    // SAFETY: as the header requires.
    unsafe { configure(pools, |settings| settings.buffer_squeeze_duration_ms = ms) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_report_pressure(pools: *mut thermo_pools) -> u64 {
    // SAFETY: as the header requires.
    let pools = unsafe { borrow(pools) };
    pools.map_or(0, |pools| {
        pools.bus.report_pressure("reported by the program").freed.0
    })
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_used(pools: *const thermo_pools) -> u64 {
    // SAFETY: as the header requires.
    unsafe { borrow(pools) }.map_or(0, |pools| pools.pools.usage().used.0)
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_peak(pools: *const thermo_pools) -> u64 {
    // SAFETY: as the header requires.
    unsafe { borrow(pools) }.map_or(0, |pools| pools.pools.usage().peak.0)
}

/// # Safety
/// See the header: `text` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_metrics(
    pools: *const thermo_pools,
    text: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: as the header requires.
    let Some(pools) = (unsafe { borrow(pools) }) else {
        return 0;
    };
    let metrics = pools.pools.prometheus();
    if !text.is_null() && size > 0 {
        let fits = metrics.len().min(size - 1);
        // SAFETY: `fits` bytes and the terminating NUL are at most `size`, and the caller provides `size`
        // bytes. `metrics` is owned here, so the ranges do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(metrics.as_ptr(), text.cast(), fits);
            text.add(fits).write(0);
        }
    }
    metrics.len()
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pool_open(
    pools: *mut thermo_pools,
    name: *const c_char,
    max_request: u64,
) -> *mut thermo_pool {
    // SAFETY: as the header requires.
    let (pools, name) = unsafe { (borrow(pools), parse_name(name)) };
    let opened = pools
        .zip(name)
        .and_then(|(pools, name)| pools.pools.open(name, Bytes(max_request)).ok());
    opened.map_or(std::ptr::null_mut(), |pool| boxed(thermo_pool(pool)))
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pool_close(pool: *mut thermo_pool) {
    // SAFETY: as the header requires.
    unsafe { free(pool) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pool_acquire(
    pool: *mut thermo_pool,
    len: usize,
    timeout_ms: i64,
) -> *mut thermo_buffer {
    // SAFETY: as the header requires.
    let Some(thermo_pool(pool)) = (unsafe { borrow(pool) }) else {
        return std::ptr::null_mut();
    };
    let acquired = match u64::try_from(timeout_ms) {
        Ok(0) => pool.try_acquire(len),
        Ok(timeout) => pool.acquire_within(len, Nanos::millis(timeout)),
        Err(_) => pool.acquire(len),
    };
    acquired.map_or(std::ptr::null_mut(), |buffer| boxed(thermo_buffer(buffer)))
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_buffer_data(buffer: *mut thermo_buffer) -> *mut c_void {
    // SAFETY: as the header requires. The caller has exclusive access to the buffer.
    unsafe { buffer.as_mut() }.map_or(std::ptr::null_mut(), |buffer| buffer.0.as_mut_ptr().cast())
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_buffer_release(buffer: *mut thermo_buffer) {
    // SAFETY: as the header requires.
    unsafe { free(buffer) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pool_end_batch(pool: *mut thermo_pool) {
    // SAFETY: as the header requires.
    if let Some(pool) = unsafe { borrow(pool) } {
        pool.0.end_batch();
    }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pool_free_pages(pool: *const thermo_pool) -> u64 {
    // SAFETY: as the header requires.
    unsafe { borrow(pool) }.map_or(0, |pool| pool.0.stats().free_pages)
}

/// # Safety
/// See the header: `reclaim` may be called with `data` on another thread until the registration is dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_register(
    pools: *mut thermo_pools,
    name: *const c_char,
    priority: c_int,
    reclaim: Option<extern "C" fn(*mut c_void) -> u64>,
    data: *mut c_void,
) -> *mut thermo_registration {
    // SAFETY: as the header requires.
    let (pools, name) = unsafe { (borrow(pools), parse_name(name)) };
    let (Some(pools), Some(name), Some(reclaim)) = (pools, name, reclaim) else {
        return std::ptr::null_mut();
    };
    let data = UserData(data);
    // A C reclaimer gives no estimate.
    let registration = pools.bus.register(
        name,
        priority,
        || Bytes::ZERO,
        move |_| Bytes(reclaim(data.get())),
    );
    boxed(thermo_registration {
        _registration: registration,
    })
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_registration_drop(registration: *mut thermo_registration) {
    // SAFETY: as the header requires.
    unsafe { free(registration) }
}
