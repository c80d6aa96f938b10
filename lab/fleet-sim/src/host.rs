//! One host: its cluster, its targets, their rows and the files.

use std::fs;
use std::path::Path;

use thermo_engine::budget::CpuShare;
use thermo_engine::rng::Rng;
use thermo_fleet::{FileFacts, Mode, Row, RowKind, file_name, write};
use thermo_units::{Nanos, PAGE_SIZE};

use crate::class::{CLASSES, Class};
use crate::error::Error;
use crate::fleet::Options;
use crate::memory::PAGES;
use crate::pattern::nanos;
use crate::random::{log_uniform, part_of, uniform, unit};
use crate::target::{Settings, Target};
use crate::truth::{HourSums, Sums};

/// The agent's budget: 1 % of a CPU, in millionths.
const BUDGET: u32 = 10_000;
/// Hosts of which a policy acts, without given ages; and hosts with a dry run.
const ACTING: f64 = 0.10;
const DRY: f64 = 0.05;
/// What the agent holds itself, and what it spends besides monitoring in millionths of a CPU.
const AGENT_BYTES: u64 = 24 << 20;
const AGENT_OVERHEAD: u64 = 100;

/// A simulated host.
pub(crate) struct Host<'a> {
    options: &'a Options,
    cluster: &'static str,
    node: String,
    targets: Vec<Placed>,
}

/// A target with the names in its rows.
struct Placed {
    class: &'static Class,
    target: Target,
    names: Row,
}

/// The clusters of a fleet. The first runs Kubernetes.
pub(crate) fn clusters(seed: u64) -> &'static [&'static str] {
    const ALL: &[&str] = &["east", "north", "south", "west"];
    let count = 2 + part_of(seed, u64::MAX).below(3) as usize;
    &ALL[..count]
}

impl<'a> Host<'a> {
    /// Host number `nth`. Everything about it depends on the seed and `nth` only.
    pub(crate) fn new(options: &'a Options, nth: u64) -> Result<Self, Error> {
        let rng = &mut part_of(options.seed, nth);
        let clusters = clusters(options.seed);
        let cluster = clusters[rng.below(clusters.len() as u64) as usize];
        let node = format!("node-{nth:05}");
        let mut host = Self {
            options,
            cluster,
            node,
            targets: Vec::new(),
        };
        let swap = Swap::draw(rng);
        let mode = host.draw_mode(rng);
        let count = 2 + rng.below(4) as usize;
        let mut classes: Vec<&'static Class> = CLASSES.iter().collect();
        for nth in 0..count {
            let chosen = nth + rng.below((classes.len() - nth) as u64) as usize;
            classes.swap(nth, chosen);
        }
        for class in &classes[..count] {
            let share = CpuShare(BUDGET / count as u32);
            let placed = host.place(class, (mode, swap, share), &mut Rng::new(rng.next_u64()))?;
            host.targets.push(placed);
        }
        Ok(host)
    }

    /// What policies do on this host.
    fn draw_mode(&self, rng: &mut Rng) -> Mode {
        let drawn = unit(rng);
        match drawn {
            _ if self.options.ages.is_some() => Mode::Act,
            drawn if drawn < ACTING => Mode::Act,
            drawn if drawn < ACTING + DRY => Mode::DryRun,
            _ => Mode::Observe,
        }
    }

    fn place(
        &self,
        class: &'static Class,
        (mode, swap, share): (Mode, Swap, CpuShare),
        rng: &mut Rng,
    ) -> Result<Placed, Error> {
        let given = self.options.ages.as_ref();
        let min_age_s = match given {
            Some(ages) => ages.get(class.name).copied(),
            None => (mode != Mode::Observe).then_some(class.min_age_s),
        };
        let mode = if min_age_s.is_some() { mode } else { Mode::Observe };
        let size = (class.mib << 20) as f64 * log_uniform(rng, (0.5, 2.0));
        let settings = Settings {
            mode,
            min_age: min_age_s.map(Nanos::secs),
            share,
            pass: nanos(uniform(rng, (24.0, 36.0))),
            interval: Nanos::millis(self.options.interval),
            swap_cost: swap.cost(class, rng),
            page_bytes: (size as u64 / PAGES as u64 / PAGE_SIZE).max(1) * PAGE_SIZE,
        };
        let anchor = self
            .options
            .anchors
            .iter()
            .find(|anchor| anchor.class == class.name);
        let memory = class.build(anchor, rng);
        let target = Target::new(memory, settings, Rng::new(rng.next_u64()))?;
        let names = self.names(class, mode, rng);
        Ok(Placed { class, target, names })
    }

    /// A row with the names of a target, and the figures that do not change.
    fn names(&self, class: &Class, mode: Mode, rng: &mut Rng) -> Row {
        let in_kubernetes = self.cluster == clusters(self.options.seed)[0];
        let pod = format!("{}-{:05x}", class.name, rng.next_u64() >> 44);
        Row {
            row: RowKind::Target,
            node: self.node.clone(),
            namespace: in_kubernetes.then(|| class.namespace.to_owned()),
            container: in_kubernetes.then(|| "main".to_owned()),
            workload: class.name.to_owned(),
            target: match in_kubernetes {
                true => format!("{}/{pod}", class.namespace),
                false => format!("{}.service", class.name),
            },
            pod: in_kubernetes.then_some(pod),
            policy: match mode {
                Mode::Observe => "observe".to_owned(),
                Mode::DryRun | Mode::Act => format!("reclaim-{}", class.name),
            },
            processes: class.processes,
            ..Row::default()
        }
    }

    /// Simulates all hours, writes the files below `folder`, and adds to `sums`.
    pub(crate) fn run(mut self, folder: &Path, sums: &mut Sums) -> Result<(), Error> {
        let Options {
            interval,
            window,
            start_ms,
            ..
        } = *self.options;
        sums.add_host(self.cluster);
        self.targets
            .iter()
            .for_each(|placed| sums.add_target(placed.class.name));
        let intervals = self.options.hours * 3_600_000 / interval;
        let mut rows = Vec::new();
        let mut hours = vec![HourSums::default(); self.targets.len()];
        for nth in 0..intervals {
            let begin_ms = start_ms + nth * interval;
            self.interval(nth, &mut rows, &mut hours, sums)?;
            let is_last = nth + 1 == intervals;
            if is_last || (begin_ms + interval).is_multiple_of(window) {
                self.write_file(begin_ms / window * window, &rows, folder)?;
                sums.files += 1;
                rows.clear();
            }
            if ((nth + 1) * interval).is_multiple_of(3_600_000) {
                let acting = self.targets.iter().zip(&mut hours).map(|(placed, hour)| {
                    (
                        placed.class.name,
                        placed.names_age(self.options),
                        std::mem::take(hour),
                    )
                });
                let acting: Vec<_> = acting
                    .filter(|(_, has_age, _)| *has_age)
                    .map(|(class, _, hour)| (class, hour))
                    .collect();
                sums.add_hour(&acting, self.options.max_refaults);
            }
        }
        Ok(())
    }

    /// Adds the rows of interval number `nth`.
    fn interval(
        &mut self,
        nth: u64,
        rows: &mut Vec<Row>,
        hours: &mut [HourSums],
        sums: &mut Sums,
    ) -> Result<(), Error> {
        let interval_ms = self.options.interval;
        let time_ms = self.options.start_ms + (nth + 1) * interval_ms;
        let mut agent = Row {
            row: RowKind::Agent,
            node: self.node.clone(),
            workload: "thermo-agent".to_owned(),
            target: "thermo-agent".to_owned(),
            time_ms,
            interval_ms,
            processes: 1,
            resident_bytes: AGENT_BYTES,
            watching_cpu_us: interval_ms * AGENT_OVERHEAD / 1000,
            ..Row::default()
        };
        for (placed, hour) in self.targets.iter_mut().zip(hours) {
            placed.target.run(Nanos::millis((nth + 1) * interval_ms))?;
            let row = placed.row(time_ms, interval_ms);
            sums.add_row(placed.class.name, &row, &placed.target.true_idle_bytes());
            hour.add(&row);
            agent.watching_cpu_us += row.watching_cpu_us;
            agent.acting_cpu_us += row.acting_cpu_us;
            rows.push(row);
        }
        sums.rows += 1;
        rows.push(agent);
        Ok(())
    }

    fn write_file(&self, window_start_ms: u64, rows: &[Row], folder: &Path) -> Result<(), Error> {
        let Options { interval, window, .. } = *self.options;
        let facts = FileFacts {
            cluster: self.cluster.to_owned(),
            node: self.node.clone(),
            window_start_ms,
            window_ms: window,
            interval_ms: interval,
            // An agent needs a moment, too.
            written_ms: rows.last().map_or(window_start_ms, |row| row.time_ms) + 1000,
            link: format!("http://{}.{}.example:9090/", self.node, self.cluster),
            program: concat!("thermo-lab ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let path = folder.join(file_name(&facts)?);
        let mut file = Vec::new();
        write(&facts, rows, &mut file)?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Error::io(parent))?;
        }
        fs::write(&path, file).map_err(Error::io(&path))
    }
}

impl Placed {
    fn row(&mut self, time_ms: u64, interval_ms: u64) -> Row {
        let names = self.names.clone();
        Row {
            time_ms,
            interval_ms,
            row: names.row,
            node: names.node,
            namespace: names.namespace,
            pod: names.pod,
            container: names.container,
            workload: names.workload,
            target: names.target,
            policy: names.policy,
            processes: names.processes,
            ..self.target.take_row()
        }
    }

    /// Whether an age was given for the target's class.
    fn names_age(&self, options: &Options) -> bool {
        options
            .ages
            .as_ref()
            .is_some_and(|ages| ages.contains_key(self.class.name))
    }
}

/// The swap of a host.
#[derive(Debug, Clone, Copy)]
enum Swap {
    Zram,
    Disk,
    Missing,
}

impl Swap {
    fn draw(rng: &mut Rng) -> Self {
        match unit(rng) {
            drawn if drawn < 0.80 => Self::Zram,
            drawn if drawn < 0.92 => Self::Disk,
            _ => Self::Missing,
        }
    }

    fn cost(self, class: &Class, rng: &mut Rng) -> Option<f64> {
        let zram = uniform(rng, class.zram);
        match self {
            Self::Zram => Some(zram),
            Self::Disk => Some(0.0),
            Self::Missing => None,
        }
    }
}
