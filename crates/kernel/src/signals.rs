//! The signals that ask us to end, counted: the first means "finish what is whole", the second "stop now".

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

static ASKED: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);
static HANGUPS: AtomicU32 = AtomicU32::new(0);

extern "C" fn note(signal: libc::c_int) {
    // Only atomics: a handler may interrupt anything.
    LAST.store(signal, Ordering::Relaxed);
    ASKED.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn note_hangup(_: libc::c_int) {
    HANGUPS.fetch_add(1, Ordering::Relaxed);
}

/// From now on INT, TERM and HUP are counted instead of ending the process. System calls of the thread that takes one are
/// interrupted, so that sleeping ends at once.
///
/// # Errors
/// None known.
pub fn install() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        if signal == libc::SIGHUP && is_ignored(signal)? {
            continue; // Started by nohup: we are to outlive the terminal.
        }
        handle(signal, note)?;
    }
    Ok(())
}

/// From now on HUP asks for something to be read anew ([`take_hangup`]) and no longer for an end.
///
/// # Errors
/// None known.
pub fn reload_on_hangup() -> io::Result<()> {
    handle(libc::SIGHUP, note_hangup)
}

/// Whether a HUP came since this was last asked.
#[must_use]
pub fn take_hangup() -> bool {
    HANGUPS.swap(0, Ordering::Relaxed) > 0
}

/// `handler` must touch nothing but atomics.
fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    // SAFETY: all zeroes is a valid sigaction (no flags, an empty mask).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the action is filled, lives over the call, and its handler touches nothing but atomics.
    if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    // SAFETY: all zeroes is a valid sigaction (no flags, an empty mask).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with no new action the call only fills the old one, which lives over it.
    if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

/// How often we were asked to end.
#[must_use]
pub fn asked() -> u32 {
    ASKED.load(Ordering::Relaxed)
}

/// The last signal that asked (`SIGINT` is 2, `SIGTERM` 15); `None` before the first.
#[must_use]
pub fn last() -> Option<i32> {
    Some(LAST.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}
