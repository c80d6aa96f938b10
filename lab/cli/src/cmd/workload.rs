//! `thermo-lab workload`: memory accesses of a known pattern.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};
use thermo_units::Nanos;
use thermo_workload::{Config, HintMethod, Mode, Options, Summary, TruthWriter, run};

/// How soon an interruption or the end of the duration is noticed.
const POLL: Duration = Duration::from_millis(20);

/// Make the memory accesses that a masim configuration describes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo-lab workload workloads/stairs.cfg
  thermo-lab workload workloads/hot-cold.cfg --duration 30s --truth truth.jsonl")]
pub struct Workload {
    /// The configuration, in masim's format
    file: PathBuf,

    /// Print the configuration as it was understood, and do nothing
    #[arg(long)]
    print_config: bool,

    /// Map the regions, but make no access
    #[arg(long)]
    dry_run: bool,

    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,

    /// What an access does where the configuration does not say: ro, wo or rw
    #[arg(long, value_name = "MODE", default_value = "wo")]
    default_rw_mode: Mode,

    /// Ask for huge pages
    #[arg(long)]
    huge_pages: bool,

    /// How many times the whole configuration is run
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "duration")]
    repeat: u64,

    /// Run the configuration again and again for this long
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,

    /// Tell the system at the begin of a phase what it will use: none, madvise or mlock
    #[arg(long, value_name = "METHOD", default_value = "none")]
    hint: HintMethod,

    /// Print how many accesses were made, each time this span has passed
    #[arg(long, value_name = "TIME")]
    log_interval: Option<Nanos>,

    /// Write which bytes were touched when, as JSON lines
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,

    /// Length of the spans of the truth
    #[arg(long, value_name = "TIME", default_value = "100ms", requires = "truth")]
    truth_span: Nanos,

    /// What draws the random addresses
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
}

impl Workload {
    /// Runs it to its end, or to the first Ctrl-C.
    pub fn run(self) -> anyhow::Result<Exit> {
        let config = read(&self.file)?;
        if self.print_config {
            output::text(&config.print())?;
            return Ok(Exit::Done);
        }
        let options = self.options();
        interrupt::listen()?;
        stop_in_time(Arc::clone(&options.stop), self.duration);
        let begin = Instant::now();
        let summary = match &self.truth {
            None => run(&config, &options, &mut |_| {})?,
            Some(path) => run_with_truth(&config, &options, path)?,
        };
        if self.log_interval.is_some() && !self.quiet {
            tell_all(&summary, begin.elapsed())?;
        }
        Ok(if interrupt::asked() {
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

/// The last line of the log.
fn tell_all(summary: &Summary, span: Duration) -> std::io::Result<()> {
    let (made, us) = (summary.nr_accesses, span.as_micros().max(1));
    let per_ms = u128::from(made) * 1000 / us;
    output::text(&format!("all: {made} accesses in {us} us, {per_ms} a ms"))
}

fn read(file: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the configuration {}", file.display()))?;
    Config::parse(&text).map_err(|fault| anyhow!(fault.in_file(&file.display().to_string())))
}

fn run_with_truth(config: &Config, options: &Options, path: &Path) -> anyhow::Result<Summary> {
    let cannot_write = || format!("cannot write the truth to {}", path.display());
    let writer = TruthWriter::create(path).with_context(cannot_write)?;
    let summary = run(config, options, &mut |truth| writer.write(truth))?;
    writer.finish().with_context(cannot_write)?;
    Ok(summary)
}

/// Sets `stop` at the first signal, or when `duration` has passed. The thread ends with the process.
fn stop_in_time(stop: Arc<AtomicBool>, duration: Option<Nanos>) {
    let begin = Instant::now();
    let over = move || duration.is_some_and(|duration| begin.elapsed() >= Duration::from_nanos(duration.0));
    thread::spawn(move || {
        while !interrupt::asked() && !over() {
            thread::sleep(POLL);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
