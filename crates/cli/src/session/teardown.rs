//! The end of a session: the recording is closed, the user is told, the command is waited for.

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

use super::{Done, End, Outcome, Total};

/// How soon the end of the command is noticed.
const POLL: Duration = Duration::from_millis(20);

/// A recording that is whole, and what is left to wait for.
pub struct Ending {
    end: End,
    recorder: Option<Recorder>,
    child: Option<Child>,
    /// Why schemes never acted.
    rested: Vec<String>,
    unknown_share: Option<f64>,
}

impl Ending {
    /// Takes over what a session leaves.
    pub fn of(done: Done) -> Self {
        let Outcome { end, sink } = done.outcome;
        Self {
            end,
            rested: sink.schemes.iter().filter_map(Total::rested).collect(),
            unknown_share: sink.unknown_share,
            recorder: sink.recorder,
            child: done.child,
        }
    }

    /// Closes the recording.
    ///
    /// # Errors
    /// It could not be written to its end; what is whole is kept.
    pub fn close(&mut self) -> anyhow::Result<()> {
        if let Some(recorder) = self.recorder.take() {
            recorder.finish()?;
        }
        Ok(())
    }

    /// How much of the targets could not be judged, to stand behind a sentence; empty where no target is left.
    pub fn unknown(&self) -> String {
        self.unknown_share.map_or_else(String::new, |share| {
            format!(" ({} of the memory is unknown)", percent(share))
        })
    }

    /// Tells why the session ended and why schemes never acted, where that is not plain.
    pub fn tell(&mut self) {
        self.rested.iter().for_each(|why| eprintln!("thermo: {why}"));
        let runs = self.child.as_mut().is_some_and(is_running);
        match (self.end, &self.child) {
            (End::TargetsGone, None) => eprintln!("thermo: every target has ended"),
            (End::TimePassed, Some(child)) if runs => {
                eprintln!(
                    "thermo: the time has passed; the command (pid {}) goes on",
                    child.id()
                );
            }
            _ => {}
        }
    }

    /// Waits for the command, and ends as it does.
    pub fn wait(self) -> anyhow::Result<Exit> {
        let failed = self.end == End::Failed;
        match self.child {
            // It goes on without us, to its own end.
            Some(child) if failed => {
                wait_for(child)?;
                Ok(Exit::Failed)
            }
            None if failed => Ok(Exit::Failed),
            Some(child) => Ok(Exit::As(wait_for(child)?)),
            None if self.end == End::Interrupted => Ok(Exit::Interrupted),
            None => Ok(Exit::Done),
        }
    }
}

fn is_running(child: &mut Child) -> bool {
    // What cannot be asked is found out when it is waited for.
    matches!(child.try_wait(), Ok(None))
}

/// Waits for a command that was started; the first signal that asks us to end is passed on to it.
///
/// # Errors
/// It cannot be waited for.
pub fn wait_for(mut child: Child) -> anyhow::Result<ExitStatus> {
    let mut passed_on = false;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
            return Ok(status);
        }
        if interrupt::asked() && !passed_on {
            passed_on = true;
            pass_on(&child);
        }
        thread::sleep(POLL);
    }
}

/// Passes on the signal that asked us to end. Ctrl-C on a terminal has reached the command already.
fn pass_on(child: &Child) {
    let signal = match signals::last() {
        Some(number) if number == Signal::INT.as_raw() && io::stdin().is_terminal() => return,
        Some(number) if number == Signal::INT.as_raw() => Signal::INT,
        Some(number) if number == Signal::HUP.as_raw() => Signal::HUP,
        _ => Signal::TERM,
    };
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It is not waited for yet, so the number is still its own; it may have ended.
        let _ = kill_process(pid, signal);
    }
}
