//! One client: negotiation, then requests until it leaves.
//!
//! Requests are done in order. Answers are held back while the next request has already come, so a client that sends
//! many small ones gets their answers in one write. A buffer is held only while bytes move between socket and
//! storage; a client that waits, or thinks, holds none.

use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write};
use std::sync::Arc;

use thermo_core::Nanos;
use thermo_pool::{Buffer, Cache, Pool};

use crate::export::Export;
use crate::handshake::{Directory, Facts, Handshake, HandshakeError, Next, greeting};
use crate::request::{Command, HEAD, Refusal, Request, reply};

/// Requests are done in pieces of at most this many bytes: the largest buffer a connection holds.
pub const CHUNK: usize = 256 << 10;

/// Heads of requests read at once, and small answers written at once.
const BATCH: usize = 16 << 10;

/// Why a connection ended otherwise than by the client's leave.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("the connection broke: {0}")]
    Socket(#[from] io::Error),
    #[error("the client sent no request where one should begin")]
    NoRequest,
    #[error("a read failed ({0:?}) after a part of it had been sent, so the client could not be told")]
    HalfRead(Refusal),
}

/// What is served: exports with their pools.
#[derive(Debug)]
pub(crate) struct Exports(pub(crate) Vec<(Arc<Export>, Pool)>);

impl Directory for Exports {
    fn find(&self, name: &str) -> Option<Facts> {
        self.get(name).map(|(export, _)| export.facts())
    }

    fn names(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(export, _)| export.name().to_owned())
            .collect()
    }
}

impl Exports {
    // The empty name is the default export: the first, unless one is named so.
    fn get(&self, name: &str) -> Option<&(Arc<Export>, Pool)> {
        let named = self.0.iter().find(|(export, _)| export.name() == name);
        named.or_else(|| self.0.first().filter(|_| name.is_empty()))
    }
}

/// Serves one client until it leaves.
pub(crate) fn serve<S: Read + Write>(
    input: S,
    output: S,
    exports: &Exports,
    stall: Nanos,
) -> Result<(), ConnectionError> {
    let mut reader = BufReader::with_capacity(BATCH, input);
    let mut writer = BufWriter::with_capacity(BATCH, output);
    let Some(name) = negotiate(&mut reader, &mut writer, exports)? else {
        return Ok(());
    };
    let Some((export, pool)) = exports.get(&name) else {
        return Ok(());
    };
    let cache = pool.cache();
    Connection {
        reader,
        writer,
        export,
        cache,
        stall,
    }
    .run()
}

fn negotiate(
    reader: &mut BufReader<impl Read>,
    writer: &mut impl Write,
    exports: &Exports,
) -> Result<Option<String>, ConnectionError> {
    writer.write_all(&greeting())?;
    let (mut handshake, mut input) = (Handshake::default(), Vec::new());
    loop {
        writer.flush()?;
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        // What follows the last option is the first request, so only so much is taken as is understood.
        let before = input.len();
        input.extend(bytes);
        let all = input.len();
        let mut answers = Vec::new();
        let next = handshake.step(&mut input, &mut answers, exports);
        // A client that is shut out is still told what was answered.
        writer.write_all(&answers)?;
        match next? {
            Next::More => reader.consume(all - before),
            Next::Export(name) => {
                reader.consume((all - before) - input.len());
                writer.flush()?;
                return Ok(Some(name));
            }
            Next::Leave => {
                writer.flush()?;
                return Ok(None);
            }
        }
    }
}

struct Connection<'a, R, W: Write> {
    reader: BufReader<R>,
    writer: BufWriter<W>,
    export: &'a Export,
    cache: Cache,
    stall: Nanos,
}

impl<R: Read, W: Write> Connection<'_, R, W> {
    fn run(&mut self) -> Result<(), ConnectionError> {
        while self.has_more()? {
            let mut head = [0; HEAD];
            self.reader.read_exact(&mut head)?;
            let request = Request::parse(&head).ok_or(ConnectionError::NoRequest)?;
            if request.command == Command::Disconnect {
                break;
            }
            self.answer(&request)?;
        }
        self.writer.flush()?;
        Ok(())
    }

    // Waits for a request, for as long as it takes: idle clients are welcome.
    fn has_more(&mut self) -> io::Result<bool> {
        if self.reader.buffer().len() < HEAD {
            self.writer.flush()?;
            self.cache.end_batch();
        }
        loop {
            match self.reader.fill_buf() {
                Ok(bytes) => return Ok(!bytes.is_empty()),
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn answer(&mut self, request: &Request) -> Result<(), ConnectionError> {
        let (offset, length) = (request.offset, u64::from(request.length));
        let refusal = request.refusal(self.export.size(), self.export.is_read_only());
        let outcome = match (request.command, refusal) {
            (Command::Write, refusal) => self.write(offset, length, refusal)?,
            (_, Some(refusal)) => Err(refusal),
            (Command::Read, None) => return self.read(request),
            (Command::Flush, None) => self.export.flush(),
            (Command::Trim, None) => self.export.trim(offset, length),
            (Command::WriteZeroes, None) => self.export.zero(offset, length, request.no_hole),
            (Command::Disconnect | Command::Unknown(_), None) => Err(Refusal::Invalid),
        };
        let changes = matches!(
            request.command,
            Command::Write | Command::Trim | Command::WriteZeroes
        );
        let outcome = outcome.and_then(|()| {
            if request.fua && changes {
                self.export.flush()
            } else {
                Ok(())
            }
        });
        self.writer.write_all(&reply(request.cookie, outcome.err()))?;
        Ok(())
    }

    fn buffer(&self, length: u64) -> Result<Buffer, Refusal> {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(CHUNK);
        // Who does not get memory in this time would think us dead.
        self.cache
            .acquire_within(length, self.stall)
            .map_err(|_| Refusal::NoMemory)
    }

    // The first piece is read before the head of the answer goes, so that most failures can be told.
    fn read(&mut self, request: &Request) -> Result<(), ConnectionError> {
        let end = request.offset + u64::from(request.length);
        let mut at = request.offset;
        loop {
            let piece = self.buffer(end - at).and_then(|mut buffer| {
                self.export.read(&mut buffer, at)?;
                Ok(buffer)
            });
            match piece {
                Ok(buffer) => {
                    if at == request.offset {
                        self.writer.write_all(&reply(request.cookie, None))?;
                    }
                    self.writer.write_all(&buffer)?;
                    at += buffer.len() as u64;
                }
                Err(refusal) if at == request.offset => {
                    self.writer.write_all(&reply(request.cookie, Some(refusal)))?;
                    return Ok(());
                }
                Err(refusal) => return Err(ConnectionError::HalfRead(refusal)),
            }
            if at >= end {
                return Ok(());
            }
        }
    }

    // After a failure the rest of the data is taken all the same: the next request begins behind it.
    fn write(
        &mut self,
        offset: u64,
        length: u64,
        refusal: Option<Refusal>,
    ) -> io::Result<Result<(), Refusal>> {
        let mut outcome = refusal.map_or(Ok(()), Err);
        let mut done = 0;
        while done < length && outcome.is_ok() {
            match self.buffer(length - done) {
                Ok(mut buffer) => {
                    self.reader.read_exact(&mut buffer)?;
                    outcome = self.export.write(&buffer, offset + done);
                    done += buffer.len() as u64;
                }
                Err(refusal) => outcome = Err(refusal),
            }
        }
        let rest = length - done;
        let skipped = io::copy(&mut (&mut self.reader).take(rest), &mut io::sink())?;
        if skipped < rest {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(outcome)
    }
}

// A read timeout of a socket.
fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
