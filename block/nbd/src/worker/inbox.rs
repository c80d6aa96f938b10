//! Reading a client: options, then requests; small ones are answered at once, others become tasks.

use std::io;

use super::batch::Batch;
use super::task::Task;
use super::{INPUT, SMALL, Worker};
use crate::client::outbox::{Item, Sent};
use crate::client::read_job::ReadJob;
use crate::client::{Client, ConnectionError, Inbox, Phase, Session, Stash};
use crate::protocol::handshake::Next;
use crate::protocol::request::{Command, HEAD, Request};

/// How reading ended.
#[derive(Debug)]
pub(super) enum Step {
    /// The client is to send more, or to take what it got.
    Wait,
    /// There is no memory now.
    Park,
    /// The client leaves.
    End,
    /// This is to be done next; the flag tells whether a whole request lies behind it.
    Task(Box<Task>, bool),
}

/// What came of the bytes that are here.
enum Taken {
    /// All that can be done is; at least so many bytes must be here before more can.
    Need(usize),
    /// Reading is over.
    Over(Step),
}

impl Worker {
    /// Reads and answers until nothing is there or something stands in the way.
    pub(super) fn read(&mut self, client: &Client, inbox: &mut Inbox) -> Result<Step, ConnectionError> {
        let stashed = inbox.stash.bytes();
        let mut filled = stashed.len();
        self.input[..filled].copy_from_slice(stashed);
        inbox.stash = Stash::Bytes(Vec::new());
        let mut drained = false;
        loop {
            let mut at = 0;
            let taken = self.take(client, inbox, &mut at, filled)?;
            self.input.copy_within(at..filled, 0);
            filled -= at;
            let need = match taken {
                Taken::Over(step) => return Ok(self.leave(client, inbox, filled, step)),
                Taken::Need(need) => need,
            };
            if drained {
                return Ok(self.leave(client, inbox, filled, Step::Wait));
            }
            let tight = self.shared.parked.is_waited_in() || inbox.streams;
            let limit = if tight { need.max(filled + 1) } else { INPUT };
            match client.wire.receive(&mut self.input[filled..limit]) {
                Ok(0) if filled > 0 || !matches!(inbox.phase, Phase::Requests) => {
                    return self.cut_off(inbox);
                }
                Ok(0) => return Ok(Step::End),
                Ok(count) => {
                    drained = count < limit - filled && !client.wire.is_encrypted();
                    filled += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(self.leave(client, inbox, filled, Step::Wait));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    // A client that goes during the negotiation has seen enough; one that goes amid a request was cut off.
    fn cut_off(&self, inbox: &Inbox) -> Result<Step, ConnectionError> {
        match inbox.phase {
            Phase::Options(..) => Ok(Step::End),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    // It does not take the few bytes it waits for.
    fn cut_off_now(&self) -> Result<Option<Step>, ConnectionError> {
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    }

    // Keeps what was not taken. Only little is kept for nothing: the rest counts against the budget, and where that is
    // used up no worker reads further than to the next head.
    fn leave(&mut self, client: &Client, inbox: &mut Inbox, filled: usize, step: Step) -> Step {
        // Encryption may hold requests that the socket does not show.
        let encrypted = client.wire.is_encrypted();
        let bytes = &self.input[..filled];
        let lent = (filled > HEAD).then(|| self.shared.stash.try_acquire(filled).ok());
        inbox.stash = match lent.flatten() {
            Some(mut buffer) => {
                buffer.copy_from_slice(bytes);
                Stash::Lent(buffer, filled)
            }
            None => Stash::Bytes(bytes.to_vec()),
        };
        match step {
            Step::Task(task, _) => Step::Task(task, filled >= HEAD || encrypted),
            other => other,
        }
    }

    fn take(
        &mut self,
        client: &Client,
        inbox: &mut Inbox,
        at: &mut usize,
        filled: usize,
    ) -> Result<Taken, ConnectionError> {
        loop {
            let over = match (&mut inbox.phase, client.session.get()) {
                (Phase::Options(..), _) => self.options(client, inbox, at, filled)?,
                (Phase::Requests, Some(session)) => {
                    return self.requests(client, session, inbox, at, filled);
                }
                (Phase::Payload(payload), Some(session)) => {
                    self.payload(client, session, payload, at, filled)?
                }
                (_, None) => Some(Step::End),
            };
            match over {
                Some(step) => {
                    if matches!(step, Step::Task(..)) {
                        inbox.phase = Phase::Requests;
                    }
                    return Ok(Taken::Over(step));
                }
                None if matches!(inbox.phase, Phase::Options(..)) => return Ok(Taken::Need(SMALL)),
                None => inbox.phase = Phase::Requests,
            }
        }
    }

    fn options(
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
            let mut words = Vec::new();
            let next = handshake.step(input, &mut words, &self.shared.exports);
            if !words.is_empty() {
                client.outbox.push(Item::Words {
                    bytes: words,
                    sent: 0,
                });
            }
            let sent = self.pump(client)?;
            match next? {
                Next::More => return Ok(None),
                // Who does not take answers gets no more of them.
                Next::Answered if matches!(sent, Sent::Blocked) => return Ok(Some(Step::Wait)),
                Next::Answered => {}
                Next::StartTls if !matches!(sent, Sent::All) => return self.cut_off_now(),
                Next::StartTls => {
                    if let Some(encryption) = &self.shared.encryption {
                        client.wire.encrypt(encryption.begin()?);
                    }
                }
                Next::Leave => return Ok(Some(Step::End)),
                Next::Export(chosen) => {
                    let Some(session) = self.shared.exports.session(&chosen) else {
                        return Ok(Some(Step::End));
                    };
                    // Chosen once a connection.
                    let _ = client.session.set(session);
                    // What follows are requests, and came with the last bytes.
                    *at = filled - input.len();
                    inbox.phase = Phase::Requests;
                    return Ok(None);
                }
            }
        }
    }

    fn requests(
        &mut self,
        client: &Client,
        session: &Session,
        inbox: &mut Inbox,
        at: &mut usize,
        filled: usize,
    ) -> Result<Taken, ConnectionError> {
        let mut batch = Batch::default();
        let taken = loop {
            let Some(head) = self.input[*at..filled].first_chunk::<HEAD>() else {
                break Taken::Need(HEAD);
            };
            let request = Request::parse(head).ok_or(ConnectionError::NoRequest)?;
            let behind = filled - *at - HEAD;
            inbox.streams = false;
            match class_of(session, &request) {
                Class::Leave => break Taken::Over(Step::End),
                Class::Task => {
                    *at += HEAD;
                    self.count(&request);
                    break Taken::Over(Step::Task(Box::new(task(session, &request)), false));
                }
                Class::Stream => {
                    *at += HEAD;
                    inbox.streams = true;
                    match self.stream(client, session, inbox, request, at, filled)? {
                        Some(step) => break Taken::Over(step),
                        None => continue,
                    }
                }
                Class::Small(data) if behind < data => break Taken::Need(HEAD + data),
                Class::Small(data) => {
                    let more = behind >= data + HEAD;
                    let need = Batch::need(&request);
                    if let Some(step) = self.make_room(client, session, &mut batch, need, more)? {
                        break Taken::Over(step);
                    }
                    self.answer(session, &request, *at + HEAD, &mut batch);
                    *at += HEAD + data;
                }
            }
        };
        let blocked = self.send(client, &mut batch)?;
        Ok(match taken {
            Taken::Need(_) if blocked => Taken::Over(Step::Wait),
            other => other,
        })
    }

    /// Sees to it that `batch` has room for an answer of `need` bytes, and where there are `more` requests, for theirs:
    /// what is full is sent. Returns what comes before the answer where there is no room.
    fn make_room(
        &mut self,
        client: &Client,
        session: &Session,
        batch: &mut Batch,
        need: usize,
        more: bool,
    ) -> Result<Option<Step>, ConnectionError> {
        if batch.has_room(need) {
            return Ok(None);
        }
        if self.send(client, batch)? {
            return Ok(Some(Step::Wait));
        }
        let caches = &mut self.caches;
        let lent = batch.open(need, more, &mut |len| caches.lend(Some(session), len));
        Ok(lent.is_err().then_some(Step::Park))
    }

    // True when the client does not take more.
    fn send(&mut self, client: &Client, batch: &mut Batch) -> Result<bool, ConnectionError> {
        let Some(item) = batch.take() else {
            return Ok(false);
        };
        client.outbox.push(item);
        Ok(matches!(self.pump(client)?, Sent::Blocked | Sent::NoMemory))
    }

    fn answer(&mut self, session: &Session, request: &Request, data: usize, batch: &mut Batch) {
        self.count(request);
        let export = &session.export;
        if let Some(refusal) = request.refusal(export.size(), export.is_read_only()) {
            return batch.outcome(session, request, Err(refusal));
        }
        match request.command {
            Command::Read => batch.read(session, request),
            Command::Write => {
                let data = &self.input[data..data + request.length as usize];
                batch.outcome(session, request, export.write(data, request.offset, false));
            }
            Command::BlockStatus if session.allocation => batch.status(session, request),
            _ => batch.outcome(session, request, Err(crate::protocol::request::Refusal::Invalid)),
        }
    }
}

enum Class {
    /// Answered where it is found; so many bytes of data follow it.
    Small(usize),
    /// Takes long.
    Task,
    /// Data follow that are taken as they come.
    Stream,
    Leave,
}

fn class_of(session: &Session, request: &Request) -> Class {
    let export = &session.export;
    let refused = request.refusal(export.size(), export.is_read_only()).is_some();
    let length = request.length as usize;
    match request.command {
        Command::Disconnect => Class::Leave,
        Command::Write if length > SMALL || request.fua => Class::Stream,
        Command::Write => Class::Small(length),
        _ if refused => Class::Small(0),
        Command::Read if length > SMALL => Class::Task,
        Command::Flush | Command::Trim | Command::WriteZeroes | Command::Cache => Class::Task,
        Command::Read | Command::BlockStatus | Command::Unknown(_) => Class::Small(0),
    }
}

fn task(session: &Session, request: &Request) -> Task {
    match request.command {
        Command::Read => Task::Read(Box::new(ReadJob::new(request, session.style))),
        _ => Task::Other(*request),
    }
}
