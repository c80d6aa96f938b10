//! Serves made-up figures that move, for work on the dashboard.
//!
//! ```text
//! cargo run -p thermo-web --example fake_agent -- --listen 127.0.0.1:9797
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Parser;
use thermo_fake_agent::FakeAgent;
use thermo_web::{Server, ServerConfig, TlsFiles};

/// An agent with made-up figures.
#[derive(Parser)]
struct Options {
    /// Address of the TCP port
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Path of the UNIX socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// File with the token for reading
    #[arg(long, value_name = "FILE")]
    read_token: Option<PathBuf>,
    /// File with the token for changes
    #[arg(long, value_name = "FILE")]
    admin_token: Option<PathBuf>,
    /// Certificate for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Seconds that have passed already
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    age: u64,
    /// Real time of a made-up second, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    second: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let agent = FakeAgent::new(now.as_millis() as u64 - options.age * 1000);
    (0..options.age).for_each(|_| agent.tick());
    let tls = options.tls_cert.zip(options.tls_key);
    let config = ServerConfig {
        socket: options.socket,
        listen: options.listen,
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        read_token: options.read_token,
        admin_token: options.admin_token,
        ..ServerConfig::default()
    };
    let server = Server::start(config, agent.clone())?;
    if let Some(address) = server.address() {
        println!("http://{address}/");
    }
    loop {
        agent.tick();
        thread::sleep(Duration::from_millis(options.second));
    }
}
