//! The state of one client connection, without I/O: splits input into lines, buffers output, and decides when
//! to disconnect.

use std::collections::VecDeque;

use thermo_units::Nanos;

use super::wire::MAX_LINE;

/// A client with this many bytes of unsent answers gets no further answer until it reads.
const MAX_UNSENT: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    /// Received bytes of lines that were not returned yet.
    input: Vec<u8>,
    output: VecDeque<u8>,
    last_line_at: Nanos,
    closing: bool,
}

/// A line is longer than [`MAX_LINE`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineTooLong;

impl Connection {
    pub(super) const fn new(now: Nanos) -> Self {
        Self {
            input: Vec::new(),
            output: VecDeque::new(),
            last_line_at: now,
            closing: false,
        }
    }

    /// True if more bytes are needed. While a line waits, the client's further bytes stay in the socket.
    pub(super) fn wants_input(&self) -> bool {
        !self.closing && !self.has_line()
    }

    /// Adds received bytes.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// True if [`Self::next_line`] returns a line now.
    pub(super) fn is_ready(&self) -> bool {
        !self.closing && self.output.len() < MAX_UNSENT && self.has_line()
    }

    /// Whether a line is complete, or already too long.
    fn has_line(&self) -> bool {
        self.input.len() > MAX_LINE || self.input.contains(&b'\n')
    }

    /// The next complete line, without its line end.
    ///
    /// # Errors
    /// The line is too long.
    pub(super) fn next_line(&mut self, now: Nanos) -> Result<Option<Vec<u8>>, LineTooLong> {
        if !self.is_ready() {
            return Ok(None);
        }
        match self.input.iter().position(|byte| *byte == b'\n') {
            Some(end) if end <= MAX_LINE => {
                self.last_line_at = now;
                let mut line: Vec<u8> = self.input.drain(..=end).collect();
                line.pop();
                Ok(Some(line))
            }
            _ => Err(LineTooLong),
        }
    }

    /// Queues a line of output.
    pub(super) fn queue_line(&mut self, line: &str) {
        self.output.extend(line.as_bytes());
        self.output.push_back(b'\n');
    }

    /// Output that was not written yet.
    pub(super) fn unsent(&mut self) -> &[u8] {
        self.output.make_contiguous()
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.output.is_empty()
    }

    /// Removes the first `bytes` of output after they were written.
    pub(super) fn mark_sent(&mut self, bytes: usize) {
        drop(self.output.drain(..bytes.min(self.output.len())));
    }

    /// Disconnects after all output is written.
    pub(super) const fn close(&mut self) {
        self.closing = true;
    }

    pub(super) const fn is_closing(&self) -> bool {
        self.closing
    }

    /// True if the client is to be disconnected now.
    pub(super) fn is_finished(&self) -> bool {
        self.closing && self.output.is_empty()
    }

    /// True if the client sent no complete line for `time`.
    pub(super) fn is_silent(&self, time: Nanos, now: Nanos) -> bool {
        now.saturating_sub(self.last_line_at) >= time
    }

    pub(super) const fn last_line_at(&self) -> Nanos {
        self.last_line_at
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn lines(connection: &mut Connection) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| connection.next_line(Nanos::ZERO).unwrap()).collect()
    }

    #[test]
    fn connection_joins_lines_from_chunks() {
        for size in 1..20 {
            let mut connection = Connection::new(Nanos::ZERO);
            let mut received = Vec::new();
            for bytes in b"one\n\ntwo three\nrest".chunks(size) {
                connection.receive(bytes);
                received.extend(lines(&mut connection));
            }
            assert_eq!(received, [&b"one"[..], b"", b"two three"]);
            assert!(connection.wants_input());
        }
    }

    #[test]
    fn connection_rejects_too_long_line() {
        let mut connection = Connection::new(Nanos::ZERO);
        connection.receive(&[b'x'; MAX_LINE]);
        assert_eq!(lines(&mut connection), [[0; 0]; 0]);
        connection.receive(b"\n");
        assert_eq!(lines(&mut connection)[0].len(), MAX_LINE);
        connection.receive(&[b'x'; MAX_LINE]);
        assert!(connection.wants_input());
        connection.receive(b"x");
        assert!(!connection.wants_input());
        assert_eq!(connection.next_line(Nanos::ZERO), Err(LineTooLong));
        connection.receive(b"\n");
        assert_eq!(connection.next_line(Nanos::ZERO), Err(LineTooLong));
    }

    #[test]
    fn connection_returns_no_line_while_answers_are_unread() {
        let mut connection = Connection::new(Nanos::ZERO);
        connection.receive(b"one\ntwo\n");
        connection.queue_line(&"x".repeat(MAX_UNSENT));
        assert_eq!(connection.next_line(Nanos::ZERO), Ok(None));
        assert!(!connection.is_ready() && !connection.wants_input());
        connection.mark_sent(2);
        assert_eq!(lines(&mut connection), [b"one", b"two"]);
    }

    #[test]
    fn silence_starts_at_last_complete_line() {
        let mut connection = Connection::new(Nanos::secs(1));
        let is_silent = |connection: &Connection, at| connection.is_silent(Nanos::secs(30), Nanos::secs(at));
        assert!(!is_silent(&connection, 30) && is_silent(&connection, 31));
        connection.receive(b"never ending");
        assert_eq!(connection.next_line(Nanos::secs(30)), Ok(None));
        assert!(is_silent(&connection, 31));
        connection.receive(b"\n");
        assert!(connection.next_line(Nanos::secs(31)).unwrap().is_some());
        assert!(!is_silent(&connection, 60));
    }

    #[test]
    fn connection_is_finished_when_closed_and_sent() {
        let mut connection = Connection::new(Nanos::ZERO);
        connection.queue_line("hello");
        assert_eq!(connection.unsent(), b"hello\n");
        connection.mark_sent(4);
        assert_eq!(connection.unsent(), b"o\n");
        connection.close();
        assert!(!connection.is_finished());
        connection.mark_sent(2);
        assert!(connection.is_finished());
    }
}
