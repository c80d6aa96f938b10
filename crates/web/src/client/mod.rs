//! A client of the API: over the UNIX socket of the agent, or a port of this machine.
//!
//! ```no_run
//! use thermo_agent::api::Targets;
//! use thermo_web::client::Client;
//!
//! let client = Client::open(&"/run/thermo/agent.sock".parse()?)?;
//! let targets: Targets = client.get("/api/v1/targets")?;
//! client.post("/api/v1/pause", None)?;
//! for change in client.stream()? {
//!     println!("{:?}", change?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod events;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thermo_agent::api::{Change, SCHEMA};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

pub use self::address::Address;
use self::events::Parser;

/// Time for an answer: longer than the server gives itself.
const ANSWER_TIME: Duration = Duration::from_secs(40);
/// Time without a byte after which the agent counts as gone: the server sends something every 15 s.
const SILENCE: Duration = Duration::from_secs(45);
/// Path of the live stream.
const STREAM: &str = "/api/v1/stream";
/// Longest answer in bytes.
const MAX_ANSWER: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens, or this user may not connect.
    #[error("cannot reach the agent at {address}: {why}. Is it running? `systemctl status thermo-agent`")]
    Unreachable {
        /// The address.
        address: Address,
        /// The reason.
        why: String,
    },
    /// The agent refused, with its reason.
    #[error("{message}")]
    Refused {
        /// The status code of HTTP.
        status: u16,
        /// The reason, with the way out.
        message: String,
    },
    /// The answer is of a newer agent.
    #[error(
        "the agent speaks version {0} of the API, and this program {SCHEMA}: use the thermo that it came with"
    )]
    Newer(u32),
    /// The answer is not one of the agent.
    #[error("{address} did not answer as an agent does: {why}")]
    Invalid {
        /// The address.
        address: Address,
        /// The reason.
        why: String,
    },
}

/// A client. Each request opens a connection of its own, so an agent that was started again is found again.
#[derive(Debug)]
pub struct Client {
    address: Address,
    token: Option<String>,
    runtime: Arc<Runtime>,
}

impl Client {
    /// A client for the agent at `address`. Nothing is sent yet.
    ///
    /// # Errors
    /// The event loop cannot be made: this process has no descriptors left.
    pub fn open(address: &Address) -> Result<Self, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ClientError::Unreachable {
            address: address.clone(),
            why: error.to_string(),
        })?;
        Ok(Self {
            address: address.clone(),
            token: None,
            runtime: Arc::new(runtime),
        })
    }

    /// The address of the agent.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Sends this token with each request.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.trim().to_owned());
        self
    }

    /// The answer of `GET path`.
    ///
    /// # Errors
    /// The agent cannot be reached, refuses, or is newer.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let body = self.text(Method::GET, path, None)?;
        #[derive(Deserialize)]
        struct Version {
            #[serde(default)]
            schema: u32,
        }
        let version: Version = serde_json::from_slice(&body).map_err(|error| self.invalid(error))?;
        if version.schema > SCHEMA {
            return Err(ClientError::Newer(version.schema));
        }
        serde_json::from_slice(&body).map_err(|error| self.invalid(error))
    }

    /// Sends `POST path`, with a JSON body if there is one.
    ///
    /// # Errors
    /// Those of [`Client::get`].
    pub fn post(&self, path: &str, body: Option<&Value>) -> Result<(), ClientError> {
        self.text(Method::POST, path, body).map(drop)
    }

    /// What changes from now on. It begins with the targets and policies of now, and ends with an error when
    /// the agent goes away.
    ///
    /// # Errors
    /// Those of [`Client::get`].
    pub fn stream(&self) -> Result<Changes, ClientError> {
        let response = self.within(ANSWER_TIME, self.send(Method::GET, STREAM, None))?;
        Ok(Changes {
            address: self.address.clone(),
            runtime: Arc::clone(&self.runtime),
            body: response.into_body(),
            parser: Parser::default(),
            ended: false,
        })
    }

    fn text(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Bytes, ClientError> {
        self.within(ANSWER_TIME, async {
            let response = self.send(method, path, body).await?;
            self.read(response).await
        })
    }

    fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let late = |_| self.unreachable(format!("no answer within {} s", limit.as_secs()));
        self.runtime
            .block_on(async { timeout(limit, work).await.map_err(late)? })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.host());
        if path != STREAM {
            // Otherwise the server would keep a place for a second request.
            request = request.header(header::CONNECTION, "close");
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request
            .body(Full::from(body))
            .map_err(|error| self.invalid(error))?;
        let response = self.connect_and_exchange(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    async fn connect_and_exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        match &self.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                self.exchange(stream.map_err(|error| self.unreachable(error))?, request)
                    .await
            }
            Address::Http { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                self.exchange(stream.map_err(|error| self.unreachable(error))?, request)
                    .await
            }
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.unreachable(error))?;
        // Its errors are those of the request.
        tokio::spawn(connection);
        sender
            .send_request(request)
            .await
            .map_err(|error| self.unreachable(error))
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        body.map(http_body_util::Collected::to_bytes)
            .map_err(|error| self.invalid(error))
    }

    async fn refusal(&self, response: Response<Incoming>) -> ClientError {
        #[derive(Deserialize)]
        struct Refusal {
            error: String,
        }
        let status: StatusCode = response.status();
        let refusal = match self.read(response).await {
            Ok(body) => serde_json::from_slice::<Refusal>(&body).ok(),
            Err(error) => return error,
        };
        match refusal {
            Some(Refusal { error: message }) => ClientError::Refused {
                status: status.as_u16(),
                message,
            },
            None => self.invalid(status),
        }
    }

    fn unreachable(&self, why: impl ToString) -> ClientError {
        ClientError::Unreachable {
            address: self.address.clone(),
            why: why.to_string(),
        }
    }

    fn invalid(&self, why: impl ToString) -> ClientError {
        ClientError::Invalid {
            address: self.address.clone(),
            why: why.to_string(),
        }
    }
}

/// What changes, from the live stream. Waits for each change.
#[derive(Debug)]
pub struct Changes {
    address: Address,
    runtime: Arc<Runtime>,
    body: Incoming,
    parser: Parser,
    ended: bool,
}

impl Changes {
    fn read(&mut self) -> Result<Change, String> {
        loop {
            if let Some(change) = self.parser.next_change()? {
                return Ok(change);
            }
            let body = &mut self.body;
            let frame = self
                .runtime
                .block_on(async { timeout(SILENCE, body.frame()).await });
            let Ok(Some(frame)) = frame else {
                return Err("the stream ended".to_owned());
            };
            let frame = frame.map_err(|error| error.to_string())?;
            if let Some(bytes) = frame.data_ref() {
                self.parser.push(bytes)?;
            }
        }
    }
}

impl Iterator for Changes {
    type Item = Result<Change, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let change = self.read().map_err(|why| ClientError::Unreachable {
            address: self.address.clone(),
            why,
        });
        self.ended = change.is_err();
        Some(change)
    }
}
