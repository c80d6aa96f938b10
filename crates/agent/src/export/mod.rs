//! The export of files for a fleet: the rows of each interval, in files of a window.
//!
//! [`Sums`] adds what happens between two intervals. [`Exporter`] makes rows of them and of what the targets
//! hold, and keeps the rows of the window in one file, written anew at each interval: after a crash, at most
//! the interval that ran is lost. Its name depends only on cluster, node and window
//! ([`thermo_fleet::file_name`]). The file is in a folder of the state directory until the window is over,
//! and for as long as the export folder cannot be written. Both folders are bounded: the oldest files are
//! dropped, and counted.

mod folder;
mod sums;

use std::io;
use std::path::{Path, PathBuf};

use thermo_engine::access_tables::NR_AGES;
use thermo_fleet::{FileFacts, FleetError, Mode, Row, RowKind, file_name};
use thermo_kernel::durable_file;

use self::folder::Folder;
pub use self::sums::Sums;
use crate::api::{self, UnixMillis};
use crate::config::ExportConfig;

/// The folder in the state directory with the file of the window that runs.
const WINDOW_FOLDER: &str = "export-window";
/// Permissions of this folder: of the agent alone.
const WINDOW_MODE: u32 = 0o700;
/// Permissions of the export folder. Who takes the files away has a user of its own, and the group of the
/// agent.
const EXPORT_MODE: u32 = 0o770;
/// A shorter interval is not worth a row.
const MIN_INTERVAL_MS: u64 = 1000;

/// Writes the files.
#[derive(Debug)]
pub struct Exporter {
    config: ExportConfig,
    /// The file of the window that runs, and finished files that could not be moved to `folder`.
    unfinished: Folder,
    /// Where finished files wait until they are taken.
    folder: Folder,
    /// The window that runs, with its rows.
    window: Option<(FileFacts, Vec<Row>)>,
    /// When the interval began.
    begin_ms: UnixMillis,
    /// When it ends.
    next_ms: UnixMillis,
    dropped: u64,
    /// What has happened since the interval began.
    pub sums: Sums,
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The rows are not those of a file.
    #[error(transparent)]
    Rows(#[from] FleetError),
}

impl Exporter {
    /// Begins at `now_ms`. The rows of a window that an agent before this one did not finish are taken over.
    /// The second value warns of rows that cannot be read.
    #[must_use]
    pub fn new(config: ExportConfig, state_dir: &Path, now_ms: UnixMillis) -> (Self, Option<String>) {
        let unfinished = Folder::new(state_dir.join(WINDOW_FOLDER), WINDOW_MODE, &config);
        let (window, warning) = match read_newest(&unfinished) {
            Ok(window) => (window, None),
            Err(why) => (None, Some(format!("{why}: a new window begins"))),
        };
        let exporter = Self {
            folder: Folder::new(config.folder.clone(), EXPORT_MODE, &config),
            unfinished,
            begin_ms: now_ms,
            next_ms: next_multiple(now_ms, config.every_ms()),
            window,
            dropped: 0,
            sums: Sums::default(),
            config,
        };
        (exporter, warning)
    }

    /// Whether the interval is over.
    #[must_use]
    pub const fn is_due(&self, now_ms: UnixMillis) -> bool {
        // After a step of the clock to the past, the interval would last until the old time is back.
        now_ms >= self.next_ms || now_ms < self.begin_ms
    }

    /// Writes the rows of the interval that ends now. Their times, and their node, are filled in here.
    ///
    /// # Errors
    /// The rows or a file cannot be written, and it is tried again with the next interval. While the export
    /// folder cannot be written, files wait in the state directory. While that cannot be written, the rows of
    /// one window wait in memory, and those of later windows are lost.
    pub fn add(&mut self, now_ms: UnixMillis, rows: Vec<Row>) -> Result<(), ExportError> {
        let every_ms = self.config.every_ms();
        let interval_ms = now_ms.saturating_sub(self.begin_ms);
        // An interval that ends in time ends at the multiple. One that a stop of the agent ends does not.
        let time_ms = match now_ms >= self.next_ms {
            true => now_ms - now_ms % every_ms,
            false => now_ms,
        };
        (self.begin_ms, self.next_ms) = (now_ms, next_multiple(now_ms, every_ms));
        if interval_ms >= MIN_INTERVAL_MS {
            let node = self.config.node.clone();
            self.window_of(time_ms, now_ms)?
                .extend(rows.into_iter().map(|row| Row {
                    time_ms,
                    interval_ms,
                    node: node.clone(),
                    ..row
                }));
        }
        self.save(now_ms)?;
        // A window that ends with this interval is complete.
        self.move_finished(next_multiple(time_ms, every_ms))
    }

    /// Makes the export folder, unless it exists: who takes the files away waits for it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create_folder(&self) -> Result<(), ExportError> {
        let made = self.folder.create();
        made.map_err(|source| failure(self.folder.root(), source))
    }

    /// Files and bytes in the folder, and how many files were dropped since the start.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn status(&self) -> Result<api::Export, ExportError> {
        let read = || {
            let files = self.folder.files()?;
            let sizes = files.iter().map(|file| self.folder.size(file));
            Ok((files.len() as u64, sizes.sum::<io::Result<u64>>()?))
        };
        let (files, bytes) = read().map_err(|source| failure(self.folder.root(), source))?;
        Ok(api::Export {
            files,
            bytes,
            dropped_files: self.dropped,
        })
    }

    /// The rows of the window that an interval which ends at `time_ms` is in. A change of the configuration,
    /// or an upgrade, does not end a window: only its name tells it from others.
    fn window_of(&mut self, time_ms: UnixMillis, now_ms: UnixMillis) -> Result<&mut Vec<Row>, ExportError> {
        let facts = self.facts(time_ms);
        if let Some((before, _)) = &self.window
            && file_name(before)? != file_name(&facts)?
        {
            self.save(now_ms)?;
            self.window = None;
        }
        let (window, rows) = self.window.get_or_insert_default();
        *window = facts;
        Ok(rows)
    }

    /// Moves finished files to the export folder: all but that of the window which an interval that ends at
    /// `time_ms` is in.
    fn move_finished(&mut self, time_ms: UnixMillis) -> Result<(), ExportError> {
        let running = file_name(&self.facts(time_ms))?;
        if let Some((window, _)) = &self.window
            && file_name(window)? != running
        {
            self.window = None;
        }
        let in_state = |source| failure(self.unfinished.root(), source);
        self.dropped += self.unfinished.drop_oldest().map_err(in_state)?;
        let mut files = self.unfinished.files().map_err(in_state)?;
        files.retain(|file| file.name != running);
        if files.is_empty() {
            return Ok(());
        }
        for file in files {
            self.unfinished
                .move_to(&self.folder, &file.name)
                .map_err(|source| failure(&self.folder.path(&file.name), source))?;
        }
        let dropped = self.folder.drop_oldest();
        self.dropped += dropped.map_err(|source| failure(self.folder.root(), source))?;
        Ok(())
    }

    /// The window of an interval that ends at `time_ms`.
    fn facts(&self, time_ms: UnixMillis) -> FileFacts {
        let window_ms = self.config.window_ms();
        let within = time_ms.saturating_sub(1);
        FileFacts {
            cluster: self.config.cluster.clone(),
            node: self.config.node.clone(),
            window_start_ms: within - within % window_ms,
            window_ms,
            interval_ms: self.config.every_ms(),
            written_ms: 0,
            link: self.config.link.clone(),
            program: concat!("thermo ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    fn save(&self, now_ms: UnixMillis) -> Result<(), ExportError> {
        let Some((facts, rows)) = &self.window else {
            return Ok(());
        };
        let facts = FileFacts {
            written_ms: now_ms,
            ..facts.clone()
        };
        let mut bytes = Vec::new();
        thermo_fleet::write(&facts, rows, &mut bytes)?;
        let name = file_name(&facts)?;
        self.unfinished
            .write(&name, &bytes)
            .map_err(|source| failure(&self.unfinished.path(&name), source))
    }
}

/// The rows of the newest file of a folder; `None`: it is empty.
fn read_newest(folder: &Folder) -> Result<Option<(FileFacts, Vec<Row>)>, String> {
    let files = folder
        .files()
        .map_err(|error| format!("cannot read {}: {error}", folder.root().display()))?;
    let Some(newest) = files.last() else {
        return Ok(None);
    };
    let path = folder.path(&newest.name);
    let read = || {
        let bytes = durable_file::read_beneath(folder.root(), Path::new(&newest.name));
        thermo_fleet::read(bytes.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    };
    read()
        .map(Some)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn failure(path: &Path, source: io::Error) -> ExportError {
    let path = path.to_owned();
    ExportError::Io { path, source }
}

const fn next_multiple(time: u64, step: u64) -> u64 {
    (time / step + 1) * step
}

/// The row of a target, without times, node and sums.
#[must_use]
pub fn row_of_target(target: &api::Target, file_ages: [u64; NR_AGES]) -> Row {
    let ages = |rows: &[api::AgeBytes]| {
        let mut bytes = [0; NR_AGES];
        for (bytes, row) in bytes.iter_mut().zip(rows) {
            *bytes = row.bytes;
        }
        bytes
    };
    Row {
        row: RowKind::Target,
        target: target.name.clone(),
        policy: target.policy.clone(),
        mode: mode(target.mode),
        processes: u32::try_from(target.pids.len()).unwrap_or(u32::MAX),
        resident_bytes: target.resident_bytes,
        swap_bytes: target.swap_bytes,
        unknown_bytes: target.unknown_bytes,
        working_set_bytes: target.working_set_bytes,
        idle_bytes: ages(&target.ages),
        idle_file_bytes: file_ages,
        pass_ms: target.pass_s.map(|seconds| {
            // The cast cannot lose: it saturates.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a saturating cast is wanted"
            )]
            let ms = (seconds * 1000.0) as u64;
            ms
        }),
        net_saved_bytes: target.net_saved_bytes,
        ..Row::default()
    }
}

/// The row of the agent itself. `cpu_us`: all CPU time of the interval, and the part that acting took.
#[must_use]
pub fn row_of_agent(resident_bytes: u64, (cpu_us, acting_us): (u64, u64)) -> Row {
    Row {
        row: RowKind::Agent,
        target: "thermo-agent".to_owned(),
        workload: "thermo-agent".to_owned(),
        processes: 1,
        resident_bytes,
        watching_cpu_us: cpu_us.saturating_sub(acting_us),
        acting_cpu_us: acting_us.min(cpu_us),
        ..Row::default()
    }
}

const fn mode(mode: api::Mode) -> Mode {
    match mode {
        api::Mode::Observe => Mode::Observe,
        api::Mode::DryRun => Mode::DryRun,
        api::Mode::Act => Mode::Act,
    }
}

#[cfg(test)]
mod tests;
