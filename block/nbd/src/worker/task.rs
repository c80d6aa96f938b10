//! Long requests: performed after the client was armed again, so that another worker can read further
//! requests.

use std::sync::atomic::Ordering;

use thermo_pool::Buffer;

use super::Worker;
use crate::client::outbox::{Item, SendError};
use crate::client::read_job::{LoadError, ReadJob};
use crate::client::{Client, ConnectionError, Session};
use crate::protocol::reply::ReplyHeader;
use crate::protocol::request::{Command, NbdError, Request};

/// A long request.
#[derive(Debug)]
pub(super) enum Task {
    /// A large read.
    Read(Box<ReadJob>),
    /// A write whose data is complete.
    Write(Request, Buffer),
    /// A request without data.
    Other(Request),
}

impl Worker {
    // False if no memory is free for it; the job then waits at the front of the outbox.
    pub(super) fn perform(&mut self, client: &Client, task: Task) -> Result<bool, ConnectionError> {
        let Some(session) = client.session.get() else {
            return Ok(true);
        };
        match task {
            Task::Read(mut job) => {
                let cache = self.caches.of(session);
                let load_result = job.load(&session.export, &mut |len| cache.try_acquire(len));
                client.outbox.push(Item::Read(job));
                match load_result {
                    Ok(()) => {}
                    Err(LoadError::NoMemory) => return Ok(false),
                    Err(LoadError::PartialRead(error)) => return Err(SendError::PartialRead(error).into()),
                }
            }
            Task::Write(request, buffer) => {
                let outcome = session.export.write(&buffer, request.offset, request.fua);
                drop(buffer);
                acknowledge(client, session, &request, outcome);
            }
            Task::Other(request) => {
                acknowledge(client, session, &request, perform_without_data(session, &request));
            }
        }
        Ok(true)
    }

    pub(super) fn count(&self, request: &Request) {
        let counters = &self.shared.counters;
        counters.requests.fetch_add(1, Ordering::Relaxed);
        let bytes = match request.command {
            Command::Read => &counters.read,
            Command::Write => &counters.written,
            _ => return,
        };
        bytes.fetch_add(u64::from(request.length), Ordering::Relaxed);
    }
}

pub(super) fn acknowledge(
    client: &Client,
    session: &Session,
    request: &Request,
    outcome: Result<(), NbdError>,
) {
    let header = ReplyHeader::outcome(session.style, request.cookie, outcome);
    let bytes = header.bytes().to_vec();
    client.outbox.push(Item::Bytes { bytes, sent: 0 });
}

// Performs a request without data.
fn perform_without_data(session: &Session, request: &Request) -> Result<(), NbdError> {
    let (export, offset, length) = (&session.export, request.offset, u64::from(request.length));
    match request.command {
        Command::Flush => return export.flush(),
        Command::Trim => export.trim(offset, length)?,
        Command::WriteZeroes => export.zero(offset, length, request.no_hole, request.fast_zero)?,
        Command::Cache => export.cache(offset, length),
        _ => return Err(NbdError::Invalid),
    }
    if request.fua && request.modifies_export() {
        export.flush()?;
    }
    Ok(())
}
