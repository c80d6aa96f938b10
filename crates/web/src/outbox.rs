//! Answers that clients have not taken yet. Their bytes have a bound, whoever reads how slowly.
//!
//! An answer is encoded once for all who ask for it between two changes, and copied to a connection in
//! pieces. When all answers that wait hold too many bytes, the peer that waits for the most loses the oldest
//! of its answers: that connection is cut, and its client asks again for the newest. Root loses none.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::auth::Peer;

/// Most bytes of all answers that wait. The newest answer is never cut, so it may be longer.
const MAX_BYTES: usize = 24 << 20;
/// Longest piece that is copied to a connection.
pub(crate) const PIECE: usize = 64 << 10;

/// The part of an answer that its client has not taken; `None` after it was cut.
type Rest = Arc<Mutex<Option<Bytes>>>;

#[derive(Debug)]
struct Waiting {
    peer: Peer,
    rest: Rest,
}

/// The answers that wait, by number.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Mutex<(u64, BTreeMap<u64, Waiting>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outbox {
    /// An answer for `peer`, to be taken in pieces.
    pub(crate) fn add(self: &Arc<Self>, peer: Peer, bytes: Bytes) -> Answer {
        let length = bytes.len();
        let rest: Rest = Arc::new(Mutex::new(Some(bytes)));
        let mut waiting = lock(&self.waiting);
        waiting.0 += 1;
        let number = waiting.0;
        let entry = Waiting {
            peer,
            rest: Arc::clone(&rest),
        };
        waiting.1.insert(number, entry);
        limit(&mut waiting.1, number);
        Answer {
            outbox: Arc::clone(self),
            number,
            rest,
            taken: 0,
            length,
        }
    }
}

/// Cuts answers until the bound holds, but not the one of number `newest`.
fn limit(waiting: &mut BTreeMap<u64, Waiting>, newest: u64) {
    while size(waiting) > MAX_BYTES {
        let mut of_peers: HashMap<Peer, usize> = HashMap::new();
        for entry in waiting.values().filter(|entry| !entry.peer.is_root()) {
            *of_peers.entry(entry.peer).or_default() += length(entry);
        }
        let largest = of_peers.into_iter().max_by_key(|(_, bytes)| *bytes);
        let oldest = waiting
            .iter()
            .find(|(number, entry)| **number != newest && Some(entry.peer) == largest.map(|(peer, _)| peer))
            .or_else(|| {
                waiting
                    .iter()
                    .find(|(number, entry)| **number != newest && !entry.peer.is_root())
            });
        let Some(oldest) = oldest.map(|(number, _)| *number) else {
            return;
        };
        if let Some(entry) = waiting.remove(&oldest) {
            *lock(&entry.rest) = None;
        }
    }
}

fn length(entry: &Waiting) -> usize {
    lock(&entry.rest).as_ref().map_or(0, Bytes::len)
}

/// Bytes of all answers. What several clients wait for counts once.
fn size(waiting: &BTreeMap<u64, Waiting>) -> usize {
    let mut seen = HashSet::new();
    let rests = waiting.values().filter_map(|entry| lock(&entry.rest).clone());
    rests
        .filter(|bytes| seen.insert(bytes.as_ptr()))
        .map(|bytes| bytes.len())
        .sum()
}

/// An answer that a client takes. Dropping it makes room.
#[derive(Debug)]
pub(crate) struct Answer {
    outbox: Arc<Outbox>,
    number: u64,
    rest: Rest,
    taken: usize,
    length: usize,
}

impl Answer {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The answer was cut, because its client is too slow.
    pub(crate) fn next_piece(&mut self) -> io::Result<Option<Bytes>> {
        if self.taken >= self.length {
            return Ok(None);
        }
        let rest = lock(&self.rest);
        let Some(bytes) = rest.as_ref() else {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client is too slow: others need the memory",
            ));
        };
        let end = self.length.min(self.taken + PIECE);
        // Copied: a piece that waits in a connection must not hold the whole.
        let piece = Bytes::copy_from_slice(bytes.get(self.taken..end).unwrap_or_default());
        drop(rest);
        self.taken = end;
        Ok(Some(piece))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        lock(&self.outbox.waiting).1.remove(&self.number);
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.next_piece().transpose().map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.taken >= self.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.length - self.taken) as u64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const LONG: usize = MAX_BYTES / 4;

    fn long() -> Bytes {
        Bytes::from(vec![b'x'; LONG])
    }

    fn read(mut answer: Answer) -> io::Result<usize> {
        let mut length = 0;
        while let Some(piece) = answer.next_piece()? {
            assert!(piece.len() <= PIECE);
            length += piece.len();
        }
        Ok(length)
    }

    #[test]
    fn slow_readers_hold_bounded_bytes_and_others_are_answered() {
        let outbox = Arc::new(Outbox::default());
        let slow: Vec<Answer> = (0..50).map(|_| outbox.add(Peer::Loopback, long())).collect();
        assert!(size(&lock(&outbox.waiting).1) <= MAX_BYTES);
        let root = outbox.add(Peer::User(0), long());
        let other = outbox.add(Peer::User(1000), long());
        let more: Vec<Answer> = (0..50).map(|_| outbox.add(Peer::Loopback, long())).collect();
        assert!(size(&lock(&outbox.waiting).1) <= MAX_BYTES);
        assert_eq!((read(root).unwrap(), read(other).unwrap()), (LONG, LONG));
        let results: Vec<_> = slow.into_iter().chain(more).map(read).collect();
        assert!(results[0].is_err() && results.last().unwrap().is_ok());
        assert!(lock(&outbox.waiting).1.is_empty());
    }

    #[test]
    fn answer_that_many_wait_for_counts_once() {
        let (outbox, shared) = (Arc::new(Outbox::default()), long());
        let all: Vec<Answer> = (0..50)
            .map(|_| outbox.add(Peer::Loopback, shared.clone()))
            .collect();
        assert!(all.into_iter().all(|answer| read(answer).is_ok()));
        // One answer beyond the bound is still given.
        let huge = Bytes::from(vec![b'x'; MAX_BYTES + 1]);
        assert_eq!(read(outbox.add(Peer::Loopback, huge)).unwrap(), MAX_BYTES + 1);
    }
}
