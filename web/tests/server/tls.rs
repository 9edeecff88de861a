//! The page over TLS: the certificate checked by a client that trusts nothing else, and the treatment
//! of clients with other protocols.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use selvedge_control_config::{PageConfig, Tls};
use selvedge_units::Duration;
use selvedge_web::{Fingerprint, Limits, Server, ServerError};
use tungstenite::Message;

use crate::http::{TIMEOUT, ask_on, connect, read_answer};
use crate::idle_node::IdleNode;
use crate::socket::{open_on, quick};

const TOKEN: &str = "s3cret-token-to-control";

/// A certificate with its key in a folder of this test's own.
struct Made {
    folder: PathBuf,
    certificate: CertificateDer<'static>,
}

impl Made {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("web-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let params =
            rcgen::CertificateParams::new(["localhost".into(), "127.0.0.1".into()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        std::fs::write(folder.join("node.crt"), pem("CERTIFICATE", &certificate)).unwrap();
        std::fs::write(folder.join("node.key"), pem("PRIVATE KEY", &key.serialize_der())).unwrap();
        Self { folder, certificate }
    }

    fn tls(&self, certificate: &str, key: &str) -> Tls {
        Tls::Files { certificate: self.folder.join(certificate), key: self.folder.join(key) }
    }

    fn serve(&self, limits: Limits) -> Server {
        let (token, tls) = (TOKEN.parse().ok(), self.tls("node.crt", "node.key"));
        IdleNode::new().serve_as(PageConfig { token, tls, ..PageConfig::default() }, limits)
    }

    /// A connection of a client that trusts this certificate alone, and checks its names.
    fn connect(&self, at: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::from(at.ip());
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(client, connect(at))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine};
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
}

#[test]
fn page_api_metrics_and_sockets_are_served_by_tls() {
    let made = Made::new("served");
    let server = made.serve(quick());
    let at = server.local_addr();
    let fingerprint = Fingerprint::of(&made.certificate);
    assert_eq!(
        server.announcement(),
        format!("page: https://{at}/\ncertificate: SHA-256 {fingerprint}")
    );
    let get = |path: &str, headers: &[(&str, &str)]| {
        ask_on(&mut made.connect(at), at, &format!("GET {path}"), headers, "")
    };
    assert_eq!(get("/api/v1/node", &[]).status, 401);
    let page = get(&format!("/?token={TOKEN}"), &[]);
    assert!(page.status == 200 && page.body.contains("<title>Selvedge"), "{page:?}");
    let cookie = page.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-selvedge_") && cookie.ends_with("; Secure"), "{cookie}");
    let session = cookie.split(';').next().unwrap();
    for path in ["/api/v1/node", "/metrics"] {
        assert_eq!(get(path, &[("Cookie", session)]).status, 200, "{path}");
    }
    let own = format!("https://{at}");
    let headers = [("cookie", session), ("origin", own.as_str())];
    let mut socket = open_on(made.connect(at), at, &headers).expect("a WebSocket");
    selvedge_tests_wait::until(
        "a snapshot comes",
        || matches!(socket.read().unwrap(), Message::Text(text) if text.contains("snapshot")),
    );
}

#[test]
fn plain_http_is_sent_to_where_tls_is_spoken() {
    let made = Made::new("plain");
    let server = made.serve(quick());
    let at = server.local_addr();
    for request in ["GET /metrics?x=1", "PATCH /api/v1/streams/lecture"] {
        let answer = ask_on(&mut connect(at), at, request, &[], "");
        assert_eq!(answer.error(), (307, "tls-only".into(), "".into()));
        let path = request.split(' ').nth(1).unwrap();
        assert_eq!(answer.header("location"), Some(format!("https://{at}{path}").as_str()));
    }
    let mut other = connect(at);
    other.write_all(b"\x00\x01\x02 nothing that has a name\r\n\r\n").unwrap();
    assert_eq!(read_answer(&mut other).status, 400);
}

#[test]
fn who_does_not_finish_the_handshake_is_given_up_in_the_same_time() {
    let made = Made::new("handshake");
    let limits = Limits { header: Duration::from_millis(300), ..quick() };
    let server = made.serve(limits);
    let at = server.local_addr();
    let began = Instant::now();
    for said in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HT"] {
        let mut tcp = connect(at);
        tcp.write_all(said).unwrap();
        let mut rest = Vec::new();
        tcp.read_to_end(&mut rest).unwrap_or_else(|error| panic!("{said:?}: {error}"));
    }
    // The handshake, and then no request.
    let mut tls = made.connect(at);
    tls.conn.complete_io(&mut tls.sock).unwrap();
    let _ = tls.read(&mut [0; 64]);
    assert!(began.elapsed() < TIMEOUT);
}

#[test]
fn files_that_are_no_certificate_are_named() {
    let (made, other) = (Made::new("files"), Made::new("other"));
    std::fs::write(made.folder.join("empty.crt"), "").unwrap();
    std::fs::copy(other.folder.join("node.key"), made.folder.join("other.key")).unwrap();
    for (certificate, key, file, says) in [
        ("absent.crt", "node.key", "absent.crt", "No such file"),
        ("node.crt", "absent.key", "absent.key", "No such file"),
        ("empty.crt", "node.key", "empty.crt", "write it as PEM"),
        ("node.crt", "node.crt", "node.crt", "write it as PEM"),
        ("node.crt", "other.key", "node.crt", "can't be used as a certificate with its key"),
    ] {
        let page = PageConfig { tls: made.tls(certificate, key), ..PageConfig::default() };
        let error = Server::start(IdleNode::new(), page).unwrap_err();
        assert!(matches!(error, ServerError::Certificate(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains(says) && text.contains(file), "{text}");
    }
}
