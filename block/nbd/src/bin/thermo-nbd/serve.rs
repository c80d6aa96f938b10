//! The command-line options of the server, and its run from start to shutdown.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use thermo_kernel::{clock, open_files};
use thermo_nbd::{Encryption, Limits, Listen, Server, Sockets};
use thermo_pool::{Pools, PressureMonitor, ReclaimBus, source};
use thermo_term::activation;
use thermo_term::exit::Exit;
use thermo_term::interrupt;
use thermo_term::watchdog::Watchdog;
use thermo_units::{Bytes, Nanos};

use crate::control::{Control, ControlSocket};
use crate::stats::ServerState;
use crate::{confinement, control_client, exports, memory, stats};

/// Descriptors beside those of the clients: exports, sockets, sources of memory pressure, virtual machines.
const OTHER_FILES: usize = 512;

/// Polling interval for the request to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Serve files, block devices and memory over NBD and to virtual machines, releasing free buffers under
/// memory pressure.
///
/// Buffers of all clients never exceed the budget; requests wait when the budget is used up. Under memory
/// pressure, free buffers are returned to the kernel. Ctrl-C or SIGTERM ends the server after all received
/// requests are answered.
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
    command: Option<control_client::ControlCommand>,

    #[command(flatten)]
    exports: exports::Exports,

    #[command(flatten)]
    clients: Clients,

    #[command(flatten)]
    tls: Tls,

    #[command(flatten)]
    memory: memory::Memory,

    #[command(flatten)]
    confinement: confinement::Confinement,

    /// Accept `thermo-nbd status`, `set` and `squeeze` at this Unix socket
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Print the final status as JSON at the end
    #[arg(long)]
    json: bool,
}

/// Client options.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Clients")]
struct Clients {
    /// Listen at this Unix socket; may be given more than once
    #[arg(long, value_name = "PATH")]
    unix: Vec<PathBuf>,

    /// Listen at this TCP address; may be given more than once
    #[arg(long, value_name = "ADDR:PORT")]
    tcp: Vec<String>,

    /// Serve an export to a virtual machine as its disk (vhost-user-blk) at this Unix socket; may be given
    /// more than once
    #[arg(long, value_name = "PATH=EXPORT")]
    vhost_user: Vec<String>,

    /// Serve virtual machines whose memory is not sealed against shrinking, or has huge pages. A machine that
    /// takes its memory away then ends the server
    #[arg(long, requires = "vhost_user")]
    allow_unsealed_memory: bool,

    /// Serve the client connected to standard input, and end when it disconnects
    #[arg(short = 's', long = "stdin", conflicts_with_all = ["unix", "tcp", "vhost_user"])]
    stdin: bool,

    /// Maximum number of clients; further clients are disconnected. The last eighth is only for IP addresses
    /// and users without another connection
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().connections)]
    connections: usize,

    /// Maximum number of clients from one IP address, or of one user at Unix sockets. Default: half of
    /// --connections
    #[arg(long, value_name = "COUNT")]
    connections_per_peer: Option<usize>,

    /// Maximum size of unsent replies of one client; at that size, no further requests are read from it
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    client_bytes: Bytes,

    /// Disconnect a client that stops in the middle of a request for this many seconds (less than 16 KiB
    /// count as a stop), or whose handshake lasts as long
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    stall: u64,

    /// Number of threads that serve clients
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().workers)]
    threads: usize,
}

impl Clients {
    fn limits(&self) -> Limits {
        Limits {
            connections: self.connections,
            connections_per_peer: self.connections_per_peer.unwrap_or(self.connections.div_ceil(2)),
            client_bytes: self.client_bytes,
            stall_timeout: Nanos::secs(self.stall),
            allow_unsealed_memory: self.allow_unsealed_memory,
            workers: self.threads,
        }
    }

    /// Prints where clients can connect; `addrs` are the TCP addresses.
    fn print_listening(&self, addrs: &[SocketAddr]) {
        for path in &self.unix {
            thermo_kernel::message!("listening at {}", path.display());
        }
        for socket in &self.vhost_user {
            thermo_kernel::message!("listening for a virtual machine at {socket}");
        }
        for addr in addrs {
            thermo_kernel::message!("listening at {addr}");
        }
    }

    // The sockets to listen at: those given as options, and those passed by a service manager.
    fn listen(&self) -> anyhow::Result<Vec<Listen>> {
        let inherited = activation::sockets(|name| std::env::var(name).ok())?;
        let vhost_sockets = self.vhost_user.iter().map(|text| parse_vhost_user(text));
        let vhost_sockets = vhost_sockets.collect::<anyhow::Result<Vec<_>>>()?;
        let listen: Vec<_> = (self.unix.iter().cloned().map(Listen::Unix))
            .chain(self.tcp.iter().cloned().map(Listen::Tcp))
            .chain(vhost_sockets)
            .chain(inherited.into_iter().map(Listen::Socket))
            .collect();
        ensure!(
            self.stdin || !listen.is_empty(),
            "no socket is given. Use --unix PATH, --tcp ADDR:PORT, or --vhost-user PATH=EXPORT"
        );
        Ok(listen)
    }
}

// Splits at the last equals sign, because a path may contain one.
fn parse_vhost_user(text: &str) -> anyhow::Result<Listen> {
    let (path, export) = text
        .rsplit_once('=')
        .filter(|(path, _)| !path.is_empty())
        .with_context(|| format!("--vhost-user {text:?} is not PATH=EXPORT"))?;
    Ok(Listen::VhostUser {
        path: PathBuf::from(path),
        export: export.to_owned(),
    })
}

/// TLS options.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Encryption")]
struct Tls {
    /// Offer TLS with the certificate chain in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Require client certificates signed by an authority in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,

    /// Reject unencrypted clients
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
    /// Runs the server until a signal, or sends a command to a running server.
    pub fn run(self) -> anyhow::Result<Exit> {
        if let Some(command) = self.command {
            return command.run();
        }
        let user = self.confinement.user()?;
        let (listen, encryption) = (self.clients.listen()?, self.tls.encryption()?);
        let exports = self.exports.open()?;
        // A client needs one descriptor; where the hard limit is lower, clients wait to be accepted.
        let _ = open_files::raise_limit((self.clients.connections + OTHER_FILES) as u64);
        interrupt::listen().context("cannot install signal handlers")?;
        let pools = Pools::new(self.memory.budget, self.memory.settings());
        let bus = ReclaimBus::default();
        let _registration = pools.register_on(&bus, 0);
        let selection = source::choose(Path::new("/"), |name| std::env::var(name).ok());
        selection
            .reasons
            .iter()
            .for_each(|reason| thermo_kernel::message!("pressure: {reason}"));
        let sockets = Sockets::open(listen)?;
        let control = self.control.as_deref().map(ControlSocket::bind).transpose()?;
        let folders = sockets.folders().chain(control.iter().map(ControlSocket::folder));
        let mut watchdog = Watchdog::from_env()?;
        // All files are open now, and no thread runs yet.
        self.confinement.apply(user, folders.collect())?;
        let monitor = PressureMonitor::start(&pools, &bus, selection.sources)
            .context("cannot start the pressure monitor")?;
        let server = Server::start(exports, sockets, &pools, self.clients.limits(), encryption)?;
        self.clients.print_listening(server.addrs());
        let state = Arc::new(ServerState {
            server,
            pools,
            bus,
            monitor,
            reasons: selection.reasons,
        });
        let control = control.map(|socket| Control::start(socket, Arc::clone(&state)));
        let control = control.transpose()?;
        if self.clients.stdin {
            serve_stdin(&state.server, &mut watchdog)?;
        } else {
            wait(&state.server, &mut watchdog, || false)?;
        }
        drop(control);
        let printed = stats::print_summary(&state, self.json);
        drop(state);
        printed?;
        Ok(Exit::Done)
    }
}

fn serve_stdin(server: &Server, watchdog: &mut Option<Watchdog>) -> anyhow::Result<()> {
    let Some(client) = activation::stdin()? else {
        bail!(
            "standard input is not a socket. Start thermo-nbd -s from a program that passes one (nbdsh: h.connect_command), or use --unix PATH"
        );
    };
    server.serve(client).context("the client on standard input")?;
    wait(server, watchdog, || server.status().connections == 0)
}

/// Waits for a signal or `is_finished`, and serves the watchdog meanwhile. A panic of another thread ends the
/// process. A thread that holds a lock of the server for ever ends the messages, so systemd restarts the
/// server.
fn wait(
    server: &Server,
    watchdog: &mut Option<Watchdog>,
    is_finished: impl Fn() -> bool,
) -> anyhow::Result<()> {
    while !interrupt::requested() && !is_finished() {
        let now = clock::monotonic();
        if let Some(watchdog) = watchdog.as_mut().filter(|watchdog| watchdog.next() <= now) {
            let _ = server.status();
            watchdog.notify(now)?;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
