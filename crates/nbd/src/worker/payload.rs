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
            let left = usize::try_from(payload.left()).unwrap_or(usize::MAX);
            if payload.refusal.is_none() && payload.buffer.is_none() {
                let caches = &mut self.caches;
                let mut lend = |len| caches.lend(Some(session), len);
                let Ok(buffer) = lend(left.min(CHUNK)).or_else(|_| lend(left.min(SMALL))) else {
                    return Ok(Some(Step::Park));
                };
                payload.buffer = Some(buffer);
            }
            let count = match &mut payload.buffer {
                Some(buffer) if *at < filled => {
                    let place = &mut buffer[payload.filled..];
                    let count = place.len().min(filled - *at);
                    place[..count].copy_from_slice(&self.input[*at..*at + count]);
                    *at += count;
                    count
                }
                None if *at < filled => {
                    let count = left.min(filled - *at);
                    *at += count;
                    count
                }
                Some(buffer) => match receive(client, &mut buffer[payload.filled..])? {
                    Some(count) => count,
                    None => return Ok(Some(Step::Wait)),
                },
                None => {
                    let room = left.min(INPUT);
                    match receive(client, &mut self.input[..room])? {
                        Some(count) => count,
                        None => return Ok(Some(Step::Wait)),
                    }
                }
            };
            payload.filled += count;
            let is_full = payload
                .buffer
                .as_ref()
                .is_none_or(|buffer| payload.filled >= buffer.len());
            if is_full
                && payload.done == 0
                && payload.left() == 0
                && let Some(buffer) = payload.buffer.take()
            {
                self.count(&payload.request);
                let task = Task::Write(payload.request, buffer);
                return Ok(Some(Step::Task(Box::new(task), false)));
            }
            if is_full {
                payload.spill(&session.export);
            }
        }
        payload.spill(&session.export);
        self.count(&payload.request);
        acknowledge(
            client,
            session,
            &payload.request,
            payload.refusal.map_or(Ok(()), Err),
        );
        self.pump(client)?;
        Ok(None)
    }
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
