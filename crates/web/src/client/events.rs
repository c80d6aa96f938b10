//! Server-sent events, as far as the agent's stream uses them (WHATWG HTML, section 9.2.6).

use serde_json::Value;
use thermo_agent::api::Change;

/// Longest event in bytes.
const MAX_EVENT: usize = 64 << 20;

/// Makes changes of the bytes of a stream.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// Bytes that are not a whole event yet.
    waiting: Vec<u8>,
    /// Bytes of `waiting` in which no event ends.
    searched: usize,
}

impl Parser {
    /// Adds bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.waiting.len() + bytes.len() > MAX_EVENT {
            return Err(format!("an event is longer than {MAX_EVENT} bytes"));
        }
        self.waiting.extend_from_slice(bytes);
        Ok(())
    }

    /// The next change; `None` if it is not whole yet. Comments and unknown events are skipped: a newer agent
    /// may have more.
    pub(super) fn next_change(&mut self) -> Result<Option<Change>, String> {
        while let Some(event) = self.next_event() {
            if let Some(change) = parse(&event)? {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    fn next_event(&mut self) -> Option<Vec<u8>> {
        let unsearched = self.waiting.get(self.searched..).unwrap_or_default();
        let Some(end) = unsearched.windows(2).position(|pair| pair == b"\n\n") else {
            self.searched = self.waiting.len().saturating_sub(1);
            return None;
        };
        let event = self.waiting.drain(..self.searched + end + 2).collect();
        self.searched = 0;
        Some(event)
    }
}

fn parse(event: &[u8]) -> Result<Option<Change>, String> {
    let event = std::str::from_utf8(event).map_err(|error| error.to_string())?;
    let (mut name, mut data) = ("", String::new());
    for line in event.lines() {
        match line.split_once(':') {
            Some(("event", value)) => name = value.trim_start(),
            Some(("data", value)) => data.push_str(value.trim_start()),
            _ => {}
        }
    }
    if !["targets", "policies", "decision"].contains(&name) {
        return Ok(None);
    }
    let data: Value = serde_json::from_str(&data).map_err(|error| error.to_string())?;
    let change = serde_json::json!({"event": name, "data": data});
    serde_json::from_value(change)
        .map(Some)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn parser_finds_events_in_pieces_of_any_size() {
        let stream =
            ": hello\n\nevent: news\ndata: 1\n\nevent: policies\ndata: {\"schema\":1,\"policies\":[]}\n\n";
        for size in 1..stream.len() {
            let (mut parser, mut changes) = (Parser::default(), 0);
            for piece in stream.as_bytes().chunks(size) {
                parser.push(piece).unwrap();
                while let Some(change) = parser.next_change().unwrap() {
                    assert!(matches!(change, Change::Policies(_)));
                    changes += 1;
                }
            }
            assert_eq!(changes, 1, "pieces of {size} bytes");
        }
    }

    #[test]
    fn parser_rejects_data_that_is_not_the_event() {
        let mut parser = Parser::default();
        parser.push(b"event: targets\ndata: {}\n\n").unwrap();
        parser.next_change().unwrap_err();
    }
}
