//! What can go wrong with a recording: one sentence each, with the path and the way out.

use std::io;
use std::path::PathBuf;

/// A recording that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened.
    #[error("cannot open the recording {}: {source}; check the path and who may read it", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Reading it failed half-way.
    #[error("cannot read the recording {}: {source}; copy it to another disk and try again", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Not one byte is in it.
    #[error(
        "{} is empty (0 bytes): nothing was recorded in it; record again, or look whether {}.old holds what you want",
        path.display(), path.display()
    )]
    Empty {
        /// Which file.
        path: PathBuf,
    },
    /// Not one record is whole in it.
    #[error(
        "{} was cut off before its first record: nothing can be read; record again, or look whether {}.old holds \
         what you want",
        path.display(), path.display()
    )]
    CutOff {
        /// Which file.
        path: PathBuf,
    },
    /// Something else than a recording.
    #[error(
        "{} is not a recording: it looks like {looks_like}; give a file of `thermo record`, or the JSON of `damo record`",
        path.display()
    )]
    NotRecording {
        /// Which file.
        path: PathBuf,
        /// What it seems to be.
        looks_like: String,
    },
    /// Written by a later version of this program.
    #[error(
        "{} has schema {found}, but this program knows only {known} and below: read it with a newer thermo",
        path.display()
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its schema.
        found: u64,
        /// The last one known here.
        known: u32,
    },
    /// A recording whose bytes contradict themselves.
    #[error(
        "{} is damaged at byte {at}: {why}; {}",
        path.display(), what_is_left(*at)
    )]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// Where the damaged part begins.
        at: u64,
        /// What contradicts what.
        why: String,
    },
    /// JSON that is not damo's, or not whole.
    #[error(
        "{}:{line}:{column}: not the JSON of a damo record: {why}; write it again with `damo record --output_type json`",
        path.display()
    )]
    Json {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What was expected.
        why: String,
    },
}

const fn what_is_left(at: u64) -> &'static str {
    match at {
        0 => "nothing of it can be read; record again",
        _ => "what comes before that byte is whole, the rest cannot be trusted",
    }
}

/// A recording that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The old file of that name cannot be kept.
    #[error(
        "cannot keep the old {} as {}: {source}; move it away or give another name with -o",
        path.display(), old.display()
    )]
    KeepOld {
        /// The file to be written.
        path: PathBuf,
        /// What its predecessor was to be called.
        old: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It cannot be created.
    #[error("cannot create the recording {}: {source}; give a place you may write to with -o", path.display())]
    Create {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It cannot be continued.
    #[error(
        "cannot go on recording to {}: {source}; its first {whole_bytes} bytes with {whole_records} records are \
         whole and can be read; make room there, or give another place with -o, and record again",
        path.display()
    )]
    Write {
        /// Which file.
        path: PathBuf,
        /// Bytes that are whole.
        whole_bytes: u64,
        /// Records in them.
        whole_records: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The Arrow library refused a batch.
    #[error("cannot put records into a batch for {}: {why}; please report this as a defect", path.display())]
    Encode {
        /// Which file.
        path: PathBuf,
        /// What it said.
        why: String,
    },
}
