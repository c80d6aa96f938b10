//! Encryption: certificates from PEM files, and who may connect.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

/// Why encryption cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file holds not what it should.
    #[error("{}: no {what} in PEM form can be read: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why it does not.
        source: pem::Error,
    },
    /// The library refuses what was read.
    #[error("the certificates and the key cannot be used together: {0}")]
    Config(#[from] rustls::Error),
    /// The library refuses the authorities.
    #[error("{}: clients cannot be checked against it: {reason}", .path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// How connections are encrypted (x509).
#[derive(Debug, Clone)]
pub struct Encryption {
    config: Arc<ServerConfig>,
    /// Clients that do not encrypt are told to.
    pub required: bool,
}

impl Encryption {
    /// With the server's certificates and key; with `authorities` clients must show a certificate of one of them.
    ///
    /// # Errors
    /// When a file cannot be read, or they do not belong together.
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

    pub(crate) fn begin(&self) -> Result<ServerConnection, rustls::Error> {
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
