//! `thermo nbd`: a block server whose buffers stay inside one budget and go back under pressure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;
use thermo_core::Bytes;
use thermo_nbd::{Export, Limits, Listen, Server};
use thermo_pool::{Bus, GiveBack, Keeper, Pools, Settings, source};

use crate::exit::Exit;
use crate::{interrupt, output};

/// How soon the end that was asked for begins.
const POLL: Duration = Duration::from_millis(50);

/// Serve files and block devices over NBD, with buffers that give memory back under pressure.
///
/// All connections together hold at most the budget; who finds it used up waits. When memory is short, free
/// buffers go back to the kernel. Ctrl-C or SIGTERM ends it after the requests that have come are answered.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo nbd --unix /run/disk.sock --export disk=/srv/disk.img
  thermo nbd --tcp 127.0.0.1:10809 --export a=/srv/a.img --export b=/dev/vg0/b,ro --budget 64M")]
pub struct Nbd {
    /// What to serve: NAME=PATH, a file or a block device; with `,ro` behind it clients may not write. Clients that
    /// ask for no name get the first
    #[arg(long = "export", value_name = "NAME=PATH[,ro]", required = true)]
    exports: Vec<String>,

    /// Listen at this Unix socket; may be given more than once
    #[arg(long, value_name = "PATH")]
    unix: Vec<PathBuf>,

    /// Listen at this TCP address; may be given more than once. There is neither encryption nor a password
    #[arg(long, value_name = "ADDR:PORT")]
    tcp: Vec<String>,

    /// Clients at a time; more are hung up on
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    connections: usize,

    #[command(flatten)]
    memory: Memory,

    /// Print what was done as JSON at the end
    #[arg(long)]
    json: bool,
}

/// The pools.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
struct Memory {
    /// The most that all buffers together may take
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    budget: Bytes,

    /// Free pages an export keeps for the next requests
    #[arg(long, value_name = "PAGES", default_value_t = Settings::default().max_buffer_pages)]
    max_buffer_pages: u64,

    /// After a sign of pressure keep no free page for this long, in milliseconds; 0: ignore pressure
    #[arg(long, value_name = "MS", default_value_t = Settings::default().buffer_squeeze_duration_ms)]
    buffer_squeeze_duration_ms: u64,

    /// Let the kernel take pages when it needs them (MADV_FREE), not at once (MADV_DONTNEED)
    #[arg(long)]
    lazy: bool,
}

impl Memory {
    fn settings(&self) -> Settings {
        Settings {
            max_buffer_pages: self.max_buffer_pages,
            buffer_squeeze_duration_ms: self.buffer_squeeze_duration_ms,
            give_back: if self.lazy {
                GiveBack::Free
            } else {
                GiveBack::DontNeed
            },
            ..Settings::default()
        }
    }
}

impl Nbd {
    /// Serves until it is asked to end.
    pub fn run(self) -> anyhow::Result<Exit> {
        let listen: Vec<_> = (self.unix.into_iter().map(Listen::Unix))
            .chain(self.tcp.into_iter().map(Listen::Tcp))
            .collect();
        ensure!(
            !listen.is_empty(),
            "nobody could connect: give --unix PATH or --tcp ADDR:PORT"
        );
        let exports = self
            .exports
            .iter()
            .map(|text| export(text))
            .collect::<Result<_, _>>()?;

        interrupt::listen().context("signals cannot be listened to")?;
        let pools = Pools::new(self.memory.budget, self.memory.settings());
        let bus = Bus::default();
        let _joined = pools.join(&bus, 0);
        let choice = source::choose(Path::new("/"), |name| std::env::var(name).ok());
        choice
            .reasons
            .iter()
            .for_each(|reason| eprintln!("pressure: {reason}"));
        let _keeper = Keeper::start(&pools, &bus, choice.sources).context("no thread can be started")?;
        let limits = Limits {
            connections: self.connections,
            ..Limits::default()
        };
        let server = Server::start(exports, &listen, &pools, limits)?;
        server
            .addrs()
            .iter()
            .for_each(|addr| eprintln!("listening at {addr}"));
        while !interrupt::asked() {
            std::thread::sleep(POLL);
        }
        let told = summary(&server, &pools, self.json);
        drop(server);
        told?;
        Ok(Exit::Done)
    }
}

fn export(text: &str) -> anyhow::Result<Export> {
    let named = text.split_once('=').filter(|(_, path)| !path.is_empty());
    let (name, path) =
        named.with_context(|| format!("--export {text:?} is not NAME=PATH or NAME=PATH,ro"))?;
    let (path, read_only) = path
        .strip_suffix(",ro")
        .map_or((path, false), |path| (path, true));
    Ok(Export::open(name, Path::new(path), read_only)?)
}

fn summary(server: &Server, pools: &Pools, as_json: bool) -> std::io::Result<()> {
    let (status, usage) = (server.status(), pools.usage());
    if !as_json {
        let (accepted, refused, peak) = (status.accepted, status.refused, usage.peak);
        eprintln!("{accepted} clients came, {refused} were refused; buffers took {peak} at most");
        return Ok(());
    }
    let stats = |stats: thermo_pool::Stats| stats.named().collect::<std::collections::BTreeMap<_, _>>();
    let of_pools: std::collections::BTreeMap<_, _> = pools
        .stats()
        .into_iter()
        .map(|(name, one)| (name, stats(one)))
        .collect();
    output::json(&json!({
        "schema": 1,
        "accepted": status.accepted,
        "refused": status.refused,
        "last_error": status.last_error,
        "budget_bytes": usage.limit.0,
        "used_bytes": usage.used.0,
        "peak_bytes": usage.peak.0,
        "pools": of_pools,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn an_export_is_a_name_a_path_and_perhaps_ro() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, "12345").unwrap();
        let one = export(&format!("a={}", path.display())).unwrap();
        assert_eq!((one.name(), one.size(), one.is_read_only()), ("a", 5, false));
        assert!(export(&format!("={},ro", path.display())).unwrap().is_read_only());
        for wrong in ["disk", "disk=", "disk=/nowhere/file"] {
            let error = export(wrong).unwrap_err().to_string();
            assert!(
                error.contains(wrong) || error.contains("/nowhere/file"),
                "{error}"
            );
        }
    }
}
