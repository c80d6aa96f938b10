//! Reads recordings: Arrow streams batch by batch, damo's JSON as a whole.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use serde_json::Value;
use thermo_units::printable;

use crate::damo;
use crate::decode::BatchReader;
use crate::error::ReadError;
use crate::frames::{Frame, FrameError, FrameReader};
use crate::inflate::Inflated;
use crate::model::{Metadata, Record, SCHEMA};
use crate::part::{OUTLINE, Outline, Part};
use crate::row;

/// The recording has no end-of-stream marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated {
    /// Size of the complete batches.
    pub whole_bytes: u64,
    /// Size of an incomplete batch behind them; 0 if the recording ends between two batches.
    pub lost_bytes: u64,
}

impl std::fmt::Display for Truncated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            whole_bytes,
            lost_bytes,
        } = self;
        write!(
            f,
            "the recording is truncated: its first {whole_bytes} bytes are complete, "
        )?;
        write!(f, "{lost_bytes} bytes of an incomplete batch are ignored")
    }
}

/// A recording being read: an iterator over its records, in order. The iterator ends after an error.
pub struct Recording {
    /// Metadata of the recording.
    pub metadata: Metadata,
    path: PathBuf,
    source: Source,
    truncated: Option<Truncated>,
}

enum Source {
    Stream(Box<Stream>),
    InMemory(VecDeque<Record>),
    Done,
}

/// An Arrow stream being read.
struct Stream {
    frames: FrameReader<BufReader<File>>,
    schema: SchemaRef,
    /// The current batch.
    batch: Option<BatchReader>,
}

/// Why the stream has no further record.
enum Stop {
    Truncated(Truncated),
    Failed(FrameError),
}

/// Opens the recording at `path`: an Arrow stream of [`Writer`](crate::Writer), or damo's JSON, plain or
/// zlib-compressed.
///
/// # Errors
/// The file cannot be read, is empty, is not a recording, or has a newer schema.
pub fn open(path: &Path) -> Result<Recording, ReadError> {
    let file = File::open(path).map_err(|source| ReadError::Open {
        path: path.to_owned(),
        source,
    })?;
    let mut input = BufReader::with_capacity(1 << 16, file);
    let read = |source| ReadError::Read {
        path: path.to_owned(),
        source,
    };
    let head = input.fill_buf().map_err(read)?;
    match FileType::detect(head) {
        FileType::Empty => Err(ReadError::Empty {
            path: path.to_owned(),
        }),
        FileType::Arrow => open_stream(path, input),
        FileType::Json => Ok(in_memory(path, damo::read(path, input)?)),
        FileType::Zlib => open_zlib(path, input),
        FileType::Other(looks_like) => Err(not_recording(path, looks_like)),
    }
}

/// Reads the whole recording at `path` into memory. For tests and small files.
///
/// # Errors
/// The first error of [`open`] or of the iterator.
pub fn read_all(path: &Path) -> Result<(Metadata, Vec<Record>, Option<Truncated>), ReadError> {
    let mut recording = open(path)?;
    let records = recording.by_ref().collect::<Result<Vec<_>, _>>()?;
    Ok((recording.metadata, records, recording.truncated))
}

impl Recording {
    /// Whether the recording is truncated; known after all records were read. A recording that is still being
    /// written counts as truncated.
    #[must_use]
    pub const fn truncated(&self) -> Option<Truncated> {
        self.truncated
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Recording {
    /// The next record of `part`. A recording of another program is read as a whole.
    pub(crate) fn next_of(&mut self, part: &Part<'_>) -> Option<Result<Record, ReadError>> {
        self.next_with(Some(part))
    }

    fn next_with(&mut self, part: Option<&Part<'_>>) -> Option<Result<Record, ReadError>> {
        let (next, offset) = match &mut self.source {
            Source::Stream(stream) => (stream.next_record(part), stream.frames.offset()),
            Source::InMemory(records) => return records.pop_front().map(Ok),
            Source::Done => return None,
        };
        let last = match next {
            Ok(Some(record)) => return Some(Ok(record)),
            Ok(None) => None,
            Err(Stop::Truncated(truncated)) => {
                self.truncated = Some(truncated);
                None
            }
            Err(Stop::Failed(error)) => Some(Err(frame_error(&self.path, offset, error))),
        };
        self.source = Source::Done;
        last
    }
}

impl Iterator for Recording {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with(None)
    }
}

impl Stream {
    fn next_record(&mut self, part: Option<&Part<'_>>) -> Result<Option<Record>, Stop> {
        let invalid = |reason| Stop::Failed(FrameError::Invalid(reason));
        loop {
            if let Some(record) = self.batch.as_mut().and_then(|batch| batch.next_record(part)) {
                return record.map(Some).map_err(invalid);
            }
            if self.batch.take().is_some() {
                self.frames.accept();
            }
            match self.frames.read().map_err(Stop::Failed)? {
                Frame::End => return Ok(None),
                Frame::Truncated { lost } => {
                    let whole_bytes = self.frames.offset();
                    return Err(Stop::Truncated(Truncated {
                        whole_bytes,
                        lost_bytes: lost,
                    }));
                }
                Frame::Message => {
                    self.batch = self.decode(part)?;
                    if self.batch.is_none() {
                        self.frames.accept();
                    }
                }
            }
        }
    }

    /// Decodes what `part` needs of the last frame; `None`: nothing.
    fn decode(&self, part: Option<&Part<'_>>) -> Result<Option<BatchReader>, Stop> {
        let invalid = |reason| Stop::Failed(FrameError::Invalid(reason));
        let batch = match part {
            None => self.frames.batch(&self.schema).map_err(Stop::Failed)?,
            Some(part) => {
                let outline = self
                    .frames
                    .columns(&self.schema, &OUTLINE)
                    .map_err(Stop::Failed)?;
                let outline = Outline::new(&outline, part).map_err(invalid)?;
                let Some(columns) = part.columns(&outline) else {
                    return Ok(None);
                };
                let batch = self.frames.columns(&self.schema, &columns);
                with_all_columns(&batch.map_err(Stop::Failed)?, &columns, &self.schema)
                    .map_err(|error| invalid(error.to_string()))?
            }
        };
        BatchReader::new(&batch).map(Some).map_err(invalid)
    }
}

/// The batch with nulls in the columns that were not decoded.
fn with_all_columns(
    batch: &RecordBatch,
    columns: &[usize],
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let mut decoded = columns.iter().zip(batch.columns()).peekable();
    let all = schema.fields().iter().enumerate().map(|(nth, field)| {
        match decoded.next_if(|(column, _)| **column == nth) {
            Some((_, array)) => Arc::clone(array),
            None => new_null_array(field.data_type(), batch.num_rows()),
        }
    });
    RecordBatch::try_new(SchemaRef::clone(schema), all.collect())
}

fn open_zlib(path: &Path, input: BufReader<File>) -> Result<Recording, ReadError> {
    let mut inflated = Inflated::new(input);
    let read = damo::read(path, BufReader::new(&mut inflated));
    match inflated.exceeded {
        Some((read, max)) => Err(ReadError::Inflates {
            path: path.to_owned(),
            read,
            max,
        }),
        None => Ok(in_memory(path, read?)),
    }
}

fn open_stream(path: &Path, input: BufReader<File>) -> Result<Recording, ReadError> {
    let mut frames = FrameReader::new(input);
    match frames.read().map_err(|error| frame_error(path, 0, error))? {
        Frame::Message => {}
        Frame::Truncated { .. } => {
            let path = path.to_owned();
            return Err(ReadError::NoRecord { path });
        }
        Frame::End => return Err(not_recording(path, "an Arrow stream without a schema")),
    }
    let schema = frames.schema().map_err(|error| frame_error(path, 0, error))?;
    frames.accept();
    let metadata = parse_metadata(path, &schema)?;
    let stream = Stream {
        frames,
        schema: Arc::new(schema),
        batch: None,
    };
    let source = Source::Stream(Box::new(stream));
    Ok(Recording {
        metadata,
        path: path.to_owned(),
        source,
        truncated: None,
    })
}

/// Parses the metadata in the Arrow schema, and checks schema version and columns.
fn parse_metadata(path: &Path, schema: &Schema) -> Result<Metadata, ReadError> {
    let text = schema
        .metadata
        .get(row::METADATA_KEY)
        .ok_or_else(|| not_recording(path, "an Arrow stream of another program"))?;
    let invalid =
        |error: serde_json::Error| corrupt(path, 0, format!("its metadata does not parse ({error})"));
    let mut value: Value = serde_json::from_str(text).map_err(invalid)?;
    escape_strings(&mut value);
    let found = value.get("schema").and_then(Value::as_u64).unwrap_or(0);
    if found > u64::from(SCHEMA) {
        return Err(ReadError::NewerSchema {
            path: path.to_owned(),
            found,
            known: SCHEMA,
        });
    }
    let columns = schema
        .fields()
        .iter()
        .map(|field| (field.name(), field.data_type()));
    if !columns.eq(row::fields()
        .iter()
        .map(|field| (field.name(), field.data_type())))
    {
        return Err(corrupt(
            path,
            0,
            format!("its columns are not those of schema {found}"),
        ));
    }
    serde_json::from_value(value).map_err(invalid)
}

/// Escapes the control characters of every string, as decoding does for those of records.
fn escape_strings(value: &mut Value) {
    match value {
        Value::String(text) => *text = printable(text).into_owned(),
        Value::Array(values) => values.iter_mut().for_each(escape_strings),
        Value::Object(fields) => fields.values_mut().for_each(escape_strings),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn in_memory(path: &Path, (metadata, records): (Metadata, Vec<Record>)) -> Recording {
    Recording {
        metadata,
        path: path.to_owned(),
        source: Source::InMemory(records.into()),
        truncated: None,
    }
}

fn frame_error(path: &Path, offset: u64, error: FrameError) -> ReadError {
    match error {
        FrameError::Io(source) => ReadError::Read {
            path: path.to_owned(),
            source,
        },
        FrameError::Invalid(reason) => corrupt(path, offset, reason),
    }
}

fn corrupt(path: &Path, offset: u64, reason: String) -> ReadError {
    ReadError::Corrupt {
        path: path.to_owned(),
        offset,
        reason,
    }
}

fn not_recording(path: &Path, looks_like: &str) -> ReadError {
    ReadError::NotRecording {
        path: path.to_owned(),
        looks_like: looks_like.to_owned(),
    }
}

/// Type of a file.
enum FileType {
    Empty,
    Arrow,
    Json,
    Zlib,
    Other(&'static str),
}

impl FileType {
    /// Detects the type by the first bytes.
    fn detect(head: &[u8]) -> Self {
        match head {
            [] => Self::Empty,
            [0xff, 0xff, 0xff, 0xff, ..] => Self::Arrow,
            [0xff, rest @ ..] if rest.len() < 3 && rest.iter().all(|byte| *byte == 0xff) => Self::Arrow,
            // RFC 1950: the two bytes of a zlib header are a multiple of 31.
            [0x78, flags, ..] if (0x7800 + u16::from(*flags)).is_multiple_of(31) => Self::Zlib,
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Self::Other("an Arrow file, not a stream"),
            [b'P', b'A', b'R', b'1', ..] => Self::Other("a Parquet file"),
            [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => {
                Self::Other("perf's data (convert it with `damo convert_record_format`)")
            }
            _ => match head.trim_ascii_start() {
                [b'[' | b'{', ..] => Self::Json,
                [] => Self::Other("white space"),
                text if std::str::from_utf8(text).is_ok() => Self::Other("text"),
                _ => Self::Other("data of another program"),
            },
        }
    }
}
