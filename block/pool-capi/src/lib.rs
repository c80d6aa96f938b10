//! The functions of `include/thermo_pool.h`: what they do, and what callers owe, stands there.
//!
//! Every object is a box whose pointer C holds. A null pointer where an object is due is answered with nothing done, so
//! that a program which forgot to look loses its buffer, not its life. No panic leaves a function: pools do not panic,
//! and one that did would end the process (`extern "C"`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use ::thermo_pool::{Buffer, Bus, Keeper, Pool, Pools, Registration, Settings, source};
use thermo_units::{Bytes, Nanos};

/// All pools of a process.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "as C names it")]
pub struct thermo_pools {
    pools: Pools,
    bus: Bus,
    // Ended in this order: first nobody reports, then nobody listens.
    _keeper: Keeper,
    _joined: Registration,
}

/// The buffers of one device.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "as C names it")]
pub struct thermo_pool(Pool);

/// A lent buffer.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "as C names it")]
pub struct thermo_buffer(Buffer);

/// Something else that can free memory.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "as C names it")]
pub struct thermo_registration {
    _registration: Registration,
}

/// A pointer of the caller's, which it may use on any thread: the header says so.
struct Data(*mut c_void);

// SAFETY: the pointer is only handed back to the caller's function; that it may be on another thread is what
// `thermo_pools_register` asks of the caller.
unsafe impl Send for Data {}

impl Data {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

fn boxed<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// # Safety
/// `object` is null, or came from [`boxed`] and was not freed.
unsafe fn seen<'a, T>(object: *const T) -> Option<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { object.as_ref() }
}

/// # Safety
/// As [`seen`], and nobody uses it afterwards.
unsafe fn free<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// # Safety
/// `text` is null or ends with a zero.
unsafe fn name<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn thermo_pools_new(budget: u64) -> *mut thermo_pools {
    let pools = Pools::new(Bytes(budget), Settings::default());
    let bus = Bus::default();
    let joined = pools.join(&bus, 0);
    let choice = source::choose(Path::new("/"), |name| std::env::var(name).ok());
    match Keeper::start(&pools, &bus, choice.sources) {
        Ok(keeper) => boxed(thermo_pools {
            pools,
            bus,
            _keeper: keeper,
            _joined: joined,
        }),
        Err(_) => std::ptr::null_mut(),
    }
}

/// # Safety
/// See the header; this holds for every function here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_free(pools: *mut thermo_pools) {
    // SAFETY: as the header asks.
    unsafe { free(pools) }
}

unsafe fn configure(pools: *mut thermo_pools, change: impl FnOnce(&mut Settings)) {
    // SAFETY: as the header asks.
    if let Some(pools) = unsafe { seen(pools) } {
        let mut settings = pools.pools.settings();
        change(&mut settings);
        pools.pools.configure(settings);
    }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_set_max_buffer_pages(pools: *mut thermo_pools, pages: u64) {
    // SAFETY: as the header asks.
    unsafe { configure(pools, |settings| settings.max_buffer_pages = pages) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_set_buffer_squeeze_duration_ms(pools: *mut thermo_pools, ms: u64) {
    // SAFETY: as the header asks.
    unsafe { configure(pools, |settings| settings.buffer_squeeze_duration_ms = ms) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_report_pressure(pools: *mut thermo_pools) -> u64 {
    // SAFETY: as the header asks.
    let pools = unsafe { seen(pools) };
    pools.map_or(0, |pools| {
        pools.bus.report_pressure("the program says so").freed.0
    })
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_used(pools: *const thermo_pools) -> u64 {
    // SAFETY: as the header asks.
    unsafe { seen(pools) }.map_or(0, |pools| pools.pools.usage().used.0)
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_peak(pools: *const thermo_pools) -> u64 {
    // SAFETY: as the header asks.
    unsafe { seen(pools) }.map_or(0, |pools| pools.pools.usage().peak.0)
}

/// # Safety
/// See the header: `text` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_metrics(
    pools: *const thermo_pools,
    text: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: as the header asks.
    let Some(pools) = (unsafe { seen(pools) }) else {
        return 0;
    };
    let metrics = pools.pools.prometheus();
    if !text.is_null() && size > 0 {
        let fits = metrics.len().min(size - 1);
        // SAFETY: `fits` bytes and a zero are at most `size`, for which the caller has room; the text is ours, so they
        // do not overlap.
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
    name_of: *const c_char,
    largest: u64,
) -> *mut thermo_pool {
    // SAFETY: as the header asks.
    let (pools, name) = unsafe { (seen(pools), name(name_of)) };
    let opened = pools
        .zip(name)
        .and_then(|(pools, name)| pools.pools.open(name, Bytes(largest)).ok());
    opened.map_or(std::ptr::null_mut(), |pool| boxed(thermo_pool(pool)))
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pool_close(pool: *mut thermo_pool) {
    // SAFETY: as the header asks.
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
    // SAFETY: as the header asks.
    let Some(thermo_pool(pool)) = (unsafe { seen(pool) }) else {
        return std::ptr::null_mut();
    };
    let lent = match u64::try_from(timeout_ms) {
        Ok(0) => pool.try_acquire(len),
        Ok(timeout) => pool.acquire_within(len, Nanos::millis(timeout)),
        Err(_) => pool.acquire(len),
    };
    lent.map_or(std::ptr::null_mut(), |buffer| boxed(thermo_buffer(buffer)))
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_buffer_data(buffer: *mut thermo_buffer) -> *mut c_void {
    // SAFETY: as the header asks; who has the buffer is alone with it.
    unsafe { buffer.as_mut() }.map_or(std::ptr::null_mut(), |buffer| buffer.0.as_mut_ptr().cast())
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_buffer_release(buffer: *mut thermo_buffer) {
    // SAFETY: as the header asks.
    unsafe { free(buffer) }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pool_end_batch(pool: *mut thermo_pool) {
    // SAFETY: as the header asks.
    if let Some(pool) = unsafe { seen(pool) } {
        pool.0.end_batch();
    }
}

/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pool_free_pages(pool: *const thermo_pool) -> u64 {
    // SAFETY: as the header asks.
    unsafe { seen(pool) }.map_or(0, |pool| pool.0.stats().free_pages)
}

/// # Safety
/// See the header: `reclaim` may be called with `data` on another thread until the registration is dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thermo_pools_register(
    pools: *mut thermo_pools,
    name_of: *const c_char,
    priority: c_int,
    reclaim: Option<extern "C" fn(*mut c_void) -> u64>,
    data: *mut c_void,
) -> *mut thermo_registration {
    // SAFETY: as the header asks.
    let (pools, name) = unsafe { (seen(pools), name(name_of)) };
    let (Some(pools), Some(name), Some(reclaim)) = (pools, name, reclaim) else {
        return std::ptr::null_mut();
    };
    let data = Data(data);
    // How much it could free C does not say.
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
    // SAFETY: as the header asks.
    unsafe { free(registration) }
}
