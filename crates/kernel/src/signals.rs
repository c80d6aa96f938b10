//! Counts the signals that request termination: the first means an orderly shutdown, the second an immediate
//! exit.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

static TERMINATIONS: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);
static HANGUPS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_termination(signal: libc::c_int) {
    // Only atomics: a handler may interrupt any code.
    LAST.store(signal, Ordering::Relaxed);
    TERMINATIONS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn count_hangup(_: libc::c_int) {
    HANGUPS.fetch_add(1, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP are counted and no longer end the process. The signal interrupts
/// system calls of the thread that receives it, so a sleep ends at once.
///
/// # Errors
/// None known.
pub fn install() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        if signal == libc::SIGHUP && is_ignored(signal)? {
            continue; // Started by nohup: the process outlives its terminal.
        }
        handle(signal, count_termination)?;
    }
    Ok(())
}

/// From now on SIGHUP requests a reload ([`take_hangup`]) and no longer termination.
///
/// # Errors
/// None known.
pub fn reload_on_hangup() -> io::Result<()> {
    handle(libc::SIGHUP, count_hangup)
}

/// From now on the calling thread receives no signals that are sent to the process: its other threads do.
pub(crate) fn block_in_this_thread() {
    // SAFETY: `set` is initialised by `sigfillset` and lives through both calls; the old mask is not asked
    // for. Neither call can fail with these arguments.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Whether SIGHUP arrived since the last call.
#[must_use]
pub fn take_hangup() -> bool {
    HANGUPS.swap(0, Ordering::Relaxed) > 0
}

/// `handler` must touch nothing but atomics.
fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    // SAFETY: all zeroes is a valid sigaction (no flags, an empty mask).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the action is filled, lives through the call, and its handler touches nothing but atomics.
    if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    // SAFETY: all zeroes is a valid sigaction (no flags, an empty mask).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with no new action the call only fills the old one, which lives through the call.
    if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

/// The number of termination signals received.
#[must_use]
pub fn termination_count() -> u32 {
    TERMINATIONS.load(Ordering::Relaxed)
}

/// The last termination signal (`SIGINT` is 2, `SIGTERM` 15); `None` before the first.
#[must_use]
pub fn last() -> Option<i32> {
    Some(LAST.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}
