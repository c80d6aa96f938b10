//! One client: received data that is not processed yet, queued replies, and the protocol state.
//!
//! Any worker may serve any client. The inbox has one reader at a time. A long request is taken out of the
//! inbox and processed while another worker reads the next. An idle or waiting client holds no buffer.

pub(crate) mod outbox;
pub(crate) mod read_job;

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use thermo_kernel::clock;
use thermo_pool::{Buffer, Pool};
use thermo_units::Nanos;

use crate::export::Export;
use crate::lock::locked;
use crate::protocol::handshake::{Handshake, HandshakeError};
use crate::protocol::reply::ReplyStyle;
use crate::protocol::request::{NbdError, Request};
use crate::wire::{Peer, Wire};
use outbox::{Outbox, SendError};

/// Fewer bytes than this restart no time limit. A client that sends or receives one byte now and then makes
/// no progress.
const MIN_PROGRESS: u64 = 16 << 10;

/// A connection ended with an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error("connection failed: {0}")]
    Socket(#[from] io::Error),
    #[error("the client sent invalid data instead of a request")]
    BadRequest,
    #[error(
        "a read failed ({0:?}) after part of its reply was sent, so the error could not be reported to the client"
    )]
    PartialRead(NbdError),
}

impl From<SendError> for ConnectionError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Socket(error) => Self::Socket(error),
            SendError::PartialRead(error) => Self::PartialRead(error),
        }
    }
}

/// A write whose data is being received.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) request: Request,
    /// If set, the write fails with this error; its data is received and dropped.
    pub(crate) error: Option<NbdError>,
    /// Bytes written or dropped.
    pub(crate) done: u64,
    pub(crate) buffer: Option<Buffer>,
    /// Bytes received into the buffer.
    pub(crate) filled: usize,
}

impl Payload {
    /// Writes the received bytes to storage and frees the buffer.
    pub(crate) fn write_received(&mut self, export: &Export) {
        if let Some(buffer) = self.buffer.take().filter(|_| self.error.is_none()) {
            let at = self.request.offset + self.done;
            self.error = export.write(&buffer[..self.filled], at, self.request.fua).err();
        }
        self.done += self.filled as u64;
        self.filled = 0;
    }

    /// Bytes still to be received.
    pub(crate) fn remaining(&self) -> u64 {
        u64::from(self.request.length) - self.done - self.filled as u64
    }
}

/// The protocol phase of a connection.
#[derive(Debug)]
pub(crate) enum Phase {
    Options(Box<Handshake>, Vec<u8>),
    Requests,
    Payload(Payload),
}

/// Received bytes that are not parsed yet.
#[derive(Debug)]
pub(crate) enum Unparsed {
    Bytes(Vec<u8>),
    /// Larger data, in a pool buffer that counts against the budget, and its length.
    Pooled(Buffer, usize),
}

impl Unparsed {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Pooled(buffer, len) => &buffer[..*len],
        }
    }
}

/// The receiving side of a client.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) phase: Phase,
    pub(crate) unparsed: Unparsed,
    /// The last request was a large write. Only request headers are read ahead, so that data is received
    /// directly into its buffer.
    pub(crate) streaming: bool,
}

impl Inbox {
    /// Whether a handshake or a request is incomplete.
    pub(crate) fn is_incomplete(&self) -> bool {
        !matches!(self.phase, Phase::Requests) || !self.unparsed.bytes().is_empty()
    }
}

/// The export and options chosen by a client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) export: Arc<Export>,
    /// Index in the list of exports.
    pub(crate) index: usize,
    pub(crate) pool: Pool,
    pub(crate) style: ReplyStyle,
    pub(crate) allocation: bool,
}

/// Since when the server waits for a client.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    since: Nanos,
    /// Bytes transferred before.
    transferred: u64,
}

/// A connected client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: u64,
    pub(crate) peer: Peer,
    pub(crate) wire: Wire,
    connected_at: Nanos,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) session: OnceLock<Session>,
    /// The client is in the queue for memory.
    pub(crate) waiting_for_memory: AtomicBool,
    /// No further requests are read.
    pub(crate) ended: AtomicBool,
    /// The unparsed data holds at least one whole request.
    pub(crate) has_buffered_request: AtomicBool,
    /// A handshake or request is incomplete.
    pub(crate) incomplete: AtomicBool,
    /// Workers that currently serve the client.
    pub(crate) active_workers: AtomicU32,
    waiting: Mutex<Option<Waiting>>,
}

impl Client {
    pub(crate) fn new(number: u64, peer: Peer, wire: Wire, handshake: Handshake) -> Self {
        let now = clock::monotonic();
        Self {
            number,
            peer,
            wire,
            connected_at: now,
            outbox: Outbox::default(),
            inbox: Mutex::new(Inbox {
                phase: Phase::Options(Box::new(handshake), Vec::new()),
                unparsed: Unparsed::Bytes(Vec::new()),
                streaming: false,
            }),
            session: OnceLock::new(),
            waiting_for_memory: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            has_buffered_request: AtomicBool::new(false),
            incomplete: AtomicBool::new(true),
            active_workers: AtomicU32::new(0),
            waiting: Mutex::new(Some(Waiting {
                since: now,
                transferred: 0,
            })),
        }
    }

    /// Notes whether the server waits for the client. A wait that goes on keeps its start, unless the client
    /// made progress.
    pub(crate) fn set_waiting(&self, waits: bool) {
        let transferred = self.wire.transferred();
        let mut waiting = locked(&self.waiting);
        let continues = waiting.is_some_and(|waiting| transferred - waiting.transferred < MIN_PROGRESS);
        if !waits {
            *waiting = None;
        } else if !continues {
            let since = clock::monotonic();
            *waiting = Some(Waiting { since, transferred });
        }
    }

    /// How long the server has waited for the client. While a worker serves the client, the client waits.
    pub(crate) fn waited_for(&self, now: Nanos) -> Nanos {
        if self.active_workers.load(Ordering::SeqCst) > 0 {
            return Nanos::ZERO;
        }
        locked(&self.waiting).map_or(Nanos::ZERO, |waiting| now.saturating_sub(waiting.since))
    }

    /// How long the handshake has lasted. Zero after its end.
    pub(crate) fn handshake_time(&self, now: Nanos) -> Nanos {
        match self.session.get() {
            Some(_) => Nanos::ZERO,
            None => now.saturating_sub(self.connected_at),
        }
    }

    /// Frees buffers that can be filled again later.
    pub(crate) fn drop_buffers(&self) {
        self.outbox.drop_buffers();
        if let (Ok(mut inbox), Some(session)) = (self.inbox.try_lock(), self.session.get())
            && let Phase::Payload(payload) = &mut inbox.phase
        {
            payload.write_received(&session.export);
        }
    }

    pub(crate) fn disconnect(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.outbox.clear();
        self.wire.shutdown(Shutdown::Both);
    }

    /// Whether the client has ended and no reply is queued or being sent.
    pub(crate) fn is_finished(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
            && self
                .outbox
                .with(|backlog| !backlog.has_items && !backlog.is_sending && !backlog.blocked)
    }
}
