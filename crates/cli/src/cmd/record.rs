//! `thermo record`: watch into a recording.

use thermo_term::exit::Exit;

use crate::args::{Acting, Monitoring, Output, TargetsOrMachine};
use crate::session::{Ending, Plan};

/// Watch processes, and write down which memory they touch.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo record --pid 4242 --duration 30s
  thermo record -o build.arrow -- make -j4
  thermo record --system --duration 1m")]
pub struct Record {
    #[command(flatten)]
    targets: TargetsOrMachine,

    #[command(flatten)]
    monitoring: Monitoring,

    #[command(flatten)]
    acting: Acting,

    #[command(flatten)]
    output: Output,
}

impl Record {
    /// Ends as the command that was started did, or with 0 when the targets ended or the time passed.
    pub fn run(self) -> anyhow::Result<Exit> {
        let path = self.output.output.clone();
        let mut ending = Ending::of(self.plan()?.carry_out()?);
        let closed = ending.close();
        ending.tell();
        if closed.is_ok() {
            eprintln!("thermo: the recording is {}{}", path.display(), ending.unknown());
        }
        let exit = ending.wait()?;
        closed.map(|()| exit)
    }

    /// What these flags say, checked.
    pub fn plan(self) -> anyhow::Result<Plan> {
        Ok(Plan {
            attrs: self.monitoring.attrs()?,
            schemes: self.acting.read()?,
            limits: self.acting.limits,
            targets: self.targets.checked()?,
            monitoring: self.monitoring,
            duration: self.output.duration,
            output: Some(self.output.output),
        })
    }

    /// Whether there is a command to start.
    pub fn has_command(&self) -> bool {
        self.targets.has_command()
    }

    /// Where the recording goes.
    pub fn output(&self) -> &std::path::Path {
        &self.output.output
    }
}
