//! The messages of an Arrow IPC stream, one by one, from a file that may end anywhere or hold anything.
//!
//! The Arrow library's own stream reader cannot tell a file cut off by a kill from a damaged one, and trusts the
//! lengths in it enough to ask for any amount of memory. So the frames are taken apart here, every length is
//! checked against what is really there, and only then does the library decode a batch.

use std::collections::HashMap;
use std::io::{self, Read};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::{Message, convert, root_as_message};
use arrow_schema::{Schema, SchemaRef};

use crate::{layout, row};

const MARKER: [u8; 4] = [0xff; 4];

/// What stands at the place that was read.
pub(crate) enum Frame {
    /// A whole message; its parts are in the reader's buffers.
    Message,
    /// The mark that ends a stream.
    End,
    /// The file ends without that mark; `lost` bytes of an unfinished message are left over.
    Cut {
        /// How many.
        lost: u64,
    },
}

/// Why a message cannot be had.
#[derive(Debug)]
pub(crate) enum FrameError {
    /// The file cannot be read.
    Io(io::Error),
    /// It contradicts itself.
    Wrong(String),
}

fn wrong(why: impl ToString) -> FrameError {
    FrameError::Wrong(why.to_string())
}

/// Reads frames.
pub(crate) struct Frames<R> {
    input: R,
    at: u64,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl<R: Read> Frames<R> {
    pub(crate) const fn new(input: R) -> Self {
        Self {
            input,
            at: 0,
            head: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Where the last frame began that was asked for.
    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// Reads one frame. `at` moves on only over whole ones.
    pub(crate) fn read(&mut self) -> Result<Frame, FrameError> {
        let mut prefix = [0; 8];
        let got = fill(&mut self.input, &mut prefix)?;
        if got < prefix.len() {
            return Ok(Frame::Cut { lost: got as u64 });
        }
        if prefix == [0; 8] {
            // A crash of the machine can leave zeros where the last batch was to be.
            let rest = io::copy(&mut self.input, &mut io::sink()).map_err(FrameError::Io)?;
            return Ok(Frame::Cut { lost: rest + 8 });
        }
        let [a, b, c, d, e, f, g, h] = prefix;
        if [a, b, c, d] != MARKER {
            return Err(wrong("no message begins there"));
        }
        let head_len = u64::from(u32::from_le_bytes([e, f, g, h]));
        if head_len == 0 {
            return Ok(Frame::End);
        }
        if take(&mut self.input, head_len, &mut self.head)? < head_len {
            return Ok(Frame::Cut {
                lost: 8 + self.head.len() as u64,
            });
        }
        let body_len = message(&self.head)?.bodyLength();
        let body_len = u64::try_from(body_len).map_err(|_| wrong("a message has a negative length"))?;
        if take(&mut self.input, body_len, &mut self.body)? < body_len {
            return Ok(Frame::Cut {
                lost: 8 + head_len + self.body.len() as u64,
            });
        }
        Ok(Frame::Message)
    }

    /// Says that the frame read last was good: the next one begins behind it.
    pub(crate) const fn pass(&mut self) {
        self.at += 8 + self.head.len() as u64 + self.body.len() as u64;
    }

    /// The frame as a schema.
    pub(crate) fn schema(&self) -> Result<Schema, FrameError> {
        let schema = message(&self.head)?.header_as_schema();
        convert::try_fb_to_schema(schema.ok_or_else(|| wrong("its first message is no schema"))?)
            .map_err(wrong)
    }

    /// The frame as a batch of `schema`.
    pub(crate) fn batch(&mut self, schema: &SchemaRef) -> Result<RecordBatch, FrameError> {
        let message = message(&self.head)?;
        let batch = message
            .header_as_record_batch()
            .ok_or_else(|| wrong("a message is no batch"))?;
        layout::check(&batch, &self.body, &row::fields()).map_err(FrameError::Wrong)?;
        let (none, version) = (HashMap::new(), message.version());
        let body = Buffer::from(self.body.as_slice());
        RecordBatchDecoder::try_new(&body, batch, SchemaRef::clone(schema), &none, &version)
            .and_then(RecordBatchDecoder::read_record_batch)
            .map_err(wrong)
    }
}

fn message(head: &[u8]) -> Result<Message<'_>, FrameError> {
    root_as_message(head).map_err(|error| wrong(format!("its message does not parse ({error})")))
}

/// Reads until `buffer` is full or the input ends; how much it was.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, FrameError> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(FrameError::Io(error)),
        }
    }
    Ok(got)
}

/// Reads at most `len` bytes into `buffer`, which grows only with what is really there.
fn take(input: &mut impl Read, len: u64, buffer: &mut Vec<u8>) -> Result<u64, FrameError> {
    buffer.clear();
    let got = input.take(len).read_to_end(buffer).map_err(FrameError::Io)?;
    Ok(got as u64)
}
