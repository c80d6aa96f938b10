//! `thermo fs`: DAMON's control files over this engine, for a command or for a service.
//!
//! What is mounted where is in `namespace`, the stand-in for perf in `perf`, the socket between the two in `events`.

mod events;
mod namespace;
mod perf;
mod service;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use thermo_damonfs::{Control, Engine, Layout, Looks, Mounted};
use thermo_ops::smaps::Smaps;
use thermo_ops::tracker;
use thermo_sys::clock;

use crate::exit::Exit;
use crate::session::{Host, Wish};

/// Show DAMON's control files over this engine, so that damo and other tools for DAMON work unchanged.
///
/// With a command, it runs in mounts of its own in which the files are at /sys/kernel/mm/damon, HOME is an empty
/// folder, and `perf` records the events of this engine. Nothing changes outside, and everything is gone with the
/// command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo fs -- damo record 4242
  thermo fs --mount /run/damon")]
pub struct Fs {
    /// Mount the files at this folder instead, until interrupted
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    mount: Option<PathBuf>,

    /// How to look: auto, pte or smaps
    #[arg(long, value_name = "NAME", default_value = "auto")]
    tracker: String,

    /// Be perf, for events told by this socket
    #[arg(long, value_name = "SOCKET", hide = true)]
    as_perf: Option<PathBuf>,

    /// The command to run
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Fs {
    /// Mounts, serves and cleans up.
    pub fn run(self) -> anyhow::Result<Exit> {
        if let Some(socket) = &self.as_perf {
            return perf::run(socket, &self.command);
        }
        ensure!(
            self.mount.is_some() || !self.command.is_empty(),
            "nothing to do: give a command, as in `thermo fs -- damo record 4242`, or a folder with --mount"
        );
        ensure!(
            rustix::process::geteuid().is_root(),
            "control files can be mounted by root only: run it with sudo"
        );
        ensure!(
            Path::new("/dev/fuse").exists(),
            "/dev/fuse is not there, which control files are shown through: `modprobe fuse`"
        );
        let looks = self.looks()?;
        match &self.mount {
            Some(dir) => service::run(dir, looks),
            None => namespace::run(&self.command, looks),
        }
    }

    fn looks(&self) -> anyhow::Result<Looks> {
        Ok(match self.tracker.as_str() {
            "auto" => Box::new(|| tracker::best(Path::new("/"), seed())),
            "smaps" => Box::new(|| Box::new(Smaps::new(Path::new("/"), seed()))),
            "pte" => {
                // Tells why, if it cannot be had; later it is one of `auto`, which prefers it.
                Host::probe().tracker("pte", 0, Wish::default())?;
                Box::new(|| tracker::best(Path::new("/"), seed()))
            }
            other => bail!("{other} is not a tracker for control files: use auto, pte or smaps"),
        })
    }
}

fn seed() -> u64 {
    clock::monotonic().0
}

/// Mounts the files at `dir`.
fn mount(dir: &Path, looks: Looks) -> anyhow::Result<Mounted> {
    let control = Control::new(Layout::Sysfs, Engine::new("/", looks)).context("cannot start a thread")?;
    Mounted::new(Arc::clone(&control), dir)
        .with_context(|| format!("cannot mount control files at {}", dir.display()))
}
