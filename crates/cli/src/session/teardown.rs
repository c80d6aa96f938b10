//! The end of a session: closes the recording, prints why the session ended, and waits for the command.

use std::io::{self, IsTerminal};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use thermo_kernel::signals;
use thermo_recording::Recorder;
use thermo_report::style::percent;
use thermo_term::exit::Exit;
use thermo_term::interrupt;

use super::{Done, EndReason, Outcome, SchemeTotal};

/// How often the command is checked for its end.
const POLL: Duration = Duration::from_millis(20);

/// A session that has ended: a recording to close, a command to wait for.
pub struct Teardown {
    end: EndReason,
    recorder: Option<Recorder>,
    child: Option<Child>,
    /// Why schemes were never applied.
    inactive: Vec<String>,
    unknown_share: Option<f64>,
}

impl Teardown {
    /// The end of the session `done`.
    pub fn new(done: Done) -> Self {
        let Outcome { end, sink, .. } = done.outcome;
        Self {
            end,
            inactive: sink
                .schemes
                .iter()
                .filter_map(SchemeTotal::inactive_reason)
                .collect(),
            unknown_share: sink.unknown_share,
            recorder: sink.recorder,
            child: done.child,
        }
    }

    /// Closes the recording.
    ///
    /// # Errors
    /// The end cannot be written. Complete batches stay in the file.
    pub fn close_recording(&mut self) -> anyhow::Result<()> {
        if let Some(recorder) = self.recorder.take() {
            recorder.finish()?;
        }
        Ok(())
    }

    /// The unknown share of memory in parentheses, to follow a sentence; empty when no target lived at the
    /// end.
    pub fn unknown_text(&self) -> String {
        self.unknown_share.map_or_else(String::new, |share| {
            format!(
                " (the idle age of {} of the memory was unknown at the end)",
                percent(share)
            )
        })
    }

    /// Prints why the session ended and why schemes were never applied, where that is not obvious.
    pub fn report(&mut self) {
        self.inactive
            .iter()
            .for_each(|why| thermo_kernel::message!("thermo: {why}"));
        let runs = self.child.as_mut().is_some_and(is_running);
        match (self.end, &self.child) {
            (EndReason::TargetsGone, None) => thermo_kernel::message!("thermo: every target has ended"),
            (EndReason::TimePassed, Some(child)) if runs => {
                thermo_kernel::message!(
                    "thermo: the duration has passed; the command (pid {}) keeps running",
                    child.id()
                );
            }
            _ => {}
        }
    }

    /// Waits for the command. Returns its exit status, or the result of the session.
    pub fn wait(self) -> anyhow::Result<Exit> {
        let failed = self.end == EndReason::Failed;
        match self.child {
            // The command runs to its own end, unmonitored.
            Some(child) if failed => {
                wait_for(child)?;
                Ok(Exit::Failed)
            }
            None if failed => Ok(Exit::Failed),
            Some(child) => Ok(Exit::ChildStatus(wait_for(child)?)),
            None if self.end == EndReason::Interrupted => Ok(Exit::Interrupted),
            None => Ok(Exit::Done),
        }
    }
}

fn is_running(child: &mut Child) -> bool {
    // An error comes up again when the command is waited for.
    matches!(child.try_wait(), Ok(None))
}

/// Waits for a started command. The first signal that ends us is forwarded to it.
///
/// # Errors
/// The wait fails.
pub fn wait_for(mut child: Child) -> anyhow::Result<ExitStatus> {
    let mut forwarded = false;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
            return Ok(status);
        }
        if interrupt::requested() && !forwarded {
            forwarded = true;
            forward_signal(&child);
        }
        thread::sleep(POLL);
    }
}

/// Forwards the signal that ends us. Ctrl-C on a terminal has reached the command already.
fn forward_signal(child: &Child) {
    let signal = match signals::last() {
        Some(number) if number == Signal::INT.as_raw() && io::stdin().is_terminal() => return,
        Some(number) if number == Signal::INT.as_raw() => Signal::INT,
        Some(number) if number == Signal::HUP.as_raw() => Signal::HUP,
        _ => Signal::TERM,
    };
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The child is not reaped yet, so the process ID is still its own. It may have ended.
        let _ = kill_process(pid, signal);
    }
}
