//! Receiving the data of a large write, one chunk at a time, directly into the buffer that is written.

use std::io;

use super::inbox::Step;
use super::task::{Task, acknowledge};
use super::{INPUT_BUFFER, MAX_INLINE, Worker};
use crate::client::read_job::CHUNK_SIZE;
use crate::client::{Client, ConnectionError, Inbox, Payload, Phase, Session};
use crate::protocol::request::Request;

impl Worker {
    pub(super) fn handle_large_write(
        &mut self,
        client: &Client,
        session: &Session,
        inbox: &mut Inbox,
        request: Request,
        at: &mut usize,
        filled: usize,
    ) -> Result<Option<Step>, ConnectionError> {
        let error = request.validation_error(session.export.size(), session.export.is_read_only());
        let mut payload = Payload {
            request,
            error,
            done: 0,
            buffer: None,
            filled: 0,
        };
        let step = self.handle_payload(client, session, &mut payload, at, filled)?;
        if matches!(step, Some(Step::Wait | Step::WaitForMemory)) {
            inbox.phase = Phase::Payload(payload);
        }
        Ok(step)
    }

    // Receives the data of a write: first from the input buffer, then from the socket directly into the write
    // buffer. Returns `None` when the write is done and answered.
    pub(super) fn handle_payload(
        &mut self,
        client: &Client,
        session: &Session,
        payload: &mut Payload,
        at: &mut usize,
        filled: usize,
    ) -> Result<Option<Step>, ConnectionError> {
        while payload.remaining() > 0 {
            if payload.error.is_none() && payload.buffer.is_none() && !self.acquire_buffer(session, payload) {
                return Ok(Some(Step::WaitForMemory));
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
                && payload.remaining() == 0
                && let Some(buffer) = payload.buffer.take()
            {
                self.count(&payload.request);
                let task = Task::Write(payload.request, buffer);
                return Ok(Some(Step::Task(Box::new(task), false)));
            }
            payload.write_received(&session.export);
        }
        payload.write_received(&session.export);
        self.count(&payload.request);
        let outcome = payload.error.map_or(Ok(()), Err);
        acknowledge(client, session, &payload.request, outcome);
        self.send_queued(client)?;
        Ok(None)
    }

    // Acquires a buffer for all or part of the remaining data. False if no memory is free.
    fn acquire_buffer(&mut self, session: &Session, payload: &mut Payload) -> bool {
        let remaining = remaining_len(payload);
        let mut acquire = |len| self.caches.acquire(Some(session), len);
        let acquired = acquire(remaining.min(CHUNK_SIZE)).or_else(|_| acquire(remaining.min(MAX_INLINE)));
        payload.buffer = acquired.ok();
        payload.buffer.is_some()
    }

    // Receives the next bytes into the buffer, or discards them if there is none. Returns their number;
    // `None` if none are available.
    fn take_data(
        &mut self,
        client: &Client,
        payload: &mut Payload,
        at: &mut usize,
        filled: usize,
    ) -> Result<Option<usize>, ConnectionError> {
        let remaining = remaining_len(payload);
        let target = payload
            .buffer
            .as_mut()
            .map(|buffer| &mut buffer[payload.filled..]);
        if *at >= filled {
            return match target {
                Some(target) => receive(client, target),
                None => receive(client, &mut self.input[..remaining.min(INPUT_BUFFER)]),
            };
        }
        let available = &self.input[*at..filled];
        let room = target.as_ref().map_or(remaining, |target| target.len());
        let count = room.min(available.len());
        if let Some(target) = target {
            target[..count].copy_from_slice(&available[..count]);
        }
        *at += count;
        Ok(Some(count))
    }
}

fn remaining_len(payload: &Payload) -> usize {
    usize::try_from(payload.remaining()).unwrap_or(usize::MAX)
}

// `None` if no data is available.
fn receive(client: &Client, bytes: &mut [u8]) -> Result<Option<usize>, ConnectionError> {
    match client.wire.receive(bytes) {
        Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}
