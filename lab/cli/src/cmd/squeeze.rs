//! `thermo-lab squeeze`: what giving free buffers back under pressure saves, and costs.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Value, json};
use thermo_experiments::squeeze::{
    DEFAULT_PAGES, Setting, Swapping, Throughput, pressure, table, throughput,
};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};
use thermo_units::Bytes;

use crate::{programs, stop};

/// The duration of a squeeze that pools have without being told otherwise, in milliseconds.
const DEFAULT_MS: u64 = 10;
/// What the patch tried.
const DURATIONS: [u64; 3] = [1, 10, 100];

/// One of the experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Many devices under memory pressure: pages swapped in and out, before (no squeezing) and after.
    Pressure,
    /// The same with squeezes of 1, 10 and 100 ms.
    Durations,
    /// Throughput with no free page ever kept, against the default.
    Throughput,
}

/// Which experiments, and how much of them.
#[derive(Debug, clap::Args)]
pub struct Squeeze {
    /// Only this experiment; may be given more than once
    #[arg(long, value_enum)]
    part: Vec<Part>,

    /// Devices; may be given more than once
    #[arg(long, value_name = "COUNT", default_values_t = [64, 256])]
    devices: Vec<usize>,

    /// Bursts that each device gets in one run under pressure
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    rounds: usize,

    /// Memory that something else in the group uses round and round
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    neighbour: Bytes,

    /// Runs of each configuration; the throughput takes 5 when not given, the others 1
    #[arg(long, value_name = "COUNT")]
    repeats: Option<usize>,

    /// Bytes of one request when throughput is measured
    #[arg(long, value_name = "SIZE", default_value = "128K")]
    block: Bytes,

    /// Measure the throughput of `dd if=/dev/zero of=DEVICE bs=4k; sync` through the kernel's NBD
    /// client and this free device of it, such as /dev/nbd0, as the patch did (needs nbd-client)
    #[arg(long, value_name = "DEVICE", conflicts_with = "block")]
    through: Option<PathBuf>,

    /// The folder the runs are kept in
    #[arg(long, value_name = "FOLDER", default_value = "squeeze")]
    results: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The neighbour in the group: not for people.
#[derive(Debug, clap::Args)]
pub struct Neighbour {
    size: usize,
    marker: PathBuf,
}

impl Neighbour {
    pub fn run(self) -> anyhow::Result<Exit> {
        pressure::be_neighbour(self.size, &self.marker)?;
        Ok(Exit::Done)
    }
}

/// Keeps every run as soon as it ends, a line of JSON each.
struct Kept {
    file: File,
}

impl Kept {
    fn keep(&mut self, part: &str, run: &Value) -> anyhow::Result<()> {
        writeln!(self.file, "{}", json!({ "schema": 1, "part": part, "run": run }))?;
        eprintln!("{part}: {run}");
        Ok(())
    }
}

impl Squeeze {
    /// Runs what was asked for.
    pub fn run(self) -> anyhow::Result<Exit> {
        let load = self.load()?;
        let setting = Setting {
            thermo_nbd: programs::find("thermo-nbd")?,
            stop: stop::at_signal()?,
        };
        let folder = self.results.display();
        std::fs::create_dir_all(&self.results).with_context(|| format!("cannot make {folder}"))?;
        let path = self.results.join("runs.jsonl");
        let file = File::options().create(true).append(true).open(&path);
        let mut kept = Kept {
            file: file.with_context(|| format!("cannot write {}", path.display()))?,
        };
        let (mut text, mut told) = (String::new(), json!({ "schema": 1 }));
        if self.wants(Part::Pressure) {
            let runs = self.pressure(&setting, &mut kept, "pressure", &[0, DEFAULT_MS])?;
            text += &format!(
                "Memory pressure\n{}\n",
                table::before_and_after(&runs, DEFAULT_MS)
            );
            told["pressure"] = serde_json::to_value(runs)?;
        }
        if self.wants(Part::Durations) {
            let runs = self.pressure(&setting, &mut kept, "durations", &DURATIONS)?;
            text += &format!("Duration of a squeeze, ms\n{}\n", table::durations(&runs));
            told["durations"] = serde_json::to_value(runs)?;
        }
        if self.wants(Part::Throughput) {
            let runs = self.throughput(&setting, &mut kept, &load)?;
            text += &format!("Throughput, MB/s\n{}\n", table::throughput(&runs));
            told["throughput"] = serde_json::to_value(runs)?;
        }
        if self.json {
            output::json(&told)?;
        } else {
            output::text(text.trim_end())?;
        }
        Ok(if interrupt::asked() {
            Exit::Interrupted
        } else {
            Exit::Done
        })
    }

    fn wants(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    fn pressure(
        &self,
        setting: &Setting,
        kept: &mut Kept,
        part: &str,
        durations: &[u64],
    ) -> anyhow::Result<Vec<Swapping>> {
        // How long a squeeze should be is asked of the first number of devices alone.
        let devices = if part == "pressure" {
            &self.devices[..]
        } else {
            &self.devices[..1]
        };
        let mut runs = Vec::new();
        for &devices in devices {
            for _ in 0..self.repeats.unwrap_or(1) {
                for &duration_ms in durations {
                    if interrupt::asked() {
                        return Ok(runs);
                    }
                    let shape = pressure::Shape {
                        devices,
                        duration_ms,
                        rounds: self.rounds,
                        neighbour: self.neighbour,
                    };
                    let run = pressure::run(setting, &shape)?;
                    kept.keep(part, &serde_json::to_value(&run)?)?;
                    runs.push(run);
                }
            }
        }
        Ok(runs)
    }

    fn throughput(
        &self,
        setting: &Setting,
        kept: &mut Kept,
        load: &throughput::Load,
    ) -> anyhow::Result<Vec<Throughput>> {
        let mut runs = Vec::new();
        for _ in 0..self.repeats.unwrap_or(5) {
            for max_buffer_pages in [0, DEFAULT_PAGES] {
                if interrupt::asked() {
                    return Ok(runs);
                }
                let shape = throughput::Shape {
                    max_buffer_pages,
                    load: load.clone(),
                };
                let run = throughput::run(setting, &shape)?;
                kept.keep("throughput", &serde_json::to_value(&run)?)?;
                runs.push(run);
            }
        }
        Ok(runs)
    }

    fn load(&self) -> anyhow::Result<throughput::Load> {
        if let Some(device) = &self.through {
            let shown = device.display();
            anyhow::ensure!(
                device.exists(),
                "there is no {shown}: load the kernel's NBD client (modprobe nbd), or leave out --through"
            );
            return Ok(throughput::Load::Dd {
                device: device.clone(),
            });
        }
        let block = u32::try_from(self.block.0)
            .ok()
            .filter(|block| (512..=32 << 20).contains(block));
        let block =
            block.with_context(|| format!("--block {} is no request: 512 B to 32 MiB", self.block))?;
        Ok(throughput::Load::Client { block, depth: 8 })
    }
}
