//! A server with made-up figures, and a client that sends exactly what a test says.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use thermo_fake_agent::FakeAgent;
use thermo_web::{Server, ServerConfig};

pub const READ_TOKEN: &str = "read-0123456789abcdef0123";
pub const ADMIN_TOKEN: &str = "admin-0123456789abcdef012";
const STARTED_MS: u64 = 1_800_000_000_000;

/// A running server on a port and a UNIX socket.
pub struct Site {
    pub agent: Arc<FakeAgent>,
    pub address: SocketAddr,
    pub socket: PathBuf,
    pub server: Server,
    pub folder: TempDir,
}

impl Site {
    /// A server without tokens, ten minutes after its start.
    pub fn start() -> Self {
        Self::with(|_, _| {})
    }

    /// A server whose configuration was changed.
    pub fn with(change: impl FnOnce(&mut ServerConfig, &TempDir)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let agent = FakeAgent::new(STARTED_MS);
        (0..600).for_each(|_| agent.tick());
        let socket = folder.path().join("agent.sock");
        let mut config = ServerConfig {
            socket: Some(socket.clone()),
            listen: Some("127.0.0.1:0".parse().unwrap()),
            ..ServerConfig::default()
        };
        change(&mut config, &folder);
        let server = Server::start(config, agent.clone()).unwrap();
        let address = server.address().unwrap();
        Self {
            agent,
            address,
            socket,
            server,
            folder,
        }
    }

    /// A server with both tokens.
    pub fn with_tokens() -> Self {
        Self::with(|config, folder| {
            config.read_token = Some(token_file(folder, "read", READ_TOKEN));
            config.admin_token = Some(token_file(folder, "admin", ADMIN_TOKEN));
        })
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// A request over TCP without a token.
    pub fn get(&self, path: &str) -> Answer {
        exchange(self.connect(), &request("GET", path, &[], ""))
    }

    /// A request over TCP.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        exchange(self.connect(), &request(method, path, headers, body))
    }

    /// A request over the UNIX socket.
    pub fn ask_locally(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let stream = UnixStream::connect(&self.socket).unwrap();
        exchange(stream, &request(method, path, headers, body))
    }
}

/// Writes a token file that only its owner may read.
pub fn token_file(folder: &TempDir, name: &str, token: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.path().join(name);
    std::fs::write(&path, format!("{token}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// The text of a request that closes its connection.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        text += "Host: localhost\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    text + "\r\n" + body
}

/// An answer, read to the end of the connection.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        assert!(
            self.headers.contains("content-type: application/json"),
            "{self:?}"
        );
        serde_json::from_str(&self.body).unwrap()
    }

    /// The reason of a refusal.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

pub fn exchange(mut stream: impl Read + Write, text: &str) -> Answer {
    // The server may refuse before it has read everything.
    let _ = stream.write_all(text.as_bytes());
    read_answer(stream)
}

pub fn read_answer(mut stream: impl Read) -> Answer {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer {
        status: status.unwrap_or(0),
        headers: head.to_lowercase(),
        body: body.to_owned(),
    }
}
