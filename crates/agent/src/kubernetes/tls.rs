//! Which certificates of a kubelet are accepted: those that the certificates of `ca_file` signed, for the
//! host of the URL or for the name of the node. A kubelet that signs its own certificate puts only the node's
//! name into it, and pods reach it by address.

use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use thermo_units::text;

use super::kubelet::{KubeletConfig, KubeletError};

/// The settings for connections to the kubelet. `ca_file` is read each time: certificates are replaced.
pub(super) fn client(config: &KubeletConfig) -> Result<Arc<ClientConfig>, KubeletError> {
    let fail = |why: String| KubeletError::Certificates {
        path: config.ca_file.clone(),
        why,
    };
    let pem = text::read_file(&config.ca_file).map_err(|error| fail(error.to_string()))?;
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| fail(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(fail("it has no certificate".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|error| fail(error.to_string()))?;
    let node = config.node.as_deref().map(server_name).transpose();
    let verifier = NodeVerifier {
        verifier,
        node: node.map_err(|error| fail(error.to_string()))?,
    };
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(client))
}

/// The name or address as certificates have it.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, InvalidDnsNameError> {
    ServerName::try_from(host.to_owned())
}

/// Why the certificate was refused, if that is the error.
pub(super) fn refused_certificate(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    matches!(error, Error::InvalidCertificate(_)).then(|| error.to_string())
}

#[derive(Debug)]
struct NodeVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    node: Option<ServerName<'static>>,
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verify = |name: &ServerName<'_>| {
            self.verifier
                .verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
        };
        match (verify(server_name), &self.node) {
            (
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                )),
                Some(node),
            ) => verify(node),
            (result, _) => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
