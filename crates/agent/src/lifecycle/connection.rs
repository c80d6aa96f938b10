//! One client of the socket, without the socket: bytes in, lines out, and when to let go of it.

use std::collections::VecDeque;

use thermo_units::Nanos;

use super::wire::LONGEST_LINE;

/// A client that lets so much of its answers lie is let go of.
const MOST_UNREAD: usize = 1 << 20;

/// A client.
#[derive(Debug)]
pub(super) struct Connection {
    incoming: Vec<u8>,
    outgoing: VecDeque<u8>,
    heard_at: Nanos,
    closing: bool,
}

/// Bytes that cannot become a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Connection {
    pub(super) const fn new(now: Nanos) -> Self {
        Self {
            incoming: Vec::new(),
            outgoing: VecDeque::new(),
            heard_at: now,
            closing: false,
        }
    }

    /// Takes in what was read. Returns the whole lines in it, without their ends.
    ///
    /// # Errors
    /// A line goes on without an end; the lines before it are lost with it.
    pub(super) fn take_in(&mut self, bytes: &[u8], now: Nanos) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut lines = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                self.heard_at = now;
                lines.push(std::mem::take(&mut self.incoming));
            } else if self.incoming.len() >= LONGEST_LINE {
                return Err(TooLong);
            } else {
                self.incoming.push(*byte);
            }
        }
        Ok(lines)
    }

    /// Adds an answer.
    pub(super) fn answer(&mut self, line: &str) {
        self.outgoing.extend(line.as_bytes());
        self.outgoing.push_back(b'\n');
    }

    /// What is to be written next.
    pub(super) fn unwritten(&mut self) -> &[u8] {
        self.outgoing.make_contiguous()
    }

    pub(super) fn has_unwritten(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// So much of it was written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        drop(self.outgoing.drain(..bytes.min(self.outgoing.len())));
    }

    /// Ends once everything was written.
    pub(super) const fn close(&mut self) {
        self.closing = true;
    }

    pub(super) const fn is_closing(&self) -> bool {
        self.closing
    }

    /// True when there is nothing more to be done for it.
    pub(super) fn is_over(&self) -> bool {
        (self.closing && self.outgoing.is_empty()) || self.outgoing.len() > MOST_UNREAD
    }

    /// True when it has said nothing whole for `time`.
    pub(super) fn is_silent(&self, time: Nanos, now: Nanos) -> bool {
        now.saturating_sub(self.heard_at) >= time
    }

    pub(super) const fn heard_at(&self) -> Nanos {
        self.heard_at
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn lines_are_put_together_from_any_pieces() {
        for size in 1..20 {
            let mut connection = Connection::new(Nanos::ZERO);
            let mut lines = Vec::new();
            for bytes in b"one\n\ntwo three\nrest".chunks(size) {
                lines.extend(connection.take_in(bytes, Nanos::ZERO).unwrap());
            }
            assert_eq!(lines, [&b"one"[..], b"", b"two three"]);
        }
    }

    #[test]
    fn a_line_has_an_end() {
        let mut connection = Connection::new(Nanos::ZERO);
        assert!(
            connection
                .take_in(&[b'x'; LONGEST_LINE], Nanos::ZERO)
                .unwrap()
                .is_empty()
        );
        assert_eq!(
            connection.take_in(b"\n", Nanos::ZERO).unwrap()[0].len(),
            LONGEST_LINE
        );
        assert!(
            connection
                .take_in(&[b'x'; LONGEST_LINE], Nanos::ZERO)
                .unwrap()
                .is_empty()
        );
        assert_eq!(connection.take_in(b"x", Nanos::ZERO), Err(TooLong));
    }

    #[test]
    fn silence_is_counted_from_the_last_whole_line() {
        let mut connection = Connection::new(Nanos::secs(1));
        let silent = |connection: &Connection, at| connection.is_silent(Nanos::secs(30), Nanos::secs(at));
        assert!(!silent(&connection, 30) && silent(&connection, 31));
        connection.take_in(b"never ending", Nanos::secs(30)).unwrap();
        assert!(silent(&connection, 31));
        connection.take_in(b"\n", Nanos::secs(31)).unwrap();
        assert!(!silent(&connection, 60));
    }

    #[test]
    fn who_does_not_read_is_let_go_of() {
        let mut connection = Connection::new(Nanos::ZERO);
        connection.answer("hello");
        assert_eq!(connection.unwritten(), b"hello\n");
        connection.wrote(4);
        assert_eq!(connection.unwritten(), b"o\n");
        connection.close();
        assert!(!connection.is_over());
        connection.wrote(2);
        assert!(connection.is_over());
        let mut connection = Connection::new(Nanos::ZERO);
        connection.answer(&"x".repeat(MOST_UNREAD));
        assert!(connection.is_over());
    }
}
