//! TLS configuration: certificates from PEM files, and client authentication.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

/// TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A PEM file does not hold the expected item.
    #[error("{}: no PEM {what} found: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The expected item.
        what: &'static str,
        /// The cause.
        source: pem::Error,
    },
    /// rustls rejects the certificate chain or key.
    #[error("the certificates and the private key do not form a valid TLS configuration: {0}")]
    Config(#[from] rustls::Error),
    /// rustls rejects the client authorities.
    #[error("{}: cannot verify clients with these authorities: {reason}", .path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
}

/// TLS configuration of a server (x509).
#[derive(Debug, Clone)]
pub struct Encryption {
    config: Arc<ServerConfig>,
    /// Reject unencrypted clients.
    pub required: bool,
}

impl Encryption {
    /// Loads the certificate chain and key of the server. With `authorities`, clients must present a
    /// certificate signed by one of them.
    ///
    /// # Errors
    /// A file cannot be read, or the certificates and key do not match.
    pub fn new(
        certificates: &Path,
        key: &Path,
        authorities: Option<&Path>,
        required: bool,
    ) -> Result<Self, TlsError> {
        let chain = certificates_of(certificates)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::File {
            path: key.to_owned(),
            what: "private key",
            source,
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let refused = |reason: String| TlsError::Authorities {
                    path: path.to_owned(),
                    reason,
                };
                let mut roots = RootCertStore::empty();
                for certificate in certificates_of(path)? {
                    roots
                        .add(certificate)
                        .map_err(|error| refused(error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| refused(error.to_string()))?)
            }
        };
        Ok(Self {
            config: Arc::new(builder.with_single_cert(chain, key)?),
            required,
        })
    }

    pub(crate) fn connection(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.config))
    }
}

fn certificates_of(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = all.and_then(|all| {
        if all.is_empty() {
            Err(pem::Error::NoItemsFound)
        } else {
            Ok(all)
        }
    });
    found.map_err(|source| TlsError::File {
        path: path.to_owned(),
        what: "certificate",
        source,
    })
}
