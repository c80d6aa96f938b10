//! Writing a recording: rows are gathered for about a second, then put into the file as one whole batch.
//!
//! A batch reaches the file in one go and nothing is ever changed behind it, so that after any end (kill -9, no
//! space, power) everything up to the last whole batch reads.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{ArrowError, SchemaRef};

use crate::encode::Rows;
use crate::error::WriteError;
use crate::model::{Metadata, Record};
use crate::row;

/// Rows that make a batch even before its time: keeps the writer's memory below a few MiB.
const MAX_ROWS: usize = 8192;
/// How old the oldest row may get before its batch is due: what a kill -9 may cost.
const MAX_AGE_NS: u64 = 1_000_000_000;
/// The fastest level shrinks regions nearly as well as the slow ones.
const ZSTD_LEVEL: i32 = 1;

/// What is in a file for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Bytes that are whole.
    pub bytes: u64,
    /// Records in them.
    pub records: u64,
}

/// A recording being written.
pub struct Writer {
    path: PathBuf,
    file: File,
    stream: StreamWriter<Vec<u8>>,
    rows: Rows,
    pending: u64,
    oldest_ns: u64,
    written: Written,
}

impl Writer {
    /// Begins a recording at `path`, readable by its owner only. A file that is there is kept as `PATH.old`.
    ///
    /// # Errors
    /// The old file cannot be kept, the new one not be created, or its beginning not be written.
    pub fn create(path: &Path, metadata: &Metadata) -> Result<Self, WriteError> {
        let encode = |why: String| WriteError::Encode {
            path: path.to_owned(),
            why,
        };
        let schema: SchemaRef = Arc::new(row::schema(metadata).map_err(|e| encode(e.to_string()))?);
        let stream = begin_stream(&schema).map_err(|e| encode(e.to_string()))?;
        keep_old(path)?;
        let file = create_file(path).map_err(|source| WriteError::Create {
            path: path.to_owned(),
            source,
        })?;
        let rows = Rows::new(schema);
        let (path, written) = (path.to_owned(), Written::default());
        let mut writer = Self {
            path,
            file,
            stream,
            rows,
            pending: 0,
            oldest_ns: 0,
            written,
        };
        writer.put()?;
        Ok(writer)
    }

    /// Where it is written to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in the file for good.
    #[must_use]
    pub const fn written(&self) -> Written {
        self.written
    }

    /// Adds `record`; it is in the file after the next [`Writer::flush`], which comes by itself only when many
    /// rows wait.
    ///
    /// # Errors
    /// That flush failed; the writer must not be used any more.
    pub fn append(&mut self, record: &Record) -> Result<(), WriteError> {
        if self.pending == 0 {
            self.oldest_ns = row::time_ns(record);
        }
        self.rows.push(record);
        self.pending += 1;
        if self.rows.len() >= MAX_ROWS {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Whether records have waited for a second at `now_ns` (on the clock of the records).
    #[must_use]
    pub const fn flush_due(&self, now_ns: u64) -> bool {
        self.pending > 0 && now_ns.saturating_sub(self.oldest_ns) >= MAX_AGE_NS
    }

    /// Puts what waits into the file as one batch.
    ///
    /// # Errors
    /// It cannot be written, as on a full disk; the file ends with the batch before. The writer must not be used
    /// any more.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.pending == 0 {
            return Ok(());
        }
        let batch = self.rows.take();
        let encoded = batch.and_then(|batch| self.stream.write(&batch));
        encoded.map_err(|e| self.refused(&e))?;
        self.put()?;
        self.written.records += std::mem::take(&mut self.pending);
        Ok(())
    }

    /// Writes what waits and the end mark.
    ///
    /// # Errors
    /// As [`Writer::flush`].
    pub fn finish(mut self) -> Result<Written, WriteError> {
        self.flush()?;
        self.stream.finish().map_err(|e| self.refused(&e))?;
        self.put()?;
        Ok(self.written)
    }

    /// Moves the encoded bytes to the file. After a failure the file is cut back to what was whole before.
    fn put(&mut self) -> Result<(), WriteError> {
        let bytes = self.stream.get_mut();
        let result = self.file.write_all(bytes);
        let len = bytes.len() as u64;
        bytes.clear();
        if let Err(source) = result {
            // Fails on devices and pipes, and a reader copes with half a batch anyway.
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

    fn refused(&self, error: &ArrowError) -> WriteError {
        WriteError::Encode {
            path: self.path.clone(),
            why: error.to_string(),
        }
    }
}

fn begin_stream(schema: &SchemaRef) -> Result<StreamWriter<Vec<u8>>, ArrowError> {
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)?
        .try_with_compression(Some(CompressionType::ZSTD))?
        .try_with_compression_level(Some(ZSTD_LEVEL))?;
    StreamWriter::try_new_with_options(Vec::new(), schema, options)
}

fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// Renames a regular file at `path` to `PATH.old`; a device or pipe is written into as it is.
fn keep_old(path: &Path) -> Result<(), WriteError> {
    if !path.is_file() {
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
