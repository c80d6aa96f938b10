//! Writes a recording: collects rows for about a second, then appends them to the file as one batch.
//!
//! Each batch is written in one go, and written bytes never change. After any end (SIGKILL, full disk, power
//! failure) everything up to the last complete batch is readable.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{ArrowError, SchemaRef};

use thermo_units::Nanos;

use crate::encode::BatchBuilder;
use crate::error::WriteError;
use crate::layout::{MAX_BODY, MAX_UNCOMPRESSED};
use crate::lock;
use crate::model::{Metadata, Note, Record};
use crate::row;

/// Maximum number of rows in a batch. Keeps the writer's memory below a few MiB.
const MAX_ROWS: usize = 8192;
/// Maximum bytes of a batch of several records.
const MAX_BYTES: usize = 4 << 20;
/// Default of [`Writer::with_batch_age`].
const MAX_AGE_NS: u64 = 1_000_000_000;
/// The fastest level compresses regions nearly as well as slower ones.
const ZSTD_LEVEL: i32 = 1;

/// Size of the complete batches in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Bytes, with the schema.
    pub bytes: u64,
    /// Number of records.
    pub records: u64,
}

/// A recording being written.
pub struct Writer {
    path: PathBuf,
    file: File,
    stream: StreamWriter<Vec<u8>>,
    rows: BatchBuilder,
    /// Number of records in `rows`.
    pending: u64,
    /// Time of the oldest record in `rows`.
    oldest_ns: u64,
    max_age_ns: u64,
    written: Written,
}

impl Writer {
    /// Creates a recording at `path`, readable by its owner only. An existing file is renamed to `PATH.old`.
    ///
    /// # Errors
    /// The existing file cannot be renamed, or the new one cannot be created or written.
    pub fn create(path: &Path, metadata: &Metadata) -> Result<Self, WriteError> {
        let encode_error = |reason: String| WriteError::Encode {
            path: path.to_owned(),
            reason,
        };
        let schema: SchemaRef = Arc::new(row::schema(metadata).map_err(|e| encode_error(e.to_string()))?);
        let stream = begin_stream(&schema).map_err(|e| encode_error(e.to_string()))?;
        rename_existing(path)?;
        let file = create_file(path).map_err(|source| WriteError::Create {
            path: path.to_owned(),
            source,
        })?;
        let rows = BatchBuilder::new(schema);
        let (path, written) = (path.to_owned(), Written::default());
        let mut writer = Self {
            path,
            file,
            stream,
            rows,
            pending: 0,
            oldest_ns: 0,
            max_age_ns: MAX_AGE_NS,
            written,
        };
        writer.write_encoded()?;
        Ok(writer)
    }

    /// Sets the age of the oldest record at which a batch is due: the time that a SIGKILL may lose. Larger
    /// batches compress better. The default is one second.
    #[must_use]
    pub const fn with_batch_age(mut self, age: Nanos) -> Self {
        self.max_age_ns = age.0;
        self
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size of the complete batches in the file.
    #[must_use]
    pub const fn written(&self) -> Written {
        self.written
    }

    /// Adds `record`. The next [`Writer::flush`] writes it; a full batch is flushed at once. A record that
    /// is too large for any reader is left out, and a warning in the recording says so: the others stay
    /// complete.
    ///
    /// # Errors
    /// The flush failed. The writer must not be used any more.
    pub fn append(&mut self, record: &Record) -> Result<(), WriteError> {
        let bytes = row::bytes(record);
        let max = MAX_UNCOMPRESSED.unsigned_abs();
        if bytes as u64 > max {
            return self.add(&left_out(row::time_ns(record), &row::description(record), max), 0);
        }
        self.add(record, bytes)
    }

    /// Adds a record of `bytes`, which begins a new batch if it does not fit into the pending one.
    fn add(&mut self, record: &Record, bytes: usize) -> Result<(), WriteError> {
        if self.rows.bytes().saturating_add(bytes) > MAX_BYTES {
            self.flush()?;
        }
        if self.pending == 0 {
            self.oldest_ns = row::time_ns(record);
        }
        self.rows.push(record);
        self.pending += 1;
        if self.rows.len() >= MAX_ROWS || self.rows.bytes() >= MAX_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// True if the oldest pending record is old enough at `now_ns` for its batch to be due, on the clock of
    /// the records.
    #[must_use]
    pub const fn flush_due(&self, now_ns: u64) -> bool {
        self.pending > 0 && now_ns.saturating_sub(self.oldest_ns) >= self.max_age_ns
    }

    /// Writes the pending records to the file as one batch.
    ///
    /// # Errors
    /// The write failed, for example on a full disk; the file then ends with the previous batch. The writer
    /// must not be used any more.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.pending == 0 {
            return Ok(());
        }
        self.encode()?;
        if self.stream.get_ref().len() as u64 > MAX_BODY {
            // Only a batch of a single record can be so large: see `add()`.
            self.stream.get_mut().clear();
            self.rows.push(&left_out(self.oldest_ns, "a record", MAX_BODY));
            self.encode()?;
        }
        self.write_encoded()?;
        self.written.records += std::mem::take(&mut self.pending);
        Ok(())
    }

    /// Encodes the pending rows as one batch.
    fn encode(&mut self) -> Result<(), WriteError> {
        let batch = self.rows.finish().map_err(|e| self.encode_error(&e))?;
        self.stream.write(&batch).map_err(|e| self.encode_error(&e))
    }

    /// Writes the pending records and the end-of-stream marker.
    ///
    /// # Errors
    /// As [`Writer::flush`].
    pub fn finish(mut self) -> Result<Written, WriteError> {
        self.flush()?;
        self.stream.finish().map_err(|e| self.encode_error(&e))?;
        self.write_encoded()?;
        Ok(self.written)
    }

    /// Writes the encoded bytes to the file. A failed write truncates the file to the complete batches.
    fn write_encoded(&mut self) -> Result<(), WriteError> {
        let bytes = self.stream.get_mut();
        let result = self.file.write_all(bytes);
        let len = bytes.len() as u64;
        bytes.clear();
        if let Err(source) = result {
            // Fails on devices and pipes. A reader ignores an incomplete batch.
            let _ = self.file.set_len(self.written.bytes);
            return Err(WriteError::Write {
                path: self.path.clone(),
                whole_bytes: self.written.bytes,
                whole_records: self.written.records,
                source,
            });
        }
        self.written.bytes += len;
        Ok(())
    }

    fn encode_error(&self, error: &ArrowError) -> WriteError {
        WriteError::Encode {
            path: self.path.clone(),
            reason: error.to_string(),
        }
    }
}

/// The warning in place of a record of more than `max` bytes.
fn left_out(time_ns: u64, what: &str, max: u64) -> Record {
    Record::Note(Note {
        time_ns,
        kind: "warning".to_owned(),
        text: format!(
            "{what} is left out of the recording: it takes more than {max} bytes, the maximum of a batch"
        ),
    })
}

fn begin_stream(schema: &SchemaRef) -> Result<StreamWriter<Vec<u8>>, ArrowError> {
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)?
        .try_with_compression(Some(CompressionType::ZSTD))?
        .try_with_compression_level(Some(ZSTD_LEVEL))?;
    StreamWriter::try_new_with_options(Vec::new(), schema, options)
}

/// Creates the file, or opens a device, a pipe or an open file of this process. A symbolic link is never
/// followed, except directly in `/dev` and `/proc/self/fd`: in a folder that others can write to, it may lead
/// to any file of ours.
fn create_file(path: &Path) -> io::Result<File> {
    let in_own = [Path::new("/dev"), Path::new("/proc/self/fd")]
        .iter()
        .any(|folder| path.parent() == Some(folder));
    let special = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() && !in_own => {
            return Err(io::Error::other(
                "it is a symbolic link, and links are not followed",
            ));
        }
        Ok(metadata) => !metadata.is_file(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    let file = OpenOptions::new()
        .create_new(!special)
        .append(true)
        .mode(0o600)
        .open(path)?;
    lock::lock(&file);
    Ok(file)
}

/// Renames a regular file at `path` to `PATH.old`.
fn rename_existing(path: &Path) -> Result<(), WriteError> {
    if !fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return Ok(());
    }
    let mut old: OsString = path.into();
    old.push(".old");
    let old = PathBuf::from(old);
    fs::rename(path, &old).map_err(|source| WriteError::KeepOld {
        path: path.to_owned(),
        old,
        source,
    })
}
