//! `thermo tier`: hot memory on a fast node, cold memory on a slow one.

mod totals;

use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use thermo_actions::preset::Tier as Preset;
use thermo_actions::{MigrationMeter, check_destinations};
use thermo_engine::scheme::Destination;
use thermo_kernel::node::{self, NodeSet};
use thermo_kernel::status;
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::{Bytes, Nanos, Permille};

use crate::args::{RunOpts, TargetsOrSystem, number};
use crate::session::{Migration, Teardown};

use totals::Totals;

/// Keep the fast memory node filled with the hottest memory, and move idle memory to the slow node.
///
/// Accessed memory of the slow node is promoted, the hottest first, while less of the fast node is used than
/// --fast-used. Idle memory of the fast node is demoted, the coldest first, while more is used; where more is
/// accessed than fits, hot memory takes the place of seldom accessed memory. Pages that several processes map
/// stay where they are. At the end, also after Ctrl-C, all pages stay where they are; nothing else of the
/// machine is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo tier --fast 0 --slow 1 --pid 4242 --duration 10m
  thermo tier --fast 0 --slow 1 --system --fast-used 90% --bandwidth 100MiB/s --dry-run --duration 1m")]
pub struct Tier {
    #[command(flatten)]
    targets: TargetsOrSystem,

    #[command(flatten)]
    module: Module,

    #[command(flatten)]
    run: RunOpts,
}

/// The parameters of tiering.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tiers")]
struct Module {
    /// The memory node for hot memory
    #[arg(long, value_name = "NODE", value_parser = number::whole::<u32>)]
    fast: u32,

    /// The memory node for cold memory
    #[arg(long, value_name = "NODE", value_parser = number::whole::<u32>)]
    slow: u32,

    /// Share of the fast node that shall be used
    #[arg(long, value_name = "SHARE", default_value = "95%")]
    fast_used: Permille,

    /// A page that was moved stays where it is for this long
    #[arg(long, value_name = "TIME", default_value = "60s")]
    cool_down: Nanos,

    /// Memory may be demoted once it was not accessed for this long
    #[arg(long, value_name = "TIME", default_value = "10s")]
    demote_age: Nanos,

    /// The most bytes to move in a second, in each direction
    #[arg(long, value_name = "SIZE/s", value_parser = bandwidth, default_value = "200MiB/s")]
    bandwidth: Bytes,
}

fn bandwidth(text: &str) -> Result<Bytes, String> {
    let size = text.strip_suffix("/s").unwrap_or(text);
    let bytes = size.trim().parse::<Bytes>();
    bytes.map_err(|_| format!("{text:?} is not a size per second: write 200MiB/s"))
}

/// The two nodes, in this order.
const TIERS: [&str; 2] = ["fast", "slow"];

impl Tier {
    /// Tiers until the duration has passed or the targets have ended, then prints what moved.
    pub fn run(self) -> anyhow::Result<Exit> {
        let targets = self.targets.checked()?;
        let root = Path::new("/");
        let preset = self.module.preset();
        preset.check()?;
        check_nodes(root, &preset)?;
        targets
            .pid
            .iter()
            .try_for_each(|pid| check_cpuset(root, *pid, &preset))?;
        let (is_dry, as_json) = (self.run.limits.dry_run, self.run.json);
        let attrs = self.run.monitoring.attrs()?;
        let schemes: Vec<_> = preset.schemes().into();
        announce(&preset, self.module.cool_down);
        if node::has_balancing(root) {
            thermo_kernel::message!(
                "thermo: the kernel's NUMA balancing moves pages, too: it brings memory to the node of the CPU that \
                 accesses it. `sysctl kernel.numa_balancing=0` leaves it to thermo"
            );
        }
        let meter = MigrationMeter::default();
        let mut plan = self.run.plan(targets, attrs, schemes);
        plan.migration = Migration {
            cool_down: self.module.cool_down,
            meter: meter.clone(),
        };
        let done = plan.run()?;
        let result = Totals {
            preset,
            is_dry,
            moved: meter.total(),
            schemes: &done.outcome.sink.schemes,
            nodes: [preset.fast, preset.slow].map(|nid| node::memory(root, nid).unwrap_or_default()),
        };
        if as_json {
            output::json(&result.json())?;
        } else {
            output::text(&(done.outcome.heading() + &result.text()))?;
        }
        let mut teardown = Teardown::new(done);
        teardown.report();
        thermo_kernel::message!("thermo: every page stays on the node where it is now");
        teardown.wait()
    }
}

impl Module {
    const fn preset(&self) -> Preset {
        Preset {
            fast: self.fast,
            slow: self.slow,
            fast_used: self.fast_used,
            demote_age: self.demote_age,
            bandwidth: self.bandwidth,
        }
    }
}

/// Checks that both nodes are there, and that the fast one can hold more than what never leaves it.
fn check_nodes(root: &Path, preset: &Preset) -> anyhow::Result<()> {
    let nodes = node::members(root, NodeSet::HasMemory).unwrap_or_else(|_| node::ids(root));
    ensure!(
        nodes.len() > 1,
        "this machine has 1 memory node, so that memory has nowhere to move: tiers need a second node with memory, \
         such as CXL memory or another socket"
    );
    let both = [preset.fast, preset.slow].map(Destination::only);
    check_destinations(root, &both).map_err(|error| anyhow!("{error}. Give two of these nodes"))?;
    let fast = node::memory(root, preset.fast)?;
    let limit = Bytes(u64::try_from(
        u128::from(fast.total.0) * u128::from(preset.fast_used.0) / 1000,
    )?);
    ensure!(
        fast.fixed < limit,
        "node {} cannot serve as the fast node: {} of its {} are locked or used by the kernel, and --fast-used {} \
         is {limit}: unlock memory, or give a larger share",
        preset.fast,
        fast.fixed,
        fast.total,
        preset.fast_used
    );
    Ok(())
}

/// Checks that the cpuset of process `pid` allows both nodes.
fn check_cpuset(root: &Path, pid: u32, preset: &Preset) -> anyhow::Result<()> {
    // A process that does not exist is reported with the other targets.
    let Ok(Some(allowed)) = status::allowed_nodes(root, pid) else {
        return Ok(());
    };
    for (nid, tier) in [preset.fast, preset.slow].into_iter().zip(TIERS) {
        if !allowed.contains(&nid) {
            let allowed: Vec<String> = allowed.iter().map(u32::to_string).collect();
            bail!(
                "process {pid} may not use node {nid}, the {tier} node: its cpuset allows the nodes {}. Add the node \
                 to cpuset.mems of its control group",
                allowed.join(", ")
            );
        }
    }
    Ok(())
}

/// Prints what is going to happen, and why.
fn announce(preset: &Preset, cool_down: Nanos) {
    let Preset {
        fast,
        slow,
        fast_used,
        demote_age,
        bandwidth,
    } = preset;
    thermo_kernel::message!(
        "thermo: accessed memory of node {slow} moves to node {fast} while less than {fast_used} of node {fast} is \
         used, the hottest first; memory of node {fast} that was idle for {demote_age} moves to node {slow} while \
         more is used, the coldest first, and memory that is seldom accessed makes room for hot memory; at most \
         {bandwidth} a second each way, and what moved stays for {cool_down}"
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use crate::args::parsed;
    use std::fs;

    const NODES: [&str; 4] = ["--fast", "0", "--slow", "1"];

    /// A machine with nodes 0 and 1, of which node 0 has `locked` of 1000 kB locked. Process 7 may use
    /// `mems`.
    fn machine(nodes: &str, locked: u32, mems: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/devices/system/node");
        for nid in [0, 1] {
            let node = dir.join(format!("node{nid}"));
            fs::create_dir_all(&node).unwrap();
            let text = format!("Node {nid} MemTotal: 1000 kB\nNode {nid} Unevictable: {locked} kB\n");
            fs::write(node.join("meminfo"), text).unwrap();
        }
        fs::write(dir.join("has_memory"), nodes).unwrap();
        fs::create_dir_all(root.path().join("proc/7")).unwrap();
        fs::write(
            root.path().join("proc/7/status"),
            format!("Mems_allowed_list:\t{mems}\n"),
        )
        .unwrap();
        root
    }

    #[test]
    fn defaults_are_those_of_the_preset() {
        assert_eq!(parsed::<Module>(&NODES).preset(), Preset::default());
    }

    #[test]
    fn bandwidth_is_a_size_per_second() {
        assert_eq!(bandwidth("200MiB/s"), Ok(Bytes::mib(200)));
        assert_eq!(bandwidth("1G"), Ok(Bytes::gib(1)));
        assert!(bandwidth("fast").unwrap_err().contains("200MiB/s"));
    }

    #[test]
    fn machines_and_targets_without_the_nodes_are_refused() {
        let preset = Preset::default();
        let of = |nodes, locked| {
            let root = machine(nodes, locked, "0-1");
            check_nodes(root.path(), &preset).map_err(|error| error.to_string())
        };
        assert_eq!(of("0-1\n", 949), Ok(()));
        assert!(of("0\n", 0).unwrap_err().contains("1 memory node"));
        assert!(
            of("0,2\n", 0).unwrap_err().contains("node 1 has no memory"),
            "{:?}",
            of("0,2\n", 0)
        );
        assert!(
            of("0-1\n", 950)
                .unwrap_err()
                .contains("locked or used by the kernel")
        );
        let cpuset = |mems| {
            let root = machine("0-1\n", 0, mems);
            check_cpuset(root.path(), 7, &preset).map_err(|error| error.to_string())
        };
        assert_eq!(cpuset("0-1"), Ok(()));
        let refused = cpuset("1").unwrap_err();
        assert!(
            refused.contains("process 7 may not use node 0, the fast node"),
            "{refused}"
        );
    }
}
