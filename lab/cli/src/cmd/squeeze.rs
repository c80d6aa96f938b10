//! `thermo-lab squeeze`: savings and cost of freeing buffer pools under memory pressure.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Value, json};
use thermo_experiments::squeeze::{
    DEFAULT_PAGES, Options, PressureRun, ThroughputRun, pressure, table, throughput,
};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};
use thermo_units::Bytes;

use crate::{programs, stop};

/// Default duration of a squeeze, in milliseconds.
const DEFAULT_MS: u64 = 10;
/// The durations that the kernel patch compared, in milliseconds.
const DURATIONS: [u64; 3] = [1, 10, 100];

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Many devices under memory pressure: pages swapped in and out without and with squeezing.
    Pressure,
    /// The same with squeezes of 1, 10 and 100 ms.
    Durations,
    /// Throughput of pools that keep no free page, compared with the default.
    Throughput,
}

/// Selects the experiments, their size and the output format.
#[derive(Debug, clap::Args)]
pub struct Squeeze {
    /// Run only this experiment; may be given more than once
    #[arg(long, value_enum)]
    part: Vec<Part>,

    /// Number of devices; may be given more than once
    #[arg(long, value_name = "COUNT", default_values_t = [64, 256])]
    devices: Vec<usize>,

    /// Bursts of reads that each device gets in one run under memory pressure
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    rounds: usize,

    /// Memory that a second process in the control group keeps accessing
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    neighbour: Bytes,

    /// Runs of each configuration [default: 5 for throughput, 1 for the others]
    #[arg(long, value_name = "COUNT")]
    repeats: Option<usize>,

    /// Size of one request in the throughput experiment, 512 B to 32 MiB
    #[arg(long, value_name = "SIZE", default_value = "128K")]
    block: Bytes,

    /// Measure the throughput of `dd if=/dev/zero of=DEVICE bs=4k; sync` through the kernel's NBD
    /// client, as the kernel patch did. DEVICE is a free NBD device such as /dev/nbd0 (needs nbd-client)
    #[arg(long, value_name = "DEVICE", conflicts_with = "block")]
    nbd_device: Option<PathBuf>,

    /// Folder for the runs
    #[arg(long, value_name = "FOLDER", default_value = "squeeze")]
    results: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Internal: the second process in the control group, started by the experiment.
#[derive(Debug, clap::Args)]
pub struct Neighbour {
    size: usize,
    marker: PathBuf,
}

impl Neighbour {
    pub fn run(self) -> anyhow::Result<Exit> {
        pressure::run_neighbour(self.size, &self.marker)?;
        Ok(Exit::Done)
    }
}

/// Appends every run to a file as soon as it ends, as one line of JSON.
struct RunLog {
    file: File,
}

impl RunLog {
    fn append(&mut self, part: &str, run: &Value) -> anyhow::Result<()> {
        writeln!(self.file, "{}", json!({ "schema": 1, "part": part, "run": run }))?;
        eprintln!("{part}: {run}");
        Ok(())
    }
}

impl Squeeze {
    /// Runs the selected experiments and prints their tables.
    pub fn run(self) -> anyhow::Result<Exit> {
        let load = self.load()?;
        let options = Options {
            thermo_nbd: programs::find("thermo-nbd")?,
            stop: stop::on_signal()?,
        };
        let mut log = self.open_log()?;
        let (mut text, mut report) = (String::new(), json!({ "schema": 1 }));
        if self.is_selected(Part::Pressure) {
            let runs = self.pressure(&options, &mut log, "pressure", &[0, DEFAULT_MS])?;
            text += &format!(
                "Memory pressure\n{}\n",
                table::before_and_after(&runs, DEFAULT_MS)
            );
            report["pressure"] = serde_json::to_value(runs)?;
        }
        if self.is_selected(Part::Durations) {
            let runs = self.pressure(&options, &mut log, "durations", &DURATIONS)?;
            text += &format!("Duration of a squeeze, ms\n{}\n", table::durations(&runs));
            report["durations"] = serde_json::to_value(runs)?;
        }
        if self.is_selected(Part::Throughput) {
            let runs = self.throughput(&options, &mut log, &load)?;
            text += &format!("Throughput, MB/s\n{}\n", table::throughput(&runs));
            report["throughput"] = serde_json::to_value(runs)?;
        }
        if self.json {
            output::json(&report)?;
        } else {
            output::text(text.trim_end())?;
        }
        Ok(if interrupt::requested() {
            Exit::Interrupted
        } else {
            Exit::Done
        })
    }

    fn is_selected(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    fn open_log(&self) -> anyhow::Result<RunLog> {
        let folder = self.results.display();
        std::fs::create_dir_all(&self.results).with_context(|| format!("cannot create {folder}"))?;
        let path = self.results.join("runs.jsonl");
        let file = File::options().create(true).append(true).open(&path);
        Ok(RunLog {
            file: file.with_context(|| format!("cannot write {}", path.display()))?,
        })
    }

    fn pressure(
        &self,
        options: &Options,
        log: &mut RunLog,
        part: &str,
        durations: &[u64],
    ) -> anyhow::Result<Vec<PressureRun>> {
        // Durations are compared for the first number of devices only.
        let devices = if part == "pressure" {
            &self.devices[..]
        } else {
            &self.devices[..1]
        };
        let mut runs = Vec::new();
        for &devices in devices {
            for _ in 0..self.repeats.unwrap_or(1) {
                for &duration_ms in durations {
                    if interrupt::requested() {
                        return Ok(runs);
                    }
                    let parameters = pressure::Parameters {
                        devices,
                        duration_ms,
                        rounds: self.rounds,
                        neighbour: self.neighbour,
                    };
                    let run = pressure::run(options, &parameters)?;
                    log.append(part, &serde_json::to_value(&run)?)?;
                    runs.push(run);
                }
            }
        }
        Ok(runs)
    }

    fn throughput(
        &self,
        options: &Options,
        log: &mut RunLog,
        load: &throughput::Load,
    ) -> anyhow::Result<Vec<ThroughputRun>> {
        let mut runs = Vec::new();
        for _ in 0..self.repeats.unwrap_or(5) {
            for max_buffer_pages in [0, DEFAULT_PAGES] {
                if interrupt::requested() {
                    return Ok(runs);
                }
                let parameters = throughput::Parameters {
                    max_buffer_pages,
                    load: load.clone(),
                };
                let run = throughput::run(options, &parameters)?;
                log.append("throughput", &serde_json::to_value(&run)?)?;
                runs.push(run);
            }
        }
        Ok(runs)
    }

    fn load(&self) -> anyhow::Result<throughput::Load> {
        if let Some(device) = &self.nbd_device {
            let path = device.display();
            anyhow::ensure!(
                device.exists(),
                "{path} does not exist: load the kernel's NBD client (modprobe nbd), or omit --nbd-device"
            );
            return Ok(throughput::Load::Dd {
                device: device.clone(),
            });
        }
        let block = u32::try_from(self.block.0)
            .ok()
            .filter(|block| (512..=32 << 20).contains(block));
        let block =
            block.with_context(|| format!("--block {} is out of range: use 512 B to 32 MiB", self.block))?;
        Ok(throughput::Load::Client { block, depth: 8 })
    }
}
