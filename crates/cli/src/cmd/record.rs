//! `thermo record`: monitors processes and writes a recording.

use thermo_term::exit::Exit;

use crate::args::{Monitoring, Output, SchemeOpts, TargetsOrSystem};
use crate::session::{Migration, Plan, Teardown};

/// Monitor processes, and record which memory they access.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo record --pid 4242 --duration 30s
  thermo record -o build.arrow -- make -j4
  thermo record --system --duration 1m")]
pub struct Record {
    #[command(flatten)]
    targets: TargetsOrSystem,

    #[command(flatten)]
    monitoring: Monitoring,

    #[command(flatten)]
    schemes: SchemeOpts,

    #[command(flatten)]
    output: Output,
}

impl Record {
    /// Records. Exits with the code of the started command, or with 0 when the targets ended or the duration
    /// passed.
    pub fn run(self) -> anyhow::Result<Exit> {
        let path = self.output.output.clone();
        let mut teardown = Teardown::new(self.plan()?.run()?);
        let closed = teardown.close_recording();
        teardown.report();
        if closed.is_ok() {
            thermo_kernel::message!(
                "thermo: the recording is {}{}",
                path.display(),
                teardown.unknown_text()
            );
        }
        let exit = teardown.wait()?;
        closed.map(|()| exit)
    }

    /// The plan of the session, checked.
    pub fn plan(self) -> anyhow::Result<Plan> {
        Ok(Plan {
            attrs: self.monitoring.attrs()?,
            schemes: self.schemes.read()?,
            limits: self.schemes.limits,
            targets: self.targets.checked()?,
            monitoring: self.monitoring,
            duration: self.output.duration,
            output: Some(self.output.output),
            migration: Migration::default(),
        })
    }

    /// Whether there is a command to start.
    pub fn has_command(&self) -> bool {
        self.targets.has_command()
    }

    /// The file of the recording.
    pub fn output(&self) -> &std::path::Path {
        &self.output.output
    }
}
