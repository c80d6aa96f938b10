//! Reading a client: handshake options, then requests. Small requests are answered at once; others become
//! tasks.

use std::io;

use super::batch::Batch;
use super::task::Task;
use super::{INPUT_BUFFER, MAX_INLINE, Worker};
use crate::client::outbox::{Item, Sent};
use crate::client::read_job::ReadJob;
use crate::client::{Client, ConnectionError, Inbox, Phase, Session, Unparsed};
use crate::protocol::handshake::Next;
use crate::protocol::request::{Command, REQUEST_HEADER_LEN, Request};

/// The result of reading.
#[derive(Debug)]
pub(super) enum Step {
    /// Wait for the client to send more, or to receive replies.
    Wait,
    /// No memory is free.
    WaitForMemory,
    /// The client disconnects.
    End,
    /// Perform this task next. The flag says whether another whole request is buffered.
    Task(Box<Task>, bool),
}

/// The result of parsing the buffered bytes.
enum Parsed {
    /// Everything complete is processed. This many bytes must be buffered before more can be processed.
    Need(usize),
    /// Stop reading.
    Over(Step),
}

impl Worker {
    /// Reads and answers requests until no data is left or something blocks.
    pub(super) fn read(&mut self, client: &Client, inbox: &mut Inbox) -> Result<Step, ConnectionError> {
        let unparsed = inbox.unparsed.bytes();
        let mut filled = unparsed.len();
        self.input[..filled].copy_from_slice(unparsed);
        inbox.unparsed = Unparsed::Bytes(Vec::new());
        let mut drained = false;
        loop {
            let mut at = 0;
            let parsed = self.parse(client, inbox, &mut at, filled)?;
            self.input.copy_within(at..filled, 0);
            filled -= at;
            let need = match parsed {
                Parsed::Over(step) => return Ok(self.save_unparsed(client, inbox, filled, step)),
                Parsed::Need(need) => need,
            };
            if drained {
                return Ok(self.save_unparsed(client, inbox, filled, Step::Wait));
            }
            let read_minimum = self.shared.memory_queue.has_waiters() || inbox.streaming;
            let limit = if read_minimum {
                need.max(filled + 1)
            } else {
                INPUT_BUFFER
            };
            match client.wire.receive(&mut self.input[filled..limit]) {
                Ok(0) if filled > 0 || !matches!(inbox.phase, Phase::Requests) => {
                    return self.on_end_of_stream(inbox);
                }
                Ok(0) => return Ok(Step::End),
                Ok(count) => {
                    drained = count < limit - filled && !client.wire.is_encrypted();
                    filled += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(self.save_unparsed(client, inbox, filled, Step::Wait));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    // Disconnecting during the handshake is normal; in the middle of a request it is an error.
    fn on_end_of_stream(&self, inbox: &Inbox) -> Result<Step, ConnectionError> {
        match inbox.phase {
            Phase::Options(..) => Ok(Step::End),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    // The client does not receive the short reply to STARTTLS.
    fn starttls_reply_blocked(&self) -> Result<Option<Step>, ConnectionError> {
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    }

    // Keeps unparsed bytes. A partial header is kept outside of the budget; more goes into a pool buffer.
    // When the budget is used up, workers read no further than the next header.
    fn save_unparsed(&mut self, client: &Client, inbox: &mut Inbox, filled: usize, step: Step) -> Step {
        // TLS may hold decrypted requests that the socket does not show as readable.
        let encrypted = client.wire.is_encrypted();
        let bytes = &self.input[..filled];
        let acquired =
            (filled > REQUEST_HEADER_LEN).then(|| self.shared.unparsed_pool.try_acquire(filled).ok());
        inbox.unparsed = match acquired.flatten() {
            Some(mut buffer) => {
                buffer.copy_from_slice(bytes);
                Unparsed::Pooled(buffer, filled)
            }
            None => Unparsed::Bytes(bytes.to_vec()),
        };
        match step {
            Step::Task(task, _) => Step::Task(task, filled >= REQUEST_HEADER_LEN || encrypted),
            other => other,
        }
    }

    fn parse(
        &mut self,
        client: &Client,
        inbox: &mut Inbox,
        at: &mut usize,
        filled: usize,
    ) -> Result<Parsed, ConnectionError> {
        loop {
            let next_step = match (&mut inbox.phase, client.session.get()) {
                (Phase::Options(..), _) => self.handle_options(client, inbox, at, filled)?,
                (Phase::Requests, Some(session)) => {
                    return self.handle_requests(client, session, inbox, at, filled);
                }
                (Phase::Payload(payload), Some(session)) => {
                    self.handle_payload(client, session, payload, at, filled)?
                }
                (_, None) => Some(Step::End),
            };
            match next_step {
                Some(step) => {
                    if matches!(step, Step::Task(..)) {
                        inbox.phase = Phase::Requests;
                    }
                    return Ok(Parsed::Over(step));
                }
                None if matches!(inbox.phase, Phase::Options(..)) => return Ok(Parsed::Need(MAX_INLINE)),
                None => inbox.phase = Phase::Requests,
            }
        }
    }

    fn handle_options(
        &mut self,
        client: &Client,
        inbox: &mut Inbox,
        at: &mut usize,
        filled: usize,
    ) -> Result<Option<Step>, ConnectionError> {
        let Phase::Options(handshake, input) = &mut inbox.phase else {
            return Ok(None);
        };
        input.extend(&self.input[*at..filled]);
        *at = filled;
        loop {
            let mut reply = Vec::new();
            let next = handshake.step(input, &mut reply, &self.shared.exports);
            if !reply.is_empty() {
                client.outbox.push(Item::Bytes {
                    bytes: reply,
                    sent: 0,
                });
            }
            let sent = self.send_queued(client)?;
            match next? {
                Next::NeedMore => return Ok(None),
                // A client that does not receive replies gets no more of them.
                Next::Answered if matches!(sent, Sent::Blocked) => return Ok(Some(Step::Wait)),
                Next::Answered => {}
                Next::StartTls if !matches!(sent, Sent::All) => return self.starttls_reply_blocked(),
                Next::StartTls => {
                    if let Some(encryption) = &self.shared.encryption {
                        client.wire.start_tls(encryption.connection()?);
                    }
                }
                Next::Disconnect => return Ok(Some(Step::End)),
                Next::Export(chosen) => {
                    let Some(session) = self.shared.exports.session(&chosen) else {
                        return Ok(Some(Step::End));
                    };
                    // An export is chosen once per connection.
                    let _ = client.session.set(session);
                    // The rest of the buffer holds requests.
                    *at = filled - input.len();
                    inbox.phase = Phase::Requests;
                    return Ok(None);
                }
            }
        }
    }

    fn handle_requests(
        &mut self,
        client: &Client,
        session: &Session,
        inbox: &mut Inbox,
        at: &mut usize,
        filled: usize,
    ) -> Result<Parsed, ConnectionError> {
        let mut batch = Batch::default();
        let parsed = loop {
            let Some(header) = self.input[*at..filled].first_chunk::<REQUEST_HEADER_LEN>() else {
                break Parsed::Need(REQUEST_HEADER_LEN);
            };
            let request = Request::parse(header).ok_or(ConnectionError::BadRequest)?;
            let received_data = filled - *at - REQUEST_HEADER_LEN;
            inbox.streaming = false;
            match classify(session, &request) {
                RequestClass::Disconnect => break Parsed::Over(Step::End),
                RequestClass::Task => {
                    *at += REQUEST_HEADER_LEN;
                    self.count(&request);
                    break Parsed::Over(Step::Task(Box::new(task(session, &request)), false));
                }
                RequestClass::Stream => {
                    *at += REQUEST_HEADER_LEN;
                    inbox.streaming = true;
                    match self.handle_large_write(client, session, inbox, request, at, filled)? {
                        Some(step) => break Parsed::Over(step),
                        None => continue,
                    }
                }
                RequestClass::Small(data) if received_data < data => {
                    break Parsed::Need(REQUEST_HEADER_LEN + data);
                }
                RequestClass::Small(data) => {
                    let more_requests = received_data >= data + REQUEST_HEADER_LEN;
                    let need = Batch::reply_size(&request);
                    if let Some(step) = self.make_room(client, session, &mut batch, need, more_requests)? {
                        break Parsed::Over(step);
                    }
                    self.answer_at_once(session, &request, *at + REQUEST_HEADER_LEN, &mut batch);
                    *at += REQUEST_HEADER_LEN + data;
                }
            }
        };
        let blocked = self.send(client, &mut batch)?;
        Ok(match parsed {
            Parsed::Need(_) if blocked => Parsed::Over(Step::Wait),
            other => other,
        })
    }

    /// Ensures that `batch` has room for a reply of `need` bytes and, if more requests follow, for theirs.
    /// A full batch is sent first. Returns the step to take instead of the reply if there is no room.
    fn make_room(
        &mut self,
        client: &Client,
        session: &Session,
        batch: &mut Batch,
        need: usize,
        more_requests: bool,
    ) -> Result<Option<Step>, ConnectionError> {
        if batch.has_room(need) {
            return Ok(None);
        }
        if self.send(client, batch)? {
            return Ok(Some(Step::Wait));
        }
        let caches = &mut self.caches;
        let acquired = batch.open(need, more_requests, &mut |len| caches.acquire(Some(session), len));
        Ok(acquired.is_err().then_some(Step::WaitForMemory))
    }

    // Returns true if the client does not receive more, or no memory is free.
    fn send(&mut self, client: &Client, batch: &mut Batch) -> Result<bool, ConnectionError> {
        let Some(item) = batch.take() else {
            return Ok(false);
        };
        client.outbox.push(item);
        Ok(matches!(
            self.send_queued(client)?,
            Sent::Blocked | Sent::NoMemory
        ))
    }

    fn answer_at_once(&mut self, session: &Session, request: &Request, data: usize, batch: &mut Batch) {
        self.count(request);
        let export = &session.export;
        if let Some(error) = request.validation_error(export.size(), export.is_read_only()) {
            return batch.outcome(session, request, Err(error));
        }
        match request.command {
            Command::Read => batch.read(session, request),
            Command::Write => {
                let data = &self.input[data..data + request.length as usize];
                batch.outcome(session, request, export.write(data, request.offset, false));
            }
            Command::BlockStatus if session.allocation => batch.status(session, request),
            _ => batch.outcome(session, request, Err(crate::protocol::request::NbdError::Invalid)),
        }
    }
}

enum RequestClass {
    /// Answered at once. This many bytes of data follow the header.
    Small(usize),
    /// Takes long; becomes a task.
    Task,
    /// A write whose data is received into a buffer of its own.
    Stream,
    Disconnect,
}

fn classify(session: &Session, request: &Request) -> RequestClass {
    let export = &session.export;
    let refused = request
        .validation_error(export.size(), export.is_read_only())
        .is_some();
    let length = request.length as usize;
    match request.command {
        Command::Disconnect => RequestClass::Disconnect,
        Command::Write if length > MAX_INLINE || request.fua => RequestClass::Stream,
        Command::Write => RequestClass::Small(length),
        _ if refused => RequestClass::Small(0),
        Command::Read if length > MAX_INLINE => RequestClass::Task,
        Command::Flush | Command::Trim | Command::WriteZeroes | Command::Cache => RequestClass::Task,
        Command::Read | Command::BlockStatus | Command::Unknown(_) => RequestClass::Small(0),
    }
}

fn task(session: &Session, request: &Request) -> Task {
    match request.command {
        Command::Read => Task::Read(Box::new(ReadJob::new(request, session.style))),
        _ => Task::Other(*request),
    }
}
