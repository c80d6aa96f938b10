//! `thermo-lab workload`: accesses memory in a known pattern.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};
use thermo_units::{Nanos, text};
use thermo_workload::{Config, HintMethod, Mode, Options, Summary, TruthWriter, run};

/// How often the thread checks for a signal and for the end of the duration.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Access memory as a masim configuration describes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo-lab workload workloads/stairs.cfg
  thermo-lab workload workloads/hot-cold.cfg --duration 30s --truth truth.jsonl")]
pub struct Workload {
    /// Configuration file, in masim's format
    file: PathBuf,

    /// Print the configuration as parsed, and exit
    #[arg(long)]
    print_config: bool,

    /// Map the regions without accessing them
    #[arg(long)]
    dry_run: bool,

    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,

    /// Access mode of patterns that give none: ro, wo or rw
    #[arg(long, value_name = "MODE", default_value = "wo")]
    default_rw_mode: Mode,

    /// Ask for huge pages
    #[arg(long)]
    huge_pages: bool,

    /// Run the whole configuration this many times
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "duration")]
    repeat: u64,

    /// Repeat the configuration for this long
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,

    /// How the kernel is informed at the start of each phase which regions it uses: none, madvise or mlock
    #[arg(long, value_name = "METHOD", default_value = "none")]
    hint: HintMethod,

    /// Print the number of accesses at this interval
    #[arg(long, value_name = "TIME")]
    log_interval: Option<Nanos>,

    /// Log which bytes were accessed when, as JSON lines
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,

    /// Time that one line of the truth file covers
    #[arg(long, value_name = "TIME", default_value = "100ms", requires = "truth")]
    truth_span: Nanos,

    /// Seed of the random addresses
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
}

impl Workload {
    /// Runs the workload to its end, or until the first Ctrl-C.
    pub fn run(self) -> anyhow::Result<Exit> {
        let config = read(&self.file)?;
        if self.print_config {
            output::text(&config.print())?;
            return Ok(Exit::Done);
        }
        let options = self.options();
        interrupt::listen()?;
        stop_at_signal_or_after(Arc::clone(&options.stop), self.duration);
        let begin = Instant::now();
        let summary = match &self.truth {
            None => run(&config, &options, &mut |_| {})?,
            Some(path) => run_with_truth(&config, &options, path)?,
        };
        if self.log_interval.is_some() && !self.quiet {
            print_total(&summary, begin.elapsed())?;
        }
        Ok(if interrupt::requested() {
            Exit::Interrupted
        } else {
            Exit::Done
        })
    }

    fn options(&self) -> Options {
        Options {
            default_mode: self.default_rw_mode,
            huge_pages: self.huge_pages,
            repeat: if self.duration.is_some() {
                u64::MAX
            } else {
                self.repeat
            },
            quiet: self.quiet,
            dry_run: self.dry_run,
            hint: self.hint,
            log_interval: self.log_interval,
            truth_span: self.truth.as_ref().map(|_| self.truth_span),
            seed: self.seed,
            stop: Arc::new(AtomicBool::new(false)),
        }
    }
}

/// Prints the last line of the log. Experiment files parse it.
fn print_total(summary: &Summary, elapsed: Duration) -> std::io::Result<()> {
    let (accesses, us) = (summary.nr_accesses, elapsed.as_micros().max(1));
    let per_ms = u128::from(accesses) * 1000 / us;
    output::text(&format!("all: {accesses} accesses in {us} us, {per_ms} a ms"))
}

fn read(file: &Path) -> anyhow::Result<Config> {
    let text =
        text::read_file(file).with_context(|| format!("cannot read the configuration {}", file.display()))?;
    Config::parse(&text).map_err(|error| anyhow!(error.in_file(&file.display().to_string())))
}

fn run_with_truth(config: &Config, options: &Options, path: &Path) -> anyhow::Result<Summary> {
    let cannot_write = || format!("cannot write the truth file {}", path.display());
    let writer = TruthWriter::create(path).with_context(cannot_write)?;
    let summary = run(config, options, &mut |truth| writer.write(truth))?;
    writer.finish().with_context(cannot_write)?;
    Ok(summary)
}

/// Sets `stop` at the first signal, or after `duration`. The thread runs until the process ends.
fn stop_at_signal_or_after(stop: Arc<AtomicBool>, duration: Option<Nanos>) {
    let begin = Instant::now();
    let is_over =
        move || duration.is_some_and(|duration| begin.elapsed() >= Duration::from_nanos(duration.0));
    thread::spawn(move || {
        while !interrupt::requested() && !is_over() {
            thread::sleep(POLL_INTERVAL);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
