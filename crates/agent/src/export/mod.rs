//! What the fleet is told: the rows of each interval, in files of a window.
//!
//! [`Sums`] adds what happens between two intervals. [`Exporter`] makes rows of them and of what the targets
//! hold, and keeps the rows of the window in one file in the state directory, written anew at each interval:
//! after a crash, at most the interval that ran is lost. When the window is over, the file moves to the
//! export folder under a name that depends only on cluster, node and window ([`thermo_fleet::file_name`]).
//! The folder is bounded: the oldest files are dropped, and counted.

mod folder;
mod sums;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thermo_engine::access_tables::NR_AGES;
use thermo_fleet::{FileFacts, FleetError, Mode, Row, RowKind, file_name};
use thermo_kernel::durable_file;

pub use self::folder::{Folder, Waiting};
pub use self::sums::Sums;
use crate::api::{self, UnixMillis};
use crate::config::ExportConfig;

/// The rows of the window that runs, in the state directory.
const WINDOW_FILE: &str = "export-window.parquet";
/// A shorter interval is not worth a row.
const MIN_INTERVAL_MS: u64 = 1000;

/// Writes the files.
#[derive(Debug)]
pub struct Exporter {
    config: ExportConfig,
    state_dir: PathBuf,
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
    /// The second value warns of rows that cannot be read, which are lost.
    #[must_use]
    pub fn new(config: ExportConfig, state_dir: &Path, now_ms: UnixMillis) -> (Self, Option<String>) {
        let path = state_dir.join(WINDOW_FILE);
        let window = match fs::read(&path) {
            Ok(bytes) => thermo_fleet::read(bytes)
                .map(Some)
                .map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        let (window, warning) = match window {
            Ok(window) => (window, None),
            Err(error) => {
                let lost = format!("{} cannot be read, its rows are lost: {error}", path.display());
                (None, Some(lost))
            }
        };
        let exporter = Self {
            folder: Folder::new(&config),
            begin_ms: now_ms,
            next_ms: next_multiple(now_ms, config.every_ms()),
            state_dir: state_dir.to_owned(),
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
    /// The rows or a file cannot be written. Rows of the window that runs are written with the next interval.
    /// While a finished window cannot be moved to the folder, rows of later intervals are lost.
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
            self.window_of(time_ms)?.extend(rows.into_iter().map(|row| Row {
                time_ms,
                interval_ms,
                node: node.clone(),
                ..row
            }));
        }
        self.save(now_ms)?;
        // A window that ends with this interval is complete.
        self.close_if_over(next_multiple(time_ms, every_ms))
    }

    /// Files and bytes in the folder, and how many files were dropped since the start.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn status(&self) -> Result<api::Export, ExportError> {
        let waiting = self.folder.waiting().map_err(|source| ExportError::Io {
            path: self.config.folder.clone(),
            source,
        })?;
        Ok(api::Export {
            files: waiting.len() as u64,
            bytes: waiting.iter().map(|file| file.bytes).sum(),
            dropped_files: self.dropped,
        })
    }

    /// The rows of the window that an interval which ends at `time_ms` is in. A window before it is over.
    fn window_of(&mut self, time_ms: UnixMillis) -> Result<&mut Vec<Row>, ExportError> {
        self.close_if_over(time_ms)?;
        let facts = self.facts(time_ms);
        let (window, rows) = self.window.get_or_insert_default();
        *window = facts;
        Ok(rows)
    }

    /// Moves the window that runs to the folder if an interval that ends at `time_ms` is not in it. The name
    /// tells windows apart: what else differs after a change of the configuration, or an upgrade, does not
    /// end a window.
    fn close_if_over(&mut self, time_ms: UnixMillis) -> Result<(), ExportError> {
        let Some((facts, _)) = &self.window else {
            return Ok(());
        };
        let name = file_name(facts)?;
        if name == file_name(&self.facts(time_ms))? {
            return Ok(());
        }
        let from = self.state_dir.join(WINDOW_FILE);
        let to = self.config.folder.join(name);
        self.folder
            .take(&from, &to)
            .map_err(|source| ExportError::Io { path: to, source })?;
        self.window = None;
        self.dropped += self.folder.drop_oldest().map_err(|source| ExportError::Io {
            path: self.config.folder.clone(),
            source,
        })?;
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
        let path = self.state_dir.join(WINDOW_FILE);
        durable_file::replace(&path, &bytes).map_err(|source| ExportError::Io { path, source })
    }
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
