//! Reads the messages of an Arrow IPC stream from a file that may be truncated or damaged.
//!
//! The stream reader of the Arrow library cannot distinguish a truncated file from a damaged one, and
//! allocates any amount of memory that a length in the file asks for. This module parses the frames itself
//! and checks every length against the bytes present. Only then does the library decode a batch.

use std::collections::HashMap;
use std::io::{self, Read};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::{Message, convert, root_as_message};
use arrow_schema::{Schema, SchemaRef};

use crate::{layout, row};

const MARKER: [u8; 4] = [0xff; 4];

/// Result of reading a frame.
pub(crate) enum Frame {
    /// A complete message. Its parts are in the reader's buffers.
    Message,
    /// The end-of-stream marker.
    End,
    /// The file ends without an end-of-stream marker.
    Truncated {
        /// Bytes of an incomplete message.
        lost: u64,
    },
}

/// Why a message cannot be read.
#[derive(Debug)]
pub(crate) enum FrameError {
    /// The file cannot be read.
    Io(io::Error),
    /// The message is invalid, for this reason.
    Invalid(String),
}

fn invalid(reason: impl ToString) -> FrameError {
    FrameError::Invalid(reason.to_string())
}

pub(crate) struct FrameReader<R> {
    input: R,
    offset: u64,
    head: Vec<u8>,
    /// Shared by the columns that are not compressed.
    body: Buffer,
}

impl<R: Read> FrameReader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            offset: 0,
            head: Vec::new(),
            body: Buffer::default(),
        }
    }

    /// Offset of the first frame that was not accepted.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next frame.
    pub(crate) fn read(&mut self) -> Result<Frame, FrameError> {
        let mut prefix = [0; 8];
        let len = read_full(&mut self.input, &mut prefix)?;
        if len < prefix.len() {
            return Ok(Frame::Truncated { lost: len as u64 });
        }
        if prefix == [0; 8] {
            // A crash of the machine can leave zeros in place of the last batch.
            let rest = io::copy(&mut self.input, &mut io::sink()).map_err(FrameError::Io)?;
            return Ok(Frame::Truncated { lost: rest + 8 });
        }
        let [a, b, c, d, e, f, g, h] = prefix;
        if [a, b, c, d] != MARKER {
            return Err(invalid("no message begins there"));
        }
        let head_len = u64::from(u32::from_le_bytes([e, f, g, h]));
        if head_len == 0 {
            return Ok(Frame::End);
        }
        check_len("header", head_len, layout::MAX_HEAD)?;
        if read_up_to(&mut self.input, head_len, &mut self.head)? < head_len {
            return Ok(Frame::Truncated {
                lost: 8 + self.head.len() as u64,
            });
        }
        let body_len = message(&self.head)?.bodyLength();
        let body_len = u64::try_from(body_len).map_err(|_| invalid("a message has a negative length"))?;
        check_len("batch", body_len, layout::MAX_BODY)?;
        let mut body = Vec::new();
        if read_up_to(&mut self.input, body_len, &mut body)? < body_len {
            return Ok(Frame::Truncated {
                lost: 8 + head_len + body.len() as u64,
            });
        }
        self.body = body.into();
        Ok(Frame::Message)
    }

    /// Accepts the last frame: [`Self::offset`] moves behind it.
    pub(crate) fn accept(&mut self) {
        self.offset += 8 + self.head.len() as u64 + self.body.len() as u64;
    }

    /// Parses the last frame as a schema.
    pub(crate) fn schema(&self) -> Result<Schema, FrameError> {
        let schema = message(&self.head)?.header_as_schema();
        convert::try_fb_to_schema(schema.ok_or_else(|| invalid("the first message is not a schema"))?)
            .map_err(invalid)
    }

    /// Decodes the last frame as a batch of `schema`.
    pub(crate) fn batch(&self, schema: &SchemaRef) -> Result<RecordBatch, FrameError> {
        self.decode(schema, None)
    }

    /// Decodes only these columns of the last frame, in ascending order.
    pub(crate) fn columns(&self, schema: &SchemaRef, columns: &[usize]) -> Result<RecordBatch, FrameError> {
        self.decode(schema, Some(columns))
    }

    fn decode(&self, schema: &SchemaRef, columns: Option<&[usize]>) -> Result<RecordBatch, FrameError> {
        let message = message(&self.head)?;
        let batch = message
            .header_as_record_batch()
            .ok_or_else(|| invalid("a message is not a batch"))?;
        layout::check(&batch, &self.body, &row::fields()).map_err(FrameError::Invalid)?;
        let (dictionaries, version) = (HashMap::new(), message.version());
        RecordBatchDecoder::try_new(
            &self.body,
            batch,
            SchemaRef::clone(schema),
            &dictionaries,
            &version,
        )
        .and_then(|decoder| decoder.with_projection(columns).read_record_batch())
        .map_err(invalid)
    }
}

/// A sparse file of a few KiB can hold any length, with all the zeros that it asks for.
fn check_len(what: &str, len: u64, max: u64) -> Result<(), FrameError> {
    let is_valid = len <= max;
    is_valid.then_some(()).ok_or_else(|| {
        invalid(format!(
            "a {what} of {len} bytes is larger than the maximum of {max}"
        ))
    })
}

fn message(head: &[u8]) -> Result<Message<'_>, FrameError> {
    root_as_message(head).map_err(|error| invalid(format!("a message does not parse ({error})")))
}

/// Reads until `buffer` is full or the input ends. Returns the number of bytes read.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, FrameError> {
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(FrameError::Io(error)),
        }
    }
    Ok(len)
}

/// Reads at most `max` bytes into `buffer`. The buffer grows only with the bytes present.
fn read_up_to(input: &mut impl Read, max: u64, buffer: &mut Vec<u8>) -> Result<u64, FrameError> {
    buffer.clear();
    let len = input.take(max).read_to_end(buffer).map_err(FrameError::Io)?;
    Ok(len as u64)
}
