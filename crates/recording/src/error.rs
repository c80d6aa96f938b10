//! Errors of reading and writing recordings. Each message has the path and the way out.

use std::io;
use std::path::PathBuf;

/// A recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open the recording {}: {source}; check the path and its permissions", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A read failed.
    #[error("cannot read the recording {}: {source}; copy it to another disk and try again", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file has no bytes.
    #[error(
        "{} is empty (0 bytes); record again, or check whether {}.old is the recording you want",
        path.display(), path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file ends before its first record.
    #[error(
        "{} is truncated before its first record; record again, or check whether {}.old is the recording you want",
        path.display(), path.display()
    )]
    NoRecord {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a recording.
    #[error(
        "{} is not a recording: it looks like {looks_like}; give a file of `thermo record`, or the JSON of `damo record`",
        path.display()
    )]
    NotRecording {
        /// The file.
        path: PathBuf,
        /// Probable type of the file.
        looks_like: String,
    },
    /// A later version of this program wrote the recording.
    #[error(
        "{} has schema {found}, but this version of thermo reads only schemas up to {known}: use a newer thermo",
        path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Schema of the recording.
        found: u64,
        /// The newest schema that this version reads.
        known: u32,
    },
    /// The recording is damaged.
    #[error(
        "{} is damaged at byte {offset}: {reason}; {}",
        path.display(), usable_part(*offset)
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Offset of the damaged message.
        offset: u64,
        /// The inconsistency.
        reason: String,
    },
    /// A compressed file holds far more data than a recording compresses to.
    #[error(
        "{} inflates to more than {max} bytes from its first {read}, which no recording does; if you trust the \
         file, inflate it with another program and give the JSON",
        path.display()
    )]
    Inflates {
        /// The file.
        path: PathBuf,
        /// Compressed bytes that were read.
        read: u64,
        /// Maximum of inflated bytes for these.
        max: u64,
    },
    /// The JSON is invalid or not damo's.
    #[error(
        "{}:{line}:{column}: not the JSON of a damo record: {reason}; write it again with `damo record --output_type json`",
        path.display()
    )]
    Json {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What was expected.
        reason: String,
    },
}

const fn usable_part(offset: u64) -> &'static str {
    match offset {
        0 => "no record can be read; record again",
        _ => "the records before that byte are valid",
    }
}

/// A recording cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An existing file cannot be renamed.
    #[error(
        "cannot rename the existing {} to {}: {source}; move the file away, or choose another name with -o",
        path.display(), old.display()
    )]
    KeepOld {
        /// The existing file.
        path: PathBuf,
        /// New name of the existing file.
        old: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be created.
    #[error("cannot create the recording {}: {source}; choose a writable path with -o", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A write failed.
    #[error(
        "cannot write to the recording {}: {source}; its first {whole_bytes} bytes with {whole_records} records are \
         complete and readable; free space there, or choose another path with -o, and record again",
        path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Size of the complete batches.
        whole_bytes: u64,
        /// Number of records in the complete batches.
        whole_records: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The Arrow library rejected a batch.
    #[error("cannot encode a batch of {}: {reason}; this is a defect of thermo, please report it", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// The library's error.
        reason: String,
    },
}
