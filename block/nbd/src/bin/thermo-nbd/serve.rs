//! The flags of the server, and the server from its start to its orderly end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use thermo_nbd::{Encryption, Limits, Listen, Server};
use thermo_pool::{Bus, Keeper, Pools, source};
use thermo_term::exit::Exit;
use thermo_term::interrupt;
use thermo_units::{Bytes, Nanos};

use crate::control::Control;
use crate::stats::Facts;
use crate::{activation, ask, exports, memory, stats};

/// How soon the end that was asked for begins.
const POLL: Duration = Duration::from_millis(50);

/// Serve files, block devices and memory over NBD and to virtual machines, with buffers that give memory back under pressure.
///
/// All clients together hold at most the budget; who finds it used up waits. When memory is short, free
/// buffers go back to the kernel. Ctrl-C or SIGTERM ends it after the requests that have come are answered.
///
/// Data goes to standard output, everything else to standard error. Exit codes: 0 done, 2 error or misuse.
#[derive(Debug, clap::Parser)]
#[command(
    name = "thermo-nbd",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  thermo-nbd --unix /run/disk.sock --export disk=/srv/disk.img
  thermo-nbd --tcp 127.0.0.1:10809 --export a=/srv/a.img --export b=/dev/vg0/b,ro --budget 64M --control /run/nbd.ctl
  thermo-nbd --vhost-user /run/vm1.sock=disk --export disk=/srv/disk.img
  thermo-nbd status --control /run/nbd.ctl --json
  thermo-nbd set --control /run/nbd.ctl max_buffer_pages=256 buffer_squeeze_duration_ms=100"
)]
pub struct Cli {
    #[command(subcommand)]
    ask: Option<ask::Ask>,

    #[command(flatten)]
    exports: exports::Exports,

    #[command(flatten)]
    clients: Clients,

    #[command(flatten)]
    tls: Tls,

    #[command(flatten)]
    memory: memory::Memory,

    /// Answer `thermo-nbd status`, `set` and `squeeze` at this Unix socket
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Print what was done as JSON at the end
    #[arg(long)]
    json: bool,
}

/// Who may come, and how many.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Clients")]
struct Clients {
    /// Listen at this Unix socket; may be given more than once
    #[arg(long, value_name = "PATH")]
    unix: Vec<PathBuf>,

    /// Listen at this TCP address; may be given more than once
    #[arg(long, value_name = "ADDR:PORT")]
    tcp: Vec<String>,

    /// Give a virtual machine an export as its disk (vhost-user-blk) at this Unix socket; may be given more than once
    #[arg(long, value_name = "PATH=EXPORT")]
    vhost_user: Vec<String>,

    /// Serve the one client that standard input is connected to, and end when it leaves
    #[arg(short = 's', long = "stdin", conflicts_with_all = ["unix", "tcp", "vhost_user"])]
    stdin: bool,

    /// Clients at a time; more are hung up on
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().connections)]
    connections: usize,

    /// Answers that wait for one client to take them; then nothing more is read of it
    #[arg(long, value_name = "SIZE", default_value_t = Limits::default().client_bytes)]
    client_bytes: Bytes,

    /// Hang up on a client that stops in the middle of a request for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    stall: u64,

    /// Threads that serve clients
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().workers)]
    threads: usize,
}

impl Clients {
    fn limits(&self) -> Limits {
        Limits {
            connections: self.connections,
            client_bytes: self.client_bytes,
            stall: Nanos::secs(self.stall),
            workers: self.threads,
        }
    }

    // Where to listen: what was asked for, and what a service manager opened for us.
    fn listen(&self) -> anyhow::Result<Vec<Listen>> {
        let given = activation::sockets(|name| std::env::var(name).ok())?;
        let machines = self.vhost_user.iter().map(|text| machine(text));
        let machines = machines.collect::<anyhow::Result<Vec<_>>>()?;
        let listen: Vec<_> = (self.unix.iter().cloned().map(Listen::Unix))
            .chain(self.tcp.iter().cloned().map(Listen::Tcp))
            .chain(machines)
            .chain(given.into_iter().map(Listen::Socket))
            .collect();
        ensure!(
            self.stdin || !listen.is_empty(),
            "nobody could connect: give --unix PATH, --tcp ADDR:PORT, or --vhost-user PATH=EXPORT"
        );
        Ok(listen)
    }
}

// A path may hold an equals sign, so the last one counts.
fn machine(text: &str) -> anyhow::Result<Listen> {
    let (path, export) = text
        .rsplit_once('=')
        .filter(|(path, _)| !path.is_empty())
        .with_context(|| format!("--vhost-user {text:?} is not PATH=EXPORT"))?;
    Ok(Listen::VhostUser {
        path: PathBuf::from(path),
        export: export.to_owned(),
    })
}

/// Encryption.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Encryption")]
struct Tls {
    /// Offer TLS with the certificates in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The key that belongs to them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Let in only clients that show a certificate of an authority in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,

    /// Serve nobody in the clear
    #[arg(long, requires = "tls_cert")]
    tls_required: bool,
}

impl Tls {
    fn encryption(&self) -> anyhow::Result<Option<Encryption>> {
        let (Some(certificates), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let required = self.tls_required || self.tls_ca.is_some();
        Ok(Some(Encryption::new(
            certificates,
            key,
            self.tls_ca.as_deref(),
            required,
        )?))
    }
}

impl Cli {
    /// Serves until it is asked to end, or asks a server that runs.
    pub fn run(self) -> anyhow::Result<Exit> {
        if let Some(ask) = self.ask {
            return ask.run();
        }
        let (listen, encryption) = (self.clients.listen()?, self.tls.encryption()?);
        let exports = self.exports.open()?;
        interrupt::listen().context("signals cannot be listened to")?;
        let pools = Pools::new(self.memory.budget, self.memory.settings());
        let bus = Bus::default();
        let _joined = pools.join(&bus, 0);
        let choice = source::choose(Path::new("/"), |name| std::env::var(name).ok());
        choice
            .reasons
            .iter()
            .for_each(|reason| eprintln!("pressure: {reason}"));
        let keeper = Keeper::start(&pools, &bus, choice.sources).context("no thread can be started")?;
        let server = Server::start(exports, listen, &pools, self.clients.limits(), encryption)?;
        server
            .addrs()
            .iter()
            .for_each(|addr| eprintln!("listening at {addr}"));
        let facts = Arc::new(Facts {
            server,
            pools,
            bus,
            keeper,
            reasons: choice.reasons,
        });
        let control = match &self.control {
            Some(path) => Some(Control::start(path, Arc::clone(&facts))?),
            None => None,
        };
        if self.clients.stdin {
            serve_stdin(&facts.server)?;
        } else {
            wait(|| false);
        }
        drop(control);
        let ended = stats::end(&facts, self.json);
        drop(facts);
        ended?;
        Ok(Exit::Done)
    }
}

fn serve_stdin(server: &Server) -> anyhow::Result<()> {
    let Some(client) = activation::stdin()? else {
        bail!(
            "standard input is no socket, so there is no client on it. Start it from a program that gives it one (nbdsh: h.connect_command), or give --unix PATH"
        );
    };
    server.serve(client).context("the client on standard input")?;
    wait(|| server.status().connections == 0);
    Ok(())
}

fn wait(is_over: impl Fn() -> bool) {
    while !interrupt::asked() && !is_over() {
        std::thread::sleep(POLL);
    }
}
