//! The HTTP server: one thread with its event loop.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thermo_agent::api::Service;
use thermo_kernel::unix_socket::SocketPath;
use thermo_units::text;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsAcceptor;

use crate::auth::Tokens;
use crate::connection::{Acceptor, accept_all};
use crate::error::WebError;
use crate::limits::Peers;
use crate::listen::{self, Listener};
use crate::routes::{self, App};

/// Threads for requests that wait for the agent or read the past, and for orders and answers that are
/// encoded.
const BLOCKING_THREADS: usize = routes::MAX_WAITING_THREADS + 4;
/// Time after which a thread finds out that the server has ended.
const CHECK_TIME: Duration = Duration::from_secs(1);
/// Time that they get to end when the server ends.
const END_TIME: Duration = Duration::from_secs(2);

/// Certificate and key, both in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by those that lead to its root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Where to listen, and for whom.
#[derive(Debug, Default)]
pub struct ServerConfig {
    /// Path of the UNIX socket.
    pub socket: Option<PathBuf>,
    /// Listening sockets that a service manager opened, UNIX or TCP: those of
    /// `thermo_term::activation`.
    pub inherited: Vec<OwnedFd>,
    /// Address of the TCP port; port 0 chooses a free one.
    pub listen: Option<SocketAddr>,
    /// TLS for TCP.
    pub tls: Option<TlsFiles>,
    /// File with the token for reading.
    pub read_token: Option<PathBuf>,
    /// File with the token for changes.
    pub admin_token: Option<PathBuf>,
    /// Host names besides `localhost` and IP addresses that clients may ask for without TLS.
    pub hosts: Vec<String>,
}

/// A running server. Dropping it closes all connections and removes the UNIX socket.
#[derive(Debug)]
pub struct Server {
    address: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _socket: Option<SocketPath>,
}

impl Server {
    /// Starts a server for `service` in a thread named `web`. It answers when this returns.
    ///
    /// # Errors
    /// A socket, a token file or the certificate cannot be used, or the address is not protected.
    pub fn start(config: ServerConfig, service: Arc<dyn Service>) -> Result<Self, WebError> {
        let tokens = Tokens::load(config.read_token.as_deref(), config.admin_token.as_deref())?;
        let tls = config.tls.as_ref().map(load_tls).transpose()?;
        let protected = tls.is_some() && tokens.protect_reading();
        let (listeners, socket) = bind_all(&config, protected)?;
        let address = listeners.iter().find_map(|listener| match listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        });
        let peers = Arc::new(Peers::default());
        let changes = watch_changes(service.subscribe())?;
        let app = App::new(service, tokens, config.hosts, Arc::clone(&peers), changes);
        let acceptor = Acceptor::new(routes::router(app), peers, tls);
        let (stop, stopped) = oneshot::channel();
        let thread = start_thread(listeners, acceptor, stopped)?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
            _socket: socket,
        })
    }

    /// The address of the TCP port.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed when it happened, and must not become a second one here.
            let _ = thread.join();
        }
    }
}

fn bind_all(config: &ServerConfig, protected: bool) -> Result<(Vec<Listener>, Option<SocketPath>), WebError> {
    let (mut listeners, mut path) = (Vec::new(), None);
    for fd in &config.inherited {
        let fd = fd.try_clone().map_err(WebError::Inherited)?;
        listeners.push(listen::inherit(fd, protected)?);
    }
    if let Some(address) = config.listen {
        listeners.push(listen::bind_tcp(address, protected)?);
    }
    if let Some(socket) = &config.socket {
        let (listener, bound) = listen::bind_unix(socket)?;
        listeners.push(listener);
        path = Some(bound);
    }
    Ok((listeners, path))
}

fn start_thread(
    listeners: Vec<Listener>,
    acceptor: Acceptor,
    stopped: oneshot::Receiver<()>,
) -> Result<JoinHandle<()>, WebError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("web-work")
        .build()
        .map_err(WebError::Thread)?;
    let listeners = into_tokio(&runtime, listeners).map_err(WebError::Thread)?;
    let run = move || {
        runtime.block_on(async {
            tokio::select! {
                () = accept_all(listeners, Arc::new(acceptor)) => {}
                // The sender is dropped with the server.
                _ = stopped => {}
            }
        });
        runtime.shutdown_timeout(END_TIME);
    };
    thread::Builder::new()
        .name("web".to_owned())
        .spawn(run)
        .map_err(WebError::Thread)
}

/// Tells the event loop what wakes the service sends, until one of both ends.
fn watch_changes(wakes: mpsc::Receiver<()>) -> Result<watch::Receiver<()>, WebError> {
    let (sender, receiver) = watch::channel(());
    let run = move || {
        while !sender.is_closed() {
            match wakes.recv_timeout(CHECK_TIME) {
                Ok(()) => drop(sender.send(())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    thread::Builder::new()
        .name("web-changes".to_owned())
        .spawn(run)
        .map_err(WebError::Thread)?;
    Ok(receiver)
}

fn into_tokio(runtime: &Runtime, listeners: Vec<Listener>) -> io::Result<Vec<crate::connection::Listener>> {
    let _guard = runtime.enter();
    listeners
        .into_iter()
        .map(crate::connection::Listener::new)
        .collect()
}

fn load_tls(files: &TlsFiles) -> Result<TlsAcceptor, WebError> {
    let fail = |path: &Path, why: String| WebError::Tls {
        path: path.to_owned(),
        why,
    };
    let read = |path: &Path| text::read_file(path).map_err(|error| fail(path, error.to_string()));
    let chain = CertificateDer::pem_slice_iter(read(&files.certificate)?.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| fail(&files.certificate, error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(read(&files.key)?.as_bytes())
        .map_err(|error| fail(&files.key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(&files.certificate, error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| fail(&files.certificate, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
