//! TCP with TLS 1.3 by rustls, and the certificate that QUIC uses as well.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use selvedge_units::Bytes;

use crate::BenchError;
use crate::load::Trips;
use crate::plain::{self, stream, stream_trips};

/// Whom the certificate is for.
pub(crate) const NAME: &str = "localhost";

fn failed(error: impl Display) -> BenchError {
    BenchError { transport: "TLS", why: error.to_string() }
}

/// Both ends' settings, with a certificate made for this run.
pub(crate) fn configs() -> Result<(ClientConfig, ServerConfig), BenchError> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).map_err(failed)?;
    let certificate: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).map_err(failed)?;
    let versions = &[&rustls::version::TLS13];
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .map_err(failed)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(failed)?;
    Ok((client, server))
}

type End<C> = StreamOwned<C, std::net::TcpStream>;

fn pair(patience: Duration) -> Result<(End<ClientConnection>, End<ServerConnection>), BenchError> {
    let (client, server) = configs()?;
    let [mut a, mut b] = plain::tcp_pair(Duration::from_secs(5))?;
    let name = ServerName::try_from(NAME).map_err(failed)?;
    let mut client = ClientConnection::new(Arc::new(client), name).map_err(failed)?;
    let mut server = ServerConnection::new(Arc::new(server)).map_err(failed)?;
    std::thread::scope(|scope| {
        let there = scope.spawn(|| server.complete_io(&mut b).map(|_| ()));
        client.complete_io(&mut a).map_err(failed)?;
        there.join().map_err(|_| failed("the handshake panicked"))?.map_err(failed)
    })?;
    for end in [&a, &b] {
        end.set_read_timeout(Some(patience)).map_err(failed)?;
    }
    Ok((StreamOwned::new(client, a), StreamOwned::new(server, b)))
}

pub(crate) fn rate(size: Bytes, long: Duration) -> Result<f64, BenchError> {
    let (a, b) = pair(Duration::from_millis(20))?;
    Ok(stream(a, b, size, long))
}

pub(crate) fn trips() -> Result<Trips, BenchError> {
    let (a, b) = pair(Duration::from_secs(5))?;
    Ok(stream_trips(a, b))
}
