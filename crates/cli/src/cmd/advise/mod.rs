//! `thermo advise`: what proactive reclaim would save and cost, before anything is touched.

mod content;
mod costs;
mod scheme;
mod swap_facts;
mod tiers;

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use thermo_kernel::clock;
use thermo_recording::ReadError;
use thermo_recording::model::{Record, Snapshot};
use thermo_report::Accumulator;
use thermo_report::advice::{
    Advice, AdviceAccumulator, Bounds, ContentSample, Exclusive, PageCosts, Question, Watched,
};
use thermo_report::tiers::{TierAccumulator, TierNeeds};
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::{Nanos, Permille, SharePerMinute};

use crate::args::past::{Past, PastRecords};
use crate::args::{Limits, Monitoring, TargetsOrSystem};
use crate::session::{Migration, Plan, Teardown};
use crate::{output_file, terminal};

/// Watch programs, touch nothing, and advise on proactive reclaim: what it would save, what it would cost,
/// and which minimum age to set.
///
/// A minimum age is judged after twice its time: 5 minutes tell about ages of up to 2 minutes. Some pages are
/// read and compressed at the end, to learn what they compress to. Exit code 1: it is not worth it, or the
/// time was too short to tell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo advise --pid 4242
  thermo advise --cgroup /system.slice/redis.service --duration 30m -o advised.toml
  thermo advise thermo.arrow --json
  thermo advise thermo.arrow --tiers --fast-ns 90 --slow-ns 250
  thermo advise --since -1d --target nginx.service")]
pub struct Advise {
    /// Advise from this recording instead of watching
    #[arg(value_name = "RECORDING", conflicts_with_all = ["since", "pid", "cgroup", "unit", "system", "command"])]
    recording: Option<PathBuf>,

    #[command(flatten)]
    past: Past,

    #[command(flatten)]
    targets: TargetsOrSystem,

    #[command(flatten)]
    monitoring: Monitoring,

    /// How long to watch
    #[arg(long, value_name = "TIME", default_value = "5m")]
    duration: Nanos,

    /// Refaults to accept, as a share of the working set (the memory accessed within a minute)
    #[arg(long, value_name = "SHARE", default_value = "0.2%/min")]
    max_refaults: SharePerMinute,

    /// Advise against it if less than this share of what leaves is saved
    #[arg(long, value_name = "PERCENT", default_value = "10%")]
    min_net: Permille,

    /// Do not read pages: what they compress to is then assumed
    #[arg(long)]
    no_sample_content: bool,

    /// Write the advised scheme to this file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Keep the recording in this file
    #[arg(long, value_name = "FILE", conflicts_with = "recording")]
    record: Option<PathBuf>,

    #[command(flatten)]
    tiers: tiers::Tiers,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Write a page with the curve of memory kept against refaults
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Pages drawn of each idle age, of which some hundred are sampled. The others stand in for pages that went
/// away.
const PAGES_PER_AGE: usize = 2000;

/// More processes are not printed as flags.
const MAX_PIDS: usize = 8;

/// What is known after watching.
struct Seen {
    watched: Watched,
    tiers: TierNeeds,
    samples: Vec<ContentSample>,
    exclusive: Exclusive,
    /// The targets as flags, and in words.
    flags: String,
    targets: String,
    is_here: bool,
}

impl Advise {
    /// Watches or reads the recording, and prints the advice.
    pub fn run(mut self) -> anyhow::Result<Exit> {
        self.tiers.check()?;
        if let Some(path) = self.recording.take() {
            let recording = thermo_recording::open(&path)?;
            let targets = recording.metadata.targets.clone();
            let (watched, tiers, _) = read(&path)?;
            return self.answer(Seen {
                watched,
                tiers,
                samples: Vec::new(),
                exclusive: Exclusive::default(),
                flags: "--pid PID".to_owned(),
                targets,
                is_here: false,
            });
        }
        if let Some(past) = self.past.open()? {
            return self.advise_from(past);
        }
        let (targets, monitoring) = (self.targets.clone().checked()?, self.monitoring.clone());
        let (flags, in_words) = (targets.flags(), targets.describe());
        // Without a name, it is gone when this process ends in whatever way.
        let unnamed = tempfile::tempfile().context("cannot create a temporary file for the recording")?;
        let path = self
            .record
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("/proc/self/fd/{}", unnamed.as_raw_fd())));
        let plan = Plan {
            attrs: monitoring.attrs()?,
            schemes: Vec::new(),
            limits: Limits::default(),
            targets,
            monitoring,
            duration: Some(self.duration),
            output: Some(path.clone()),
            migration: Migration::default(),
        };
        let mut done = plan.run()?;
        let (ended_at, context) = (clock::monotonic(), done.outcome.context.take());
        let mut teardown = Teardown::new(done);
        teardown.close_recording()?;
        let (watched, tiers, last) = read(&path)?;
        let seed = self.monitoring.seed;
        let strata = context.zip(last).map(|(context, last)| {
            content::strata(&last, &context.sample_pages(ended_at, PAGES_PER_AGE, seed))
        });
        let strata = strata.unwrap_or_default();
        // Without --shared, memory that several processes map is unknown and in no figure.
        let exclusive = if self.monitoring.is_shared() {
            content::sample_exclusive(&strata, seed)
        } else {
            Vec::new()
        };
        let samples = if self.no_sample_content {
            Vec::new()
        } else {
            content::sample(&strata, seed)?
        };
        teardown.report();
        let answered = self.answer(Seen {
            watched,
            tiers,
            samples,
            exclusive: Exclusive(exclusive),
            flags,
            targets: in_words,
            is_here: true,
        });
        // A started command runs to its end; its exit code is ours only if it failed.
        match teardown.wait()? {
            Exit::Done => answered,
            exit => answered.map(|_| exit),
        }
    }

    /// Advises from the history. Nothing is read of the processes: some may have ended long ago.
    fn advise_from(&self, mut past: PastRecords) -> anyhow::Result<Exit> {
        let targets = past.metadata().targets.clone();
        let records = past.by_ref().map(Ok::<_, ReadError>);
        let (watched, tiers, last) = accumulate(records)?;
        past.finish()?;
        self.answer(Seen {
            watched,
            tiers,
            samples: Vec::new(),
            exclusive: Exclusive::default(),
            flags: pids(last.as_ref()),
            targets,
            is_here: true,
        })
    }

    /// Prints the advice and writes the files.
    fn answer(&self, seen: Seen) -> anyhow::Result<Exit> {
        if let Some(why) = seen.watched.unavailable_reason() {
            bail!(why);
        }
        if self.tiers.tiers {
            match self.json {
                true => output::json(&self.tiers.json(&seen.tiers)?)?,
                false => output::text(&self.tiers.text(&seen.tiers))?,
            }
            return Ok(Exit::Done);
        }
        let question = Question {
            bounds: Bounds {
                max_refaults: self.max_refaults,
                min_net: f64::from(self.min_net.0) / 1000.0,
            },
            samples: seen.samples,
            exclusive: seen.exclusive,
            costs: seen.is_here.then(measured_costs).flatten(),
            swap: seen.is_here.then(swap_facts::read).transpose()?,
        };
        let advice = seen.watched.advise(&question);
        let written = match &self.output {
            Some(path) => scheme::write(path, &advice, &seen.targets)?,
            None => false,
        };
        if let Some(path) = &self.html {
            let html = advice.html();
            output_file::write(path, |file| {
                file.write_all(html.as_bytes())
                    .with_context(|| format!("cannot write {}", path.display()))
            })?;
            thermo_kernel::message!("thermo: wrote {}", path.display());
        }
        let file = self.output.as_deref().filter(|_| written);
        let command = command(&advice, file, &seen.flags);
        if self.json {
            output::json(&json(&advice, file, command.as_deref())?)?;
        } else {
            let mut text = advice.text(&terminal::stdout_style());
            if let Some(command) = command {
                text.push_str(&format!(
                    "Try it:  {command}\nUndo it: thermo pagein {}\n",
                    seen.flags
                ));
            }
            output::text(&text)?;
        }
        Ok(if advice.advice.worth {
            Exit::Done
        } else {
            Exit::Negative
        })
    }
}

/// What paging costs here. A failure costs two columns, not what was watched for minutes.
fn measured_costs() -> Option<PageCosts> {
    costs::measure().unwrap_or_else(|error| {
        thermo_kernel::message!("thermo: the cost of paging is not known: {error:#}");
        None
    })
}

/// The command that does what is advised; `None` if nothing is.
fn command(advice: &Advice, file: Option<&Path>, flags: &str) -> Option<String> {
    let min_age_s = advice.advice.min_age_s?;
    Some(match file {
        Some(file) => format!("thermo schemes apply {} {flags}", file.display()),
        None => format!(
            "thermo reclaim --min-age {min_age_s}s --wmarks-high 1000 --wmarks-mid 1000 --wmarks-low 0 {flags}"
        ),
    })
}

fn json(advice: &Advice, file: Option<&Path>, command: Option<&str>) -> anyhow::Result<serde_json::Value> {
    let mut json = serde_json::to_value(advice)?;
    if let Some(verdict) = json.get_mut("advice") {
        verdict["scheme"] = file.map(|file| file.display().to_string()).into();
        verdict["command"] = command.into();
    }
    Ok(json)
}

/// Reads the recording at `path`, and its last snapshot.
fn read(path: &Path) -> anyhow::Result<(Watched, TierNeeds, Option<Snapshot>)> {
    Ok(accumulate(thermo_recording::open(path)?)?)
}

/// What was watched, and the last snapshot.
fn accumulate(
    records: impl Iterator<Item = Result<Record, ReadError>>,
) -> Result<(Watched, TierNeeds, Option<Snapshot>), ReadError> {
    let mut accumulator = AdviceAccumulator::default();
    let mut tiers = TierAccumulator::default();
    let mut last = None;
    for record in records {
        let record = record?;
        accumulator.add(&record);
        tiers.add(&record);
        if let Record::Snapshot(snapshot) = record {
            last = Some(snapshot);
        }
    }
    Ok((accumulator.finish(), tiers.finish(), last))
}

/// The processes of the last snapshot as flags.
fn pids(last: Option<&Snapshot>) -> String {
    let targets = last.map(|last| &last.targets[..]).unwrap_or_default();
    let pids: Vec<String> = targets
        .iter()
        .filter(|target| thermo_report::tables::has_data(target))
        .filter_map(|target| Some(format!("--pid {}", target.pid?)))
        .collect();
    match pids.len() {
        1..=MAX_PIDS => pids.join(" "),
        _ => "--pid PID".to_owned(),
    }
}
