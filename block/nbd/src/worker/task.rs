//! Requests that take long: done after the client was armed again, so that another worker may read on.

use std::sync::atomic::Ordering;

use thermo_pool::Buffer;

use super::Worker;
use crate::client::outbox::{Broken, Item};
use crate::client::read_job::{NotLoaded, ReadJob};
use crate::client::{Client, ConnectionError, Session};
use crate::protocol::reply::Head;
use crate::protocol::request::{Command, Refusal, Request};

/// One of them.
#[derive(Debug)]
pub(super) enum Task {
    /// A large read.
    Read(Box<ReadJob>),
    /// A write whose data are all here.
    Write(Request, Buffer),
    /// No data either way.
    Other(Request),
}

impl Worker {
    // False when there is no memory for it; it is then first in line.
    pub(super) fn perform(&mut self, client: &Client, task: Task) -> Result<bool, ConnectionError> {
        let Some(session) = client.session.get() else {
            return Ok(true);
        };
        match task {
            Task::Read(mut job) => {
                let cache = self.caches.of(session);
                let loaded = job.load(&session.export, &mut |len| cache.try_acquire(len));
                client.outbox.push(Item::Read(job));
                match loaded {
                    Ok(()) => {}
                    Err(NotLoaded::NoMemory) => return Ok(false),
                    Err(NotLoaded::HalfRead(refusal)) => return Err(Broken::HalfRead(refusal).into()),
                }
            }
            Task::Write(request, buffer) => {
                let outcome = session.export.write(&buffer, request.offset, request.fua);
                drop(buffer);
                acknowledge(client, session, &request, outcome);
            }
            Task::Other(request) => {
                acknowledge(client, session, &request, done(session, &request));
            }
        }
        Ok(true)
    }

    pub(super) fn count(&self, request: &Request) {
        let counts = &self.shared.counts;
        counts.requests.fetch_add(1, Ordering::Relaxed);
        let bytes = match request.command {
            Command::Read => &counts.read,
            Command::Write => &counts.written,
            _ => return,
        };
        bytes.fetch_add(u64::from(request.length), Ordering::Relaxed);
    }
}

pub(super) fn acknowledge(
    client: &Client,
    session: &Session,
    request: &Request,
    outcome: Result<(), Refusal>,
) {
    let head = Head::outcome(session.style, request.cookie, outcome);
    let bytes = head.bytes().to_vec();
    client.outbox.push(Item::Words { bytes, sent: 0 });
}

// A request without data.
fn done(session: &Session, request: &Request) -> Result<(), Refusal> {
    let (export, offset, length) = (&session.export, request.offset, u64::from(request.length));
    match request.command {
        Command::Flush => return export.flush(),
        Command::Trim => export.trim(offset, length)?,
        Command::WriteZeroes => export.zero(offset, length, request.no_hole, request.fast)?,
        Command::Cache => export.cache(offset, length),
        _ => return Err(Refusal::Invalid),
    }
    if request.fua && request.changes() {
        export.flush()?;
    }
    Ok(())
}
