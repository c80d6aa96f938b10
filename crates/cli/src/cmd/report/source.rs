//! What a report is made of: a recording, or a part of the agent's history.

use std::path::{Path, PathBuf};

use thermo_recording::model::{Metadata, Record};
use thermo_recording::{Recording, Truncated, is_being_written, open};
use thermo_report::Accumulator;
use thermo_term::exit::Exit;

use super::formats::{OutputFormat, Printable};
use crate::args::past::{Past, PastRecords};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Source {
    /// A recording, or the JSON of `damo record`
    #[arg(default_value = "thermo.arrow", conflicts_with = "since")]
    recording: PathBuf,

    #[command(flatten)]
    past: Past,
}

/// The records.
pub(super) enum Input {
    Recording {
        recording: Box<Recording>,
        /// It was being written when it was opened, so a missing end mark is no error.
        in_progress: bool,
    },
    Past(Box<PastRecords>),
}

impl Source {
    /// Opens the recording or the history.
    pub(super) fn open(&self) -> anyhow::Result<Input> {
        if let Some(past) = self.past.open()? {
            return Ok(Input::Past(Box::new(past)));
        }
        let in_progress = is_being_written(&self.recording);
        let recording = Box::new(open(&self.recording)?);
        Ok(Input::Recording {
            recording,
            in_progress,
        })
    }

    /// Feeds every record to an accumulator. Returns its report, and the exit code by [`Input::finish`].
    pub(super) fn sum_up<A: Accumulator>(
        &self,
        accumulator: impl FnOnce(&Metadata) -> A,
    ) -> anyhow::Result<(A::Report, Exit)> {
        sum_up(self.open()?, |metadata| Ok(accumulator(metadata)))
    }

    /// Prints the report.
    pub(super) fn print<A: Accumulator>(
        &self,
        format: OutputFormat,
        accumulator: impl FnOnce(&Metadata) -> A,
    ) -> anyhow::Result<Exit>
    where
        A::Report: Printable,
    {
        let (report, exit) = self.sum_up(accumulator)?;
        format.print(&report)?;
        Ok(exit)
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        match self.past.state_dir() {
            Some(state_dir) => format!("the history in {}", state_dir.display()),
            None => self.recording.display().to_string(),
        }
    }
}

impl Input {
    pub(super) fn metadata(&self) -> &Metadata {
        match self {
            Self::Recording { recording, .. } => &recording.metadata,
            Self::Past(past) => past.metadata(),
        }
    }

    /// The exit code after the last record: 1, with a warning, for a truncated recording or a history with
    /// unreadable segments.
    ///
    /// # Errors
    /// The history has nothing of what was asked for.
    pub(super) fn finish(&self) -> anyhow::Result<Exit> {
        match self {
            Self::Recording {
                recording,
                in_progress,
            } => Ok(exit_of(recording, *in_progress)),
            Self::Past(past) => past.finish(),
        }
    }
}

impl Iterator for Input {
    type Item = anyhow::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Recording { recording, .. } => recording.next().map(|record| Ok(record?)),
            Self::Past(past) => past.next().map(Ok),
        }
    }
}

/// Feeds every record of `recording` to an accumulator. Returns its report, and the exit code: 1 for a
/// truncated recording.
///
/// # Errors
/// The recording cannot be read, or `accumulator` fails.
pub(in crate::cmd) fn read<A: Accumulator>(
    recording: &Path,
    accumulator: impl FnOnce(&Metadata) -> anyhow::Result<A>,
) -> anyhow::Result<(A::Report, Exit)> {
    let in_progress = is_being_written(recording);
    let recording = Box::new(open(recording)?);
    let input = Input::Recording {
        recording,
        in_progress,
    };
    sum_up(input, accumulator)
}

fn sum_up<A: Accumulator>(
    mut input: Input,
    accumulator: impl FnOnce(&Metadata) -> anyhow::Result<A>,
) -> anyhow::Result<(A::Report, Exit)> {
    let mut accumulator = accumulator(input.metadata())?;
    for record in input.by_ref() {
        accumulator.add(&record?);
    }
    let exit = input.finish()?;
    Ok((accumulator.finish(), exit))
}

fn exit_of(recording: &Recording, in_progress: bool) -> Exit {
    let Some(Truncated {
        whole_bytes,
        lost_bytes,
    }) = recording.truncated()
    else {
        return Exit::Done;
    };
    let path = recording.path().display();
    if in_progress {
        thermo_kernel::message!(
            "thermo: {path} is still being written: the report covers its first {whole_bytes} bytes"
        );
        return Exit::Done;
    }
    thermo_kernel::message!(
        "thermo: {path} is truncated: the report covers its first {whole_bytes} bytes; {lost_bytes} bytes of an \
         incomplete batch were skipped"
    );
    Exit::Negative
}
