//! Which agent to ask.

use std::path::PathBuf;

use anyhow::Context as _;
use thermo_units::text;
use thermo_web::client::{Address, Client};

/// Socket of the agent.
pub const SOCKET: &str = "/run/thermo/agent.sock";

/// Flags of the commands that ask a running agent.
#[derive(Debug, clap::Args)]
pub struct AgentAddress {
    /// The agent to ask: its socket, or http://127.0.0.1:PORT
    #[arg(long, value_name = "ADDRESS", default_value = SOCKET)]
    agent: Address,

    /// Send the token in this file: over TCP, changes need the agent's admin token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl AgentAddress {
    /// A client of the agent. Nothing is sent yet.
    ///
    /// # Errors
    /// The token file cannot be read.
    pub fn client(&self) -> anyhow::Result<Client> {
        let client = Client::open(&self.agent)?;
        let Some(path) = &self.token_file else {
            return Ok(client);
        };
        let token = text::read_file(path)
            .with_context(|| format!("cannot read the token file {}", path.display()))?;
        Ok(client.with_token(&token))
    }
}
