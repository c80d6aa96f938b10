//! Accepting and serving connections, each within its limits.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutWriter;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::auth::Peer;
use crate::limits::Peers;
use crate::listen;

/// Time for the head of a request, from its first byte or from the end of the last one.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Time for the TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Time in which a client must take at least one byte of its answer.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// Longest head of a request in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Most headers of a request.
const MAX_HEADERS: usize = 64;
/// Pause after the kernel refused a connection, usually for want of a descriptor.
const PAUSE: Duration = Duration::from_millis(100);
/// The answer to a connection too many.
const REFUSAL: &str = r#"{"error":"too many connections: close some that are not used, and try again"}"#;

/// A listening socket of the event loop.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// An accepted socket, and whether TLS applies to it.
struct Accepted {
    stream: Pin<Box<dyn Stream>>,
    peer: Peer,
    is_tcp: bool,
}

impl Listener {
    /// Hands a socket to the event loop of this thread.
    pub(crate) fn new(listener: listen::Listener) -> io::Result<Self> {
        match listener {
            listen::Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                UnixListener::from_std(listener).map(Self::Unix)
            }
            listen::Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Self::Tcp)
            }
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        Ok(match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Accepted {
                    peer: Peer::User(stream.peer_cred()?.uid()),
                    stream: Box::pin(stream),
                    is_tcp: false,
                }
            }
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Accepted {
                    peer: Peer::from_ip(address.ip()),
                    stream: Box::pin(stream),
                    is_tcp: true,
                }
            }
        })
    }
}

/// What requests know of their connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    pub(crate) is_encrypted: bool,
}

/// What serves connections.
pub(crate) struct Acceptor {
    router: Router,
    peers: Arc<Peers>,
    tls: Option<TlsAcceptor>,
}

impl Acceptor {
    pub(crate) fn new(router: Router, peers: Arc<Peers>, tls: Option<TlsAcceptor>) -> Self {
        Self { router, peers, tls }
    }

    async fn serve(&self, accepted: Accepted) {
        let Accepted {
            mut stream,
            peer,
            is_tcp,
        } = accepted;
        let Some(_slot) = self.peers.connect(peer, Instant::now()) else {
            // Without TLS the client reads the reason. One try: the peer has no claim to more.
            if self.tls.is_none() || !is_tcp {
                let _ = timeout(PAUSE, stream.write_all(refusal().as_bytes())).await;
            }
            return;
        };
        match self.tls.as_ref().filter(|_| is_tcp) {
            None => self.serve_http(stream, peer, false).await,
            Some(tls) => {
                if let Ok(Ok(stream)) = timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
                    self.serve_http(Box::pin(stream), peer, true).await;
                }
            }
        }
    }

    async fn serve_http(&self, stream: Pin<Box<dyn Stream>>, peer: Peer, is_encrypted: bool) {
        let mut stream = TimeoutWriter::new(stream);
        stream.set_timeout(Some(WRITE_TIME));
        let connection = Connection { peer, is_encrypted };
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(connection);
            self.router.clone().oneshot(request.map(Body::new))
        });
        // The client went away, was too slow, or did not speak HTTP: nobody is left to tell.
        let _ = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(Box::pin(stream)), service)
            .await;
    }
}

fn refusal() -> String {
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{REFUSAL}",
        REFUSAL.len()
    )
}

/// Accepts connections until the future is dropped.
pub(crate) async fn accept_all(listeners: Vec<Listener>, acceptor: Arc<Acceptor>) {
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(accept(listener, Arc::clone(&acceptor)));
    }
    // Without a socket there is nothing to do but to wait for the end.
    while tasks.join_next().await.is_some() {}
    std::future::pending().await
}

async fn accept(listener: Listener, acceptor: Arc<Acceptor>) {
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                let acceptor = Arc::clone(&acceptor);
                tokio::spawn(async move { acceptor.serve(accepted).await });
            }
            Err(error) => {
                tracing::debug!("a connection was refused by the kernel: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}
