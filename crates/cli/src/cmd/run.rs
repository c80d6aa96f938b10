//! `thermo run`: starts a program, records it, and prints a summary.

use std::path::Path;

use anyhow::ensure;
use thermo_report::Accumulator;
use thermo_report::summary::SummaryAccumulator;
use thermo_term::exit::Exit;

use super::record::Record;
use crate::session::Teardown;
use crate::terminal;

/// Start a program, record which memory it accesses, and print a summary.
///
/// The program keeps the standard streams, so the summary goes to standard error. The exit code is the
/// program's.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo run -- redis-server --port 7777
  thermo run --schemes schemes/proactive_reclaim.damos --dry-run -- ./server")]
// Running processes can be recorded, but not started.
#[command(
    mut_arg("pid", |arg| arg.hide(true)), mut_arg("cgroup", |arg| arg.hide(true)),
    mut_arg("system", |arg| arg.hide(true)), mut_arg("unit", |arg| arg.hide(true)), mut_arg("exclude", |arg| arg.hide(true)),
)]
pub struct Run {
    #[command(flatten)]
    record: Record,
}

impl Run {
    /// Records, prints the summary, and exits with the code of the program.
    pub fn run(self) -> anyhow::Result<Exit> {
        ensure!(
            self.record.has_command(),
            "no command is given: write it after --, like  thermo run -- redis-server"
        );
        let path = self.record.output().to_owned();
        let mut teardown = Teardown::new(self.record.plan()?.run()?);
        let closed = teardown.close_recording();
        teardown.report();
        let printed = closed.and_then(|()| print_summary(&path));
        let exit = teardown.wait()?;
        printed.map(|()| exit)
    }
}

fn print_summary(path: &Path) -> anyhow::Result<()> {
    let mut recording = thermo_recording::open(path)?;
    let mut summary = SummaryAccumulator::new(&recording.metadata);
    for record in recording.by_ref() {
        summary.add(&record?);
    }
    thermo_kernel::message!(
        "\n{}",
        summary.finish().text(&terminal::stderr_style()).trim_end()
    );
    thermo_kernel::message!(
        "\nThe recording is {0}; `thermo report heatmap {0} --html heatmap.html` draws it as an HTML page.",
        path.display()
    );
    Ok(())
}
