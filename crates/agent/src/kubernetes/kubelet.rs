//! Asks the kubelet of this node for its pods: one request, one list. The kubelet serves it from its memory;
//! the API server is not asked, except by the kubelet, whether the token may do that.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use thermo_units::text;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::pod_list::{self, Pod};
use super::tls;

/// Time for a list.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Longest list in bytes: a node has at most some hundred pods of some ten kilobytes.
const MAX_LIST: usize = 64 << 20;

/// Where the kubelet is, and what it and we prove who we are with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletConfig {
    /// `https`, or `http` for the kubelet's read-only port, which gets no token.
    pub is_encrypted: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The file with the bearer token. It is read for each request, because tokens are replaced.
    pub token_file: PathBuf,
    /// The certificates that the kubelet's is signed by, or the kubelet's own (PEM).
    pub ca_file: PathBuf,
    /// The name of the node: which the certificate may have in place of the host, and whose pods count.
    pub node: Option<String>,
}

impl KubeletConfig {
    /// The address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Why there is no list: a sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeletError {
    /// The token cannot be read, or is none.
    #[error("cannot read the token {path}: {why}. Give the service account's token as token_file")]
    Token {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The certificates cannot be read.
    #[error("cannot read certificates in {path}: {why}. Give those of the cluster as ca_file")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The event loop cannot be made.
    #[error("cannot ask the kubelet: {0}")]
    EventLoop(#[from] io::Error),
    /// Nobody listens, or the connection broke.
    #[error("cannot reach the kubelet at {url}: {why}")]
    Unreachable {
        /// The address.
        url: String,
        /// The reason.
        why: String,
    },
    /// It answered too late.
    #[error("the kubelet at {url} gave no answer within {seconds} s")]
    Slow {
        /// The address.
        url: String,
        /// The limit.
        seconds: u64,
    },
    /// It is not who it should be.
    #[error(
        "the certificate of the kubelet at {url} is refused: {why}. A certificate that the kubelet signed itself \
         is /var/lib/kubelet/pki/kubelet.crt of the node: give that as ca_file"
    )]
    Untrusted {
        /// The address.
        url: String,
        /// The reason.
        why: String,
    },
    /// The token is missing or expired.
    #[error("the kubelet at {url} refuses the token (401): check token_file")]
    Unauthorized {
        /// The address.
        url: String,
    },
    /// The service account may not list pods.
    #[error(
        "the kubelet at {url} does not let this service account list pods (403): it needs `get` on nodes/pods, \
         before Kubernetes 1.33 on nodes/proxy"
    )]
    Forbidden {
        /// The address.
        url: String,
    },
    /// It answered something else.
    #[error("the kubelet at {url} did not answer with pods: {why}")]
    Invalid {
        /// The address.
        url: String,
        /// The reason.
        why: String,
    },
}

/// A client of the kubelet of this node.
#[derive(Debug)]
pub struct Kubelet {
    config: KubeletConfig,
    time_limit: Duration,
}

impl Kubelet {
    /// A client. Nothing is read or sent yet.
    #[must_use]
    pub const fn new(config: KubeletConfig) -> Self {
        Self {
            config,
            time_limit: TIME_LIMIT,
        }
    }

    /// Gives a list at most this time, in place of 30 s.
    #[must_use]
    pub const fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// The pods of the node. Waits for the answer.
    ///
    /// # Errors
    /// There is no list.
    pub fn pods(&self) -> Result<Vec<Pod>, KubeletError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let late = |_| KubeletError::Slow {
            url: self.config.url(),
            seconds: self.time_limit.as_secs(),
        };
        let body = runtime.block_on(async { timeout(self.time_limit, self.list()).await.map_err(late)? })?;
        pod_list::parse(&body, self.config.node.as_deref()).map_err(|error| self.invalid(error))
    }

    async fn list(&self) -> Result<Bytes, KubeletError> {
        // Before connecting: without them nothing is sent.
        let request = self.request()?;
        let tls = match self.config.is_encrypted {
            true => Some(TlsConnector::from(tls::client(&self.config)?)),
            false => None,
        };
        let stream = TcpStream::connect((self.config.host.as_str(), self.config.port))
            .await
            .map_err(|error| self.unreachable(error))?;
        let Some(tls) = tls else {
            return self.exchange(stream, request).await;
        };
        let name = tls::server_name(&self.config.host).map_err(|error| self.unreachable(error))?;
        let stream = tls
            .connect(name, stream)
            .await
            .map_err(|error| self.handshake(&error))?;
        self.exchange(stream, request).await
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, KubeletError> {
        let mut request = Request::get("/pods")
            .header(header::HOST, self.config.authority())
            .header(header::ACCEPT, "application/json")
            .header(header::CONNECTION, "close")
            .header(header::USER_AGENT, concat!("thermo/", env!("CARGO_PKG_VERSION")));
        if self.config.is_encrypted {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.token()?));
        }
        request.body(Empty::new()).map_err(|error| self.invalid(error))
    }

    fn token(&self) -> Result<String, KubeletError> {
        let fail = |why: String| KubeletError::Token {
            path: self.config.token_file.clone(),
            why,
        };
        let text = text::read_file(&self.config.token_file).map_err(|error| fail(error.to_string()))?;
        let token = text.trim();
        // The text itself must not reach a log.
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(fail("it has no word of printable characters".to_owned()));
        }
        Ok(token.to_owned())
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        request: Request<Empty<Bytes>>,
    ) -> Result<Bytes, KubeletError> {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.unreachable(error))?;
        // Its errors are those of the request.
        tokio::spawn(connection);
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| self.unreachable(error))?;
        let url = || self.config.url();
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err(KubeletError::Unauthorized { url: url() }),
            StatusCode::FORBIDDEN => return Err(KubeletError::Forbidden { url: url() }),
            other => return Err(self.invalid(format!("status {other}"))),
        }
        let body = Limited::new(response.into_body(), MAX_LIST).collect().await;
        body.map(http_body_util::Collected::to_bytes)
            .map_err(|error| self.invalid(error))
    }

    fn handshake(&self, error: &io::Error) -> KubeletError {
        match tls::refused_certificate(error) {
            Some(why) => KubeletError::Untrusted {
                url: self.config.url(),
                why,
            },
            None => self.unreachable(error),
        }
    }

    fn unreachable(&self, why: impl ToString) -> KubeletError {
        KubeletError::Unreachable {
            url: self.config.url(),
            why: why.to_string(),
        }
    }

    fn invalid(&self, why: impl ToString) -> KubeletError {
        KubeletError::Invalid {
            url: self.config.url(),
            why: why.to_string(),
        }
    }
}
