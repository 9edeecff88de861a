//! Which certificates a client trusts: those with a given fingerprint, and the one that nodes of this
//! user on this machine make. There are no authorities, and the name is not checked: the fingerprint
//! identifies the node.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible,
    SignatureScheme, version,
};
use selvedge_web::Fingerprint;

#[derive(Debug)]
pub(super) struct PinnedCertificates {
    trusted: Vec<Fingerprint>,
    /// The fingerprint of a certificate that was not trusted.
    refused: OnceLock<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl PinnedCertificates {
    pub(super) fn new(trusted: Vec<Fingerprint>) -> Arc<Self> {
        let provider = Arc::new(crypto::ring::default_provider());
        Arc::new(Self { trusted, refused: OnceLock::new(), provider })
    }

    /// The certificate that was received and not trusted.
    pub(super) fn refused(&self) -> Option<Fingerprint> {
        self.refused.get().copied()
    }

    /// The TLS 1.3 configuration that trusts only these certificates.
    pub(super) fn config(self: &Arc<Self>) -> Result<Arc<ClientConfig>, Error> {
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(self) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

impl ServerCertVerifier for PinnedCertificates {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = Fingerprint::of(certificate);
        if self.trusted.contains(&shown) {
            return Ok(ServerCertVerified::assertion());
        }
        let _ = self.refused.set(shown);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    /// Verifies that the node has the certificate's key.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
