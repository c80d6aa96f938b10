//! The agent in the foreground, and the check of its configuration.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use thermo_agent::agent::{Agent, Options, read_config};
use thermo_agent::config::{Config, HttpConfig};
use thermo_kernel::{clock, malloc, memlock, signals};
use thermo_term::exit::Exit;
use thermo_term::watchdog::Watchdog;
use thermo_term::{activation, interrupt, output};
use thermo_web::{Server, ServerConfig, TlsFiles};

use super::lifecycle::Lifecycle;
use crate::privileges;

/// The usual configuration.
pub(super) const CONFIG: &str = "/etc/thermo/agent.toml";

/// The agent.
#[derive(Debug, clap::Args)]
pub(super) struct Run {
    /// The configuration (TOML); docs/guide/agent.md lists every key
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,

    /// The socket, in place of the one in the configuration
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Also listen at this address, for the dashboard and for Prometheus
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Where history and ledger are kept, in place of the directory in the configuration
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        interrupt::listen().context("cannot handle Ctrl-C")?;
        signals::reload_on_hangup().context("cannot handle SIGHUP")?;
        malloc::minimize_footprint();
        let options = Options {
            config_file: self.config.clone(),
            state_dir: self.state_dir.clone(),
        };
        let config = read_config(&options)?;
        make_folders(&config)?;
        let web = self.web(&config.http)?;
        let lifecycle_socket = lifecycle_socket(&config.http);
        // A reclaimer must not wait for its own pages. Without the right to lock memory it runs unlocked.
        let _ = memlock::lock_on_fault();
        privileges::keep_only(privileges::AGENT)?;
        let agent = Agent::new(options, config)?;
        let shared = agent.shared();
        let lifecycle = agent
            .lifecycle()
            .map(|config| Lifecycle::start(config, lifecycle_socket.clone(), Arc::clone(&shared)));
        let lifecycle = lifecycle.transpose()?;
        let server =
            privileges::start_threads_with(privileges::AGENT_SERVER, || Ok(Server::start(web, shared)?))?;
        if let Some(address) = server.address() {
            thermo_kernel::message!("thermo: the dashboard is at http://{address}/");
        }
        let mut watchdog = Watchdog::from_env()?;
        Watchdog::notify_ready()?;
        let mut failure = None;
        agent.run(|agent| {
            if signals::take_hangup() {
                reload(agent);
                lifecycle.iter().for_each(Lifecycle::reload);
            }
            if let Some(watchdog) = &mut watchdog
                && let Err(error) = watchdog.notify(clock::monotonic())
            {
                failure = Some(error);
            }
            let is_broken = lifecycle.as_ref().is_some_and(Lifecycle::has_ended);
            is_broken || failure.is_some() || interrupt::requested()
        });
        drop(server);
        lifecycle.map_or(Ok(()), Lifecycle::stop)?;
        failure.map_or(Ok(Exit::Interrupted), |error| Err(error.into()))
    }

    /// The HTTP settings of the configuration, with what the flags change.
    fn web(&self, config: &HttpConfig) -> anyhow::Result<ServerConfig> {
        let inherited = activation::sockets(|name| std::env::var(name).ok())?;
        let socket = self.socket.clone().unwrap_or_else(|| config.socket.clone());
        Ok(ServerConfig {
            // A service manager that opened sockets has opened this one.
            socket: inherited.is_empty().then_some(socket),
            inherited,
            listen: self.listen.or(config.listen),
            tls: config
                .tls
                .clone()
                .map(|(certificate, key)| TlsFiles { certificate, key }),
            read_token: config.read_token_file.clone(),
            admin_token: config.admin_token_file.clone(),
            hosts: config.hosts.clone(),
        })
    }
}

/// The socket of the life cycle of applications: in the runtime directory that systemd made, or beside ours.
fn lifecycle_socket(http: &HttpConfig) -> PathBuf {
    let name = "lifecycle.sock";
    std::env::var_os("RUNTIME_DIRECTORY").map_or_else(
        || http.socket.with_file_name(name),
        |dir| PathBuf::from(dir).join(name),
    )
}

fn make_folders(config: &Config) -> anyhow::Result<()> {
    let make = |dir: &Path| {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o750).create(dir);
        made.with_context(|| format!("cannot make {}: name another directory", dir.display()))
    };
    make(&config.state_dir)?;
    config.http.socket.parent().map_or(Ok(()), make)
}

fn reload(agent: &mut Agent) {
    match agent.reload() {
        Ok(()) => thermo_kernel::message!("thermo: the configuration was read again"),
        Err(error) => thermo_kernel::message!(
            "thermo: {}; the configuration stays unchanged",
            thermo_units::printable(&error.to_string())
        ),
    }
}

/// `check FILE`.
pub(super) fn check(path: &Path) -> anyhow::Result<Exit> {
    let options = Options {
        config_file: path.to_owned(),
        state_dir: None,
    };
    let config = read_config(&options)?;
    output::text(&super::text::policies_of(&config))?;
    Ok(Exit::Done)
}
