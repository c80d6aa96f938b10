//! One fdatasync(2) for all callers that wait, and a lasting error.
//!
//! The kernel reports a failed writeback once to each open file, then forgets it. All connections share the
//! open file of an export, so only one of them would learn that acknowledged writes are lost. Here the first
//! error stays for every later caller. One call runs at a time, so no caller can take the error of another.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock::locked;
use crate::protocol::request::NbdError;

#[derive(Debug, Default)]
struct State {
    started: u64,
    finished: u64,
    error: Option<NbdError>,
}

/// The syncs of one export.
#[derive(Debug, Default)]
pub(super) struct GroupSync {
    state: Mutex<State>,
    finished: Condvar,
}

impl GroupSync {
    /// Returns after a call of `sync` that began after this one, made here or by another caller. Once a call
    /// has failed, returns its error for ever.
    pub(super) fn run(&self, sync: impl FnOnce() -> Result<(), NbdError>) -> Result<(), NbdError> {
        let mut state = locked(&self.state);
        // A call that runs already may have missed the caller's data.
        let needed = state.started + 1;
        while state.started > state.finished && state.finished < needed {
            state = self.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.finished < needed && state.error.is_none() {
            state.started += 1;
            drop(state);
            let outcome = sync();
            state = locked(&self.state);
            state.finished = state.started;
            state.error = state.error.or(outcome.err());
            self.finished.notify_all();
        }
        state.error.map_or(Ok(()), Err)
    }

    /// Whether a call has failed.
    pub(super) fn has_failed(&self) -> bool {
        locked(&self.state).error.is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[test]
    fn failed_sync_is_reported_to_every_later_caller() {
        let group = GroupSync::default();
        assert_eq!(group.run(|| Ok(())), Ok(()));
        assert_eq!(group.run(|| Err(NbdError::Io)), Err(NbdError::Io));
        assert_eq!(group.run(|| Ok(())), Err(NbdError::Io));
        assert!(group.has_failed());
    }

    #[test]
    fn waiting_callers_share_one_later_sync() {
        let (group, later_calls) = (GroupSync::default(), AtomicUsize::new(0));
        let (running, is_running) = mpsc::channel();
        let (release, released) = mpsc::channel();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                group.run(move || {
                    running.send(()).unwrap();
                    released.recv().unwrap();
                    Ok(())
                })
            });
            is_running.recv().unwrap();
            let later = [0; 4].map(|_| {
                scope.spawn(|| {
                    group.run(|| {
                        later_calls.fetch_add(1, Ordering::SeqCst);
                        Err(NbdError::Io)
                    })
                })
            });
            release.send(()).unwrap();
            // The call that ran before saw none of the later data, so its success counts for itself alone.
            assert_eq!(first.join().unwrap(), Ok(()));
            for caller in later {
                assert_eq!(caller.join().unwrap(), Err(NbdError::Io));
            }
        });
        assert_eq!(later_calls.load(Ordering::SeqCst), 1);
    }
}
