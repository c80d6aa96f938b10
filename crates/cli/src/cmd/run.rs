//! `thermo run`: start a program, watch it from its beginning, sum up what was seen.

use std::path::Path;

use anyhow::ensure;
use thermo_report::Accumulator;
use thermo_report::summary::SummaryAccumulator;
use thermo_term::exit::Exit;

use super::record::Record;
use crate::session::Ending;
use crate::terminal;

/// Start a program, watch its memory, and sum up what was seen.
///
/// The program keeps the standard streams, so the summary goes to standard error. Ends as the program did.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo run -- redis-server --port 7777
  thermo run --schemes schemes/proactive_reclaim.damos --dry-run -- ./server")]
// What runs already can be recorded, but not run.
#[command(
    mut_arg("pid", |arg| arg.hide(true)), mut_arg("cgroup", |arg| arg.hide(true)),
    mut_arg("system", |arg| arg.hide(true)), mut_arg("exclude", |arg| arg.hide(true)),
)]
pub struct Run {
    #[command(flatten)]
    record: Record,
}

impl Run {
    /// Records, sums up, and ends as the program did.
    pub fn run(self) -> anyhow::Result<Exit> {
        ensure!(
            self.record.has_command(),
            "no command is given: write it after --, like  thermo run -- redis-server"
        );
        let path = self.record.output().to_owned();
        let mut ending = Ending::of(self.record.plan()?.carry_out()?);
        let closed = ending.close();
        ending.tell();
        let summed_up = closed.and_then(|()| sum_up(&path));
        let exit = ending.wait()?;
        summed_up.map(|()| exit)
    }
}

fn sum_up(path: &Path) -> anyhow::Result<()> {
    let mut recording = thermo_recording::open(path)?;
    let mut summary = SummaryAccumulator::new(&recording.metadata);
    for record in recording.by_ref() {
        summary.add(&record?);
    }
    eprintln!(
        "\n{}",
        summary.finish().text(&terminal::style_of_stderr()).trim_end()
    );
    eprintln!(
        "\nThe recording is {0}; `thermo report heatmap {0} --html heatmap.html` makes a page of it.",
        path.display()
    );
    Ok(())
}
