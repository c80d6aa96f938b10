//! Opening a recording, whoever wrote it: one of ours is streamed batch by batch, one of damo's is taken whole.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};

use crate::damo;
use crate::decode::Rows;
use crate::error::ReadError;
use crate::frames::{Frame, FrameError, Frames};
use crate::model::{Metadata, Record, SCHEMA};
use crate::row;

/// A recording that ends before its writer ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated {
    /// Bytes that are whole.
    pub whole_bytes: u64,
    /// Bytes behind them, of a batch that was not finished; 0 when the cut is between two batches.
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
            "the recording was cut off: its first {whole_bytes} bytes are whole, "
        )?;
        write!(f, "{lost_bytes} bytes of an unfinished batch were left out")
    }
}

/// A recording being read: an iterator over its records, in their order. After an error it ends.
pub struct Recording {
    /// What is true of the whole.
    pub metadata: Metadata,
    path: PathBuf,
    source: Source,
    truncated: Option<Truncated>,
}

enum Source {
    Stream(Box<Stream>),
    Ready(VecDeque<Record>),
    Done,
}

/// A stream of ours and the place up to which it was read.
struct Stream {
    frames: Frames<BufReader<File>>,
    schema: SchemaRef,
    rows: Option<Rows>,
}

/// Why no further record comes.
enum Stop {
    Cut(Truncated),
    Failed(FrameError),
}

/// Opens the recording at `path`: an Arrow stream of ours, or damo's JSON, plain or zlib-compressed.
///
/// # Errors
/// It cannot be read, is empty, is something else, or is of a newer schema.
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
    match Shape::of(head) {
        Shape::Empty => Err(ReadError::Empty {
            path: path.to_owned(),
        }),
        Shape::Arrow => open_stream(path, input),
        Shape::Json => ready(path, damo::read(path, input)?),
        Shape::Zlib => ready(
            path,
            damo::read(path, BufReader::new(flate2::bufread::ZlibDecoder::new(input)))?,
        ),
        Shape::Other(looks_like) => Err(not_recording(path, looks_like)),
    }
}

/// Everything in the recording at `path`, at once. For tests and small files.
///
/// # Errors
/// The first one met.
pub fn read_all(path: &Path) -> Result<(Metadata, Vec<Record>, Option<Truncated>), ReadError> {
    let mut recording = open(path)?;
    let records = recording.by_ref().collect::<Result<Vec<_>, _>>()?;
    Ok((recording.metadata, records, recording.truncated))
}

impl Recording {
    /// Whether it ends before its writer ended it; known when all records have been read. A recording still
    /// being written counts as cut off.
    #[must_use]
    pub const fn truncated(&self) -> Option<Truncated> {
        self.truncated
    }

    /// Which file it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Iterator for Recording {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (next, at) = match &mut self.source {
            Source::Stream(stream) => (stream.next_record(), stream.frames.at()),
            Source::Ready(records) => return records.pop_front().map(Ok),
            Source::Done => return None,
        };
        let last = match next {
            Ok(Some(record)) => return Some(Ok(record)),
            Ok(None) => None,
            Err(Stop::Cut(truncated)) => {
                self.truncated = Some(truncated);
                None
            }
            Err(Stop::Failed(error)) => Some(Err(frame_error(&self.path, at, error))),
        };
        self.source = Source::Done;
        last
    }
}

impl Stream {
    fn next_record(&mut self) -> Result<Option<Record>, Stop> {
        let wrong = |why| Stop::Failed(FrameError::Wrong(why));
        loop {
            if let Some(record) = self.rows.as_mut().and_then(Rows::next_record) {
                return record.map(Some).map_err(wrong);
            }
            if self.rows.take().is_some() {
                self.frames.pass();
            }
            match self.frames.read().map_err(Stop::Failed)? {
                Frame::End => return Ok(None),
                Frame::Cut { lost } => {
                    let whole_bytes = self.frames.at();
                    return Err(Stop::Cut(Truncated {
                        whole_bytes,
                        lost_bytes: lost,
                    }));
                }
                Frame::Message => {
                    let batch = self.frames.batch(&self.schema).map_err(Stop::Failed)?;
                    self.rows = Some(Rows::new(&batch).map_err(wrong)?);
                }
            }
        }
    }
}

fn open_stream(path: &Path, input: BufReader<File>) -> Result<Recording, ReadError> {
    let mut frames = Frames::new(input);
    match frames.read().map_err(|error| frame_error(path, 0, error))? {
        Frame::Message => {}
        Frame::Cut { .. } => {
            let path = path.to_owned();
            return Err(ReadError::CutOff { path });
        }
        Frame::End => return Err(not_recording(path, "an Arrow stream without a schema")),
    }
    let schema = frames.schema().map_err(|error| frame_error(path, 0, error))?;
    frames.pass();
    let metadata = metadata(path, &schema)?;
    let stream = Stream {
        frames,
        schema: Arc::new(schema),
        rows: None,
    };
    let source = Source::Stream(Box::new(stream));
    Ok(Recording {
        metadata,
        path: path.to_owned(),
        source,
        truncated: None,
    })
}

/// What the schema tells of the whole recording, if it is one of ours that this program knows.
fn metadata(path: &Path, schema: &Schema) -> Result<Metadata, ReadError> {
    let foreign = "an Arrow stream of another program";
    let text = schema
        .metadata
        .get(row::METADATA_KEY)
        .ok_or_else(|| not_recording(path, foreign))?;
    let broken =
        |error: serde_json::Error| damaged(path, 0, format!("its metadata does not parse ({error})"));
    let value: serde_json::Value = serde_json::from_str(text).map_err(broken)?;
    let found = value
        .get("schema")
        .and_then(serde_json::Value::as_u64)
        .unwrap_or(0);
    if found > u64::from(SCHEMA) {
        return Err(ReadError::Newer {
            path: path.to_owned(),
            found,
            known: SCHEMA,
        });
    }
    let same = schema
        .fields()
        .iter()
        .map(|field| (field.name(), field.data_type()));
    if !same.eq(row::fields()
        .iter()
        .map(|field| (field.name(), field.data_type())))
    {
        return Err(damaged(
            path,
            0,
            format!("its columns are not those of schema {found}"),
        ));
    }
    serde_json::from_value(value).map_err(broken)
}

fn ready(path: &Path, (metadata, records): (Metadata, Vec<Record>)) -> Result<Recording, ReadError> {
    let source = Source::Ready(records.into());
    Ok(Recording {
        metadata,
        path: path.to_owned(),
        source,
        truncated: None,
    })
}

fn frame_error(path: &Path, at: u64, error: FrameError) -> ReadError {
    match error {
        FrameError::Io(source) => ReadError::Read {
            path: path.to_owned(),
            source,
        },
        FrameError::Wrong(why) => damaged(path, at, why),
    }
}

fn damaged(path: &Path, at: u64, why: String) -> ReadError {
    ReadError::Corrupt {
        path: path.to_owned(),
        at,
        why,
    }
}

fn not_recording(path: &Path, looks_like: &str) -> ReadError {
    ReadError::NotRecording {
        path: path.to_owned(),
        looks_like: looks_like.to_owned(),
    }
}

/// What a file is, by its first bytes.
enum Shape {
    Empty,
    Arrow,
    Json,
    Zlib,
    Other(&'static str),
}

impl Shape {
    fn of(head: &[u8]) -> Self {
        match head {
            [] => Self::Empty,
            [0xff, 0xff, 0xff, 0xff, ..] => Self::Arrow,
            [0xff, rest @ ..] if rest.len() < 3 && rest.iter().all(|byte| *byte == 0xff) => Self::Arrow,
            // The two bytes of a zlib header are a multiple of 31.
            [0x78, flags, ..] if (0x7800 + u16::from(*flags)).is_multiple_of(31) => Self::Zlib,
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Self::Other("an Arrow file, not a stream"),
            [b'P', b'A', b'R', b'1', ..] => Self::Other("a Parquet file"),
            [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => {
                Self::Other("perf's data (`damo convert_record_format` makes JSON of it)")
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
