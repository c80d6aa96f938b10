//! `thermo-lab fleet`: files of a simulated fleet, with the truth.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use thermo_fleet_sim::{Anchor, BoundTruth, HostHours, Options, START_MS, Truth, read_ages, simulate};
use thermo_report::style::Table;
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::{Bytes, Nanos, SharePerMinute};

use crate::stop;

/// Selects the size of the fleet and what its policies do.
#[derive(Debug, clap::Args)]
pub struct Fleet {
    /// Number of hosts, each with 2 to 5 targets
    #[arg(long, value_name = "N")]
    hosts: u64,

    /// Hours of data
    #[arg(long, value_name = "H")]
    hours: u64,

    /// Seed of everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Folder to write to; must be empty or missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Start of the data, such as 2026-11-02T00:00:00Z [default: that]
    #[arg(long, value_name = "TIME")]
    start: Option<String>,

    /// Length of an interval, one row of a target: a divisor of an hour
    #[arg(long, value_name = "TIME", default_value = "5m")]
    interval: Nanos,

    /// Length of a window, one file of a host
    #[arg(long, value_name = "TIME", default_value = "1h")]
    window: Nanos,

    /// Page out at these minimum ages on all hosts: output of thermocline-fleet report --json [default: one
    /// of ten hosts pages out at an age of the class, one of twenty has a dry run]
    #[arg(long, value_name = "FILE")]
    ages: Option<PathBuf>,

    /// With --ages: the bound on memory that comes back, as a share of the memory accessed in the last minute
    #[arg(long, value_name = "SHARE", default_value = "0.2%/min", requires = "ages")]
    max_refaults: SharePerMinute,

    /// Let a class follow a real server: an anchor such as lab/fleet-sim/anchors/redis.json, or a recording
    /// named after the class, such as cache-zipf.arrow; may be given more than once
    #[arg(long, value_name = "FILE")]
    anchor: Vec<PathBuf>,

    /// Print the content of truth.json
    #[arg(long)]
    json: bool,
}

impl Fleet {
    /// Simulates the fleet and prints a summary.
    pub fn run(self) -> anyhow::Result<Exit> {
        let options = self.options()?;
        let stop = stop::on_signal()?;
        let shows = std::io::stderr().is_terminal();
        let hosts = options.hosts;
        let progress = |done: u64| {
            if shows && (done.is_multiple_of(10) || done == hosts) {
                let end = if done == hosts { "\n" } else { "" };
                eprint!("\r{done} of {hosts} hosts{end}");
            }
        };
        let truth = match simulate(&options, &self.out, &stop, &progress) {
            Err(thermo_fleet_sim::Error::Interrupted) => {
                eprintln!("{}", thermo_fleet_sim::Error::Interrupted);
                return Ok(Exit::Interrupted);
            }
            result => result?,
        };
        if self.json {
            output::json(&serde_json::to_value(&truth)?)?;
        } else {
            output::text(&text(&truth))?;
        }
        Ok(Exit::Done)
    }

    fn options(&self) -> anyhow::Result<Options> {
        let mut anchors: Vec<Anchor> = Vec::new();
        for path in &self.anchor {
            let anchor = Anchor::read(path)?;
            if anchors.iter().any(|other| other.class == anchor.class) {
                bail!(
                    "{}: another --anchor is for {} already",
                    path.display(),
                    anchor.class
                );
            }
            anchors.push(anchor);
        }
        Ok(Options {
            hosts: self.hosts,
            hours: self.hours,
            seed: self.seed,
            start_ms: self.start.as_deref().map_or(Ok(START_MS), unix_ms)?,
            interval: milliseconds(self.interval),
            window: milliseconds(self.window),
            ages: self.ages.as_deref().map(read_ages).transpose()?,
            max_refaults: self.max_refaults,
            anchors,
        })
    }
}

const fn milliseconds(time: Nanos) -> u64 {
    time.0 / 1_000_000
}

/// A time such as `2026-11-02T00:00:00Z` as Unix time in ms.
fn unix_ms(text: &str) -> anyhow::Result<u64> {
    let time: jiff::Timestamp = text
        .parse()
        .with_context(|| format!("--start {text:?} is no time such as 2026-11-02T00:00:00Z"))?;
    u64::try_from(time.as_millisecond()).with_context(|| format!("--start {text} is before 1970"))
}

/// The summary: a line for each class.
fn text(truth: &Truth) -> String {
    let mut table = Table::new(1, &["class", "targets", "resident", "idle for 5 min"]);
    for class in truth.classes.iter().filter(|class| class.rows > 0) {
        let resident = class.resident_byte_intervals / class.rows * class.targets;
        let idle: u64 = class.idle_byte_intervals[8..].iter().sum();
        let share = idle as f64 * 100.0 / class.resident_byte_intervals.max(1) as f64;
        table.row([
            class.class.to_string(),
            class.targets.to_string(),
            Bytes(resident).to_string(),
            format!("{share:.1} %"),
        ]);
    }
    format!(
        "{} hosts in {} clusters, {} h: {} rows in {} files.\n{}{}",
        truth.hosts,
        truth.clusters.len(),
        truth.hours,
        truth.rows,
        truth.files,
        table.text(),
        truth.bound.as_ref().map(bound_text).unwrap_or_default()
    )
}

fn bound_text(bound: &BoundTruth) -> String {
    let percent = bound.max_refaults_per_min * 100.0;
    let hours = |hours: &HostHours| {
        format!(
            "{} of {} ({:.1} %)",
            hours.within,
            hours.host_hours,
            hours.share() * 100.0
        )
    };
    let mut table = Table::new(1, &["class", "age", "host-hours"]);
    for class in &bound.classes {
        let age = format!("{} s", class.min_age_s);
        table.row([class.class.to_string(), age, hours(&class.hours)]);
    }
    table.row(["all".to_owned(), String::new(), hours(&bound.all)]);
    format!(
        "\nHost-hours in which at most {percent} % of the working set came back a minute:\n{}",
        table.text()
    )
}
