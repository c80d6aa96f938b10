//! Taking the data of a write, a piece at a time, straight to where they are needed.

use std::io;

use super::inbox::Step;
use super::task::{Task, acknowledge};
use super::{INPUT, SMALL, Worker};
use crate::client::read_job::CHUNK;
use crate::client::{Client, ConnectionError, Inbox, Payload, Phase, Session};
use crate::protocol::request::Request;

impl Worker {
    pub(super) fn stream(
        &mut self,
        client: &Client,
        session: &Session,
        inbox: &mut Inbox,
        request: Request,
        at: &mut usize,
        filled: usize,
    ) -> Result<Option<Step>, ConnectionError> {
        let refusal = request.refusal(session.export.size(), session.export.is_read_only());
        let mut payload = Payload {
            request,
            refusal,
            done: 0,
            buffer: None,
            filled: 0,
        };
        let step = self.payload(client, session, &mut payload, at, filled)?;
        if matches!(step, Some(Step::Wait | Step::Park)) {
            inbox.phase = Phase::Payload(payload);
        }
        Ok(step)
    }

    // Takes the data of a write: from what came already, then from the socket straight to where they are needed.
    // Nothing when it is done and answered.
    pub(super) fn payload(
        &mut self,
        client: &Client,
        session: &Session,
        payload: &mut Payload,
        at: &mut usize,
        filled: usize,
    ) -> Result<Option<Step>, ConnectionError> {
        while payload.left() > 0 {
            if payload.refusal.is_none() && payload.buffer.is_none() && !self.borrow(session, payload) {
                return Ok(Some(Step::Park));
            }
            let Some(count) = self.take_data(client, payload, at, filled)? else {
                return Ok(Some(Step::Wait));
            };
            payload.filled += count;
            let buffer = payload.buffer.as_ref();
            if buffer.is_some_and(|buffer| payload.filled < buffer.len()) {
                continue;
            }
            if payload.done == 0
                && payload.left() == 0
                && let Some(buffer) = payload.buffer.take()
            {
                self.count(&payload.request);
                let task = Task::Write(payload.request, buffer);
                return Ok(Some(Step::Task(Box::new(task), false)));
            }
            payload.spill(&session.export);
        }
        payload.spill(&session.export);
        self.count(&payload.request);
        let outcome = payload.refusal.map_or(Ok(()), Err);
        acknowledge(client, session, &payload.request, outcome);
        self.pump(client)?;
        Ok(None)
    }

    // A buffer for what is left, or for some of it; false when there is none.
    fn borrow(&mut self, session: &Session, payload: &mut Payload) -> bool {
        let left = left(payload);
        let mut lend = |len| self.caches.lend(Some(session), len);
        let lent = lend(left.min(CHUNK)).or_else(|_| lend(left.min(SMALL)));
        payload.buffer = lent.ok();
        payload.buffer.is_some()
    }

    // The next bytes into the buffer, or away where there is none; how many, nothing when none have come.
    fn take_data(
        &mut self,
        client: &Client,
        payload: &mut Payload,
        at: &mut usize,
        filled: usize,
    ) -> Result<Option<usize>, ConnectionError> {
        let left = left(payload);
        let place = payload
            .buffer
            .as_mut()
            .map(|buffer| &mut buffer[payload.filled..]);
        if *at >= filled {
            return match place {
                Some(place) => receive(client, place),
                None => receive(client, &mut self.input[..left.min(INPUT)]),
            };
        }
        let there = &self.input[*at..filled];
        let room = place.as_ref().map_or(left, |place| place.len());
        let count = room.min(there.len());
        if let Some(place) = place {
            place[..count].copy_from_slice(&there[..count]);
        }
        *at += count;
        Ok(Some(count))
    }
}

fn left(payload: &Payload) -> usize {
    usize::try_from(payload.left()).unwrap_or(usize::MAX)
}

// Nothing when nothing has come.
fn receive(client: &Client, bytes: &mut [u8]) -> Result<Option<usize>, ConnectionError> {
    match client.wire.receive(bytes) {
        Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}
