//! One client: what came of it and is not done, what it is to get, and where in the protocol it is.
//!
//! Any worker may serve any client. The inbox has one reader at a time; a request that takes long is taken out of it
//! and done while another worker reads the next. A client that waits, or thinks, holds no buffer.

pub(crate) mod outbox;
pub(crate) mod read_job;

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use thermo_kernel::clock;
use thermo_pool::{Buffer, Pool};
use thermo_units::Nanos;

use crate::export::Export;
use crate::protocol::handshake::{Handshake, HandshakeError};
use crate::protocol::reply::Style;
use crate::protocol::request::{Refusal, Request};
use crate::wire::Wire;
use outbox::{Broken, Outbox};

/// Why a connection ended otherwise than by the client's leave.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error("the connection broke: {0}")]
    Socket(#[from] io::Error),
    #[error("the client sent no request where one should begin")]
    NoRequest,
    #[error("a read failed ({0:?}) after a part of it had been sent, so the client could not be told")]
    HalfRead(Refusal),
}

impl From<Broken> for ConnectionError {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Socket(error) => Self::Socket(error),
            Broken::HalfRead(refusal) => Self::HalfRead(refusal),
        }
    }
}

/// A write whose data comes.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) request: Request,
    /// It is not done, only taken.
    pub(crate) refusal: Option<Refusal>,
    /// Bytes that are written or were dropped.
    pub(crate) done: u64,
    pub(crate) buffer: Option<Buffer>,
    /// Bytes of the buffer that came.
    pub(crate) filled: usize,
}

impl Payload {
    /// Writes what came, so that the buffer is free for others.
    pub(crate) fn spill(&mut self, export: &Export) {
        if let Some(buffer) = self.buffer.take().filter(|_| self.refusal.is_none()) {
            let at = self.request.offset + self.done;
            self.refusal = export.write(&buffer[..self.filled], at, self.request.fua).err();
        }
        self.done += self.filled as u64;
        self.filled = 0;
    }

    /// Bytes that are still to come.
    pub(crate) fn left(&self) -> u64 {
        u64::from(self.request.length) - self.done - self.filled as u64
    }
}

/// Where in the protocol it is.
#[derive(Debug)]
pub(crate) enum Phase {
    Options(Box<Handshake>, Vec<u8>),
    Requests,
    Payload(Payload),
}

/// Bytes that came and are not understood yet.
#[derive(Debug)]
pub(crate) enum Stash {
    Bytes(Vec<u8>),
    /// More of them, paid for from the budget.
    Lent(Buffer, usize),
}

impl Stash {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Lent(buffer, len) => &buffer[..*len],
        }
    }
}

/// What comes from a client.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) phase: Phase,
    pub(crate) stash: Stash,
    /// The last request was a large write: read heads only, so that data go where they belong at once.
    pub(crate) streams: bool,
}

impl Inbox {
    /// True when the client stopped in the middle of something.
    pub(crate) fn is_midway(&self) -> bool {
        !matches!(self.phase, Phase::Requests) || !self.stash.bytes().is_empty()
    }
}

/// What it chose.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) export: Arc<Export>,
    /// Its place in the list of exports.
    pub(crate) index: usize,
    pub(crate) pool: Pool,
    pub(crate) style: Style,
    pub(crate) allocation: bool,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: u64,
    pub(crate) wire: Wire,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) session: OnceLock<Session>,
    /// In the queue for memory.
    pub(crate) parked: AtomicBool,
    /// Nothing more is taken from it.
    pub(crate) ended: AtomicBool,
    /// The stash holds a whole request.
    pub(crate) more: AtomicBool,
    /// It stopped in the middle of something.
    pub(crate) midway: AtomicBool,
    /// Workers that are at it.
    pub(crate) running: AtomicU32,
    /// Since when we wait for it to go on; 0: we do not.
    waits_since: AtomicU64,
}

impl Client {
    pub(crate) fn new(number: u64, wire: Wire, handshake: Handshake) -> Self {
        Self {
            number,
            wire,
            outbox: Outbox::default(),
            inbox: Mutex::new(Inbox {
                phase: Phase::Options(Box::new(handshake), Vec::new()),
                stash: Stash::Bytes(Vec::new()),
                streams: false,
            }),
            session: OnceLock::new(),
            parked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            more: AtomicBool::new(false),
            midway: AtomicBool::new(true),
            running: AtomicU32::new(0),
            waits_since: AtomicU64::new(clock::monotonic().0),
        }
    }

    pub(crate) fn waits_for_it(&self, waits: bool) {
        let since = if waits { clock::monotonic().0 } else { 0 };
        self.waits_since.store(since, Ordering::Relaxed);
    }

    /// For how long it has been waited for.
    pub(crate) fn waited(&self, now: Nanos) -> Nanos {
        match self.waits_since.load(Ordering::Relaxed) {
            0 => Nanos::ZERO,
            since => now.saturating_sub(Nanos(since)),
        }
    }

    /// Gives back what it holds and can have again.
    pub(crate) fn unload(&self) {
        self.outbox.unload();
        if let (Ok(mut inbox), Some(session)) = (self.inbox.try_lock(), self.session.get())
            && let Phase::Payload(payload) = &mut inbox.phase
        {
            payload.spill(&session.export);
        }
    }

    pub(crate) fn hang_up(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.outbox.clear();
        self.wire.shutdown(Shutdown::Both);
    }

    /// True when nothing is left to be done for it.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
            && self
                .outbox
                .with(|backlog| !backlog.waits && !backlog.busy && !backlog.blocked)
    }
}
