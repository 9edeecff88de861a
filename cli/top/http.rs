//! One request to a node: HTTP/1.1 (RFC 9112) over TCP or TLS, bounded in time and size.

mod pinned;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Instant;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use selvedge_cli_terminal::Failure;
use selvedge_control_config::{Token, TokenError};
use selvedge_units::Duration;
use selvedge_web::Fingerprint;

use self::pinned::PinnedCertificates;

/// The longest answer that is read, in bytes.
const BODY_MAX: u64 = 8 << 20;
/// The longest status line and headers together.
const HEAD_MAX: u64 = 64 << 10;
/// The longest line that gives a chunk's size, or trailer.
const LINE_MAX: u64 = 4 << 10;
const PORT: u16 = 7700;

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{0:?} is not an address; write HOST:PORT, such as 127.0.0.1:{PORT}")]
    Address(String),
    /// A token that no node can have.
    #[error("the token is {0}")]
    Token(#[from] TokenError),
    #[error(
        "the certificate of {address} is not known here; if the node there printed this fingerprint \
         when it started, add --fingerprint {fingerprint}"
    )]
    Unknown { address: String, fingerprint: Fingerprint },
    #[error("the node speaks TLS; write https:// before its address")]
    TlsOnly,
    #[error("no TLS is spoken there ({0}); if that is right, write http:// before the address")]
    NotTls(rustls::Error),
    #[error("no node answers at {address} ({error}); is it running, and there?")]
    Connect { address: String, error: io::Error },
    #[error("the node did not answer within {0}")]
    Timeout(Duration),
    /// An answer, but not 200.
    #[error("{}", of_status(*.0))]
    Status(u16),
    /// The node refuses, and states why.
    #[error("{0}")]
    Refused(String),
    #[error("the answer is longer than {} MiB", BODY_MAX >> 20)]
    TooLarge,
    #[error("the answer is not HTTP: {0}")]
    Malformed(&'static str),
    #[error("the connection broke: {0}")]
    Io(io::Error),
}

fn of_status(status: u16) -> String {
    match status {
        401 | 403 => "the node wants its token; set SELVEDGE_TOKEN or use --token".to_owned(),
        404 => "there is no node here (status 404); another server?".to_owned(),
        _ => format!("the node answered with status {status}"),
    }
}

impl From<io::Error> for HttpError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Malformed("it ends too early"),
            _ => match error.downcast() {
                Ok(error) => Self::NotTls(error),
                Err(error) => Self::Io(error),
            },
        }
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Address(_) | HttpError::Token(_) => Self::input(error),
            _ => Self::failed(error),
        }
    }
}

/// Where a node is, and as whom to ask it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct NodeAddress {
    /// The node's address: `listen` of its file. Other machines are spoken to by TLS, unless the address
    /// begins with http://
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:7700")]
    pub(crate) address: String,
    #[command(flatten)]
    token: TokenArgs,
}

/// What a node asks of its clients, and what shows that it is the node.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TokenArgs {
    /// The token that the node asks for; better set in SELVEDGE_TOKEN, where other users do not see it
    #[arg(long)]
    token: Option<String>,
    /// The fingerprint of the certificate of a node that speaks TLS, which the node prints at its start.
    /// Nodes that this user runs on this machine need none
    #[arg(long, value_name = "SHA-256")]
    fingerprint: Option<Fingerprint>,
}

impl NodeAddress {
    /// A client of the node at this address, with its token and fingerprint.
    pub(crate) fn client(&self) -> Result<Client, HttpError> {
        self.token.client(&self.address)
    }
}

impl TokenArgs {
    /// Whether no option was given.
    pub(crate) const fn is_none(&self) -> bool {
        self.token.is_none() && self.fingerprint.is_none()
    }

    /// A client of the node at this address, with this token and fingerprint.
    pub(crate) fn client(&self, address: &str) -> Result<Client, HttpError> {
        let token = self.token.clone().or_else(|| std::env::var("SELVEDGE_TOKEN").ok());
        let token = token.filter(|token| !token.is_empty());
        Client::new(address, token.as_deref(), self.fingerprint)
    }
}

/// The address of a node, and the credentials for it.
#[derive(Clone)]
pub(crate) struct Client {
    /// `HOST:PORT`.
    address: String,
    token: Option<Token>,
    /// The fingerprints that identify a node with TLS; `None`: it has no TLS.
    trusted: Option<Vec<Fingerprint>>,
}

impl Client {
    /// Takes `HOST:PORT`, `HOST`, or either with `http://` or `https://` before and `/` after.
    pub(crate) fn new(
        address: &str,
        token: Option<&str>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Self, HttpError> {
        let token = token.map(str::parse).transpose()?;
        let (scheme, host) = address.split_once("://").unwrap_or(("", address));
        if !matches!(scheme, "" | "http" | "https") {
            return Err(HttpError::Address(address.to_owned()));
        }
        let host = host.trim_end_matches('/');
        let named = |c: char| c.is_ascii_alphanumeric() || "-._:[]%".contains(c);
        if host.is_empty() || host.len() > 255 || !host.chars().all(named) {
            return Err(HttpError::Address(address.to_owned()));
        }
        // The colons in `[::1]` do not separate a port.
        let port = host.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
        let address = match port {
            None => format!("{host}:{PORT}"),
            Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => host.to_owned(),
            Some(_) => return Err(HttpError::Address(address.to_owned())),
        };
        let encrypted = scheme == "https" || (scheme.is_empty() && !is_local(&address));
        let trusted =
            encrypted.then(|| fingerprint.into_iter().chain(Fingerprint::kept()).collect());
        Ok(Self { address, token, trusted })
    }

    /// `HOST:PORT`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The body of the answer to a request without a body of its own.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        limit: Duration,
    ) -> Result<Vec<u8>, HttpError> {
        self.send(method, path, "", limit)
    }

    /// The body of the answer to a request. Looking up the host's name is not part of the time limit.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        sent: &str,
        limit: Duration,
    ) -> Result<Vec<u8>, HttpError> {
        let failed = |error| HttpError::Connect { address: self.address.clone(), error };
        let places = self.address.to_socket_addrs().map_err(failed)?;
        let clock = Deadline { until: Instant::now() + limit.to_std() };
        let timed = |error: HttpError| match error {
            HttpError::Io(error)
                if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) =>
            {
                HttpError::Timeout(limit)
            }
            error => error,
        };
        let stream = connect(places, &clock).map_err(failed)?;
        let stream = DeadlineStream { stream, clock: &clock };
        let Some(trusted) = &self.trusted else {
            return self.ask(stream, method, path, sent).map_err(timed);
        };
        let certificates = PinnedCertificates::new(trusted.clone());
        let config = certificates.config().map_err(HttpError::NotTls)?;
        // The name is not checked, and with an address no server name is sent (RFC 6066, 3).
        let name = ServerName::from(IpAddr::from([127, 0, 0, 1]));
        let client = ClientConnection::new(config, name).map_err(HttpError::NotTls)?;
        self.ask(StreamOwned::new(client, stream), method, path, sent).map_err(|error| {
            let refused = certificates.refused().map(|fingerprint| {
                let address = self.address.clone();
                HttpError::Unknown { address, fingerprint }
            });
            refused.unwrap_or_else(|| timed(error))
        })
    }

    fn ask(
        &self,
        mut stream: impl Read + Write,
        method: &str,
        path: &str,
        sent: &str,
    ) -> Result<Vec<u8>, HttpError> {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n",
            self.address,
            sent.len()
        );
        if let Some(token) = &self.token {
            request.push_str(&format!("Authorization: Bearer {}\r\n", token.as_str()));
        }
        request.push_str("\r\n");
        request.push_str(sent);
        stream.write_all(request.as_bytes())?;
        body(&mut BufReader::new(stream))
    }
}

/// Whether this `HOST:PORT` is on this machine, as far as that is known without a name look-up.
fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || literal.is_ok_and(|literal| literal.to_canonical().is_loopback())
}

fn connect(places: impl Iterator<Item = SocketAddr>, clock: &Deadline) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for place in places {
        match TcpStream::connect_timeout(&place, clock.left()?.into()) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The instant by which everything must be done.
struct Deadline {
    until: Instant,
}

impl Deadline {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left.into()) }
    }
}

/// A stream whose reads and writes end by one instant, however slowly bytes arrive.
struct DeadlineStream<'c> {
    stream: TcpStream,
    clock: &'c Deadline,
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.clock.left()?.into()))?;
        self.stream.read(buffer)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.clock.left()?.into()))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How a body ends.
enum End {
    Length(u64),
    Chunks,
    Close,
}

/// The body of a response with status 200; for others the reason that they state.
fn body(reader: &mut impl BufRead) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    let (status, end) = head(reader)?;
    match end {
        End::Length(length) if length > BODY_MAX => return Err(HttpError::TooLarge),
        End::Length(length) => {
            reader.take(length).read_to_end(&mut body)?;
            if (body.len() as u64) < length {
                return Err(HttpError::Malformed("it ends too early"));
            }
        }
        End::Chunks => chunks(reader, &mut body)?,
        End::Close => {
            reader.take(BODY_MAX + 1).read_to_end(&mut body)?;
            if body.len() as u64 > BODY_MAX {
                return Err(HttpError::TooLarge);
            }
        }
    }
    match status {
        200 => Ok(body),
        307 => Err(HttpError::TlsOnly),
        _ => Err(refusal(&body).map_or(HttpError::Status(status), HttpError::Refused)),
    }
}

/// The text with which a node refuses a request.
fn refusal(body: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = &answer["error"];
    // If a token is missing, the instruction how to pass one to this program is more useful.
    let said = error["message"].as_str().filter(|_| error["code"] != "unauthorized")?;
    Some(match error["remedy"].as_str() {
        Some(remedy) => format!("{said}; {remedy}"),
        None => said.to_owned(),
    })
}

/// Status line and headers, up to the empty line.
fn head(reader: &mut impl BufRead) -> Result<(u16, End), HttpError> {
    let mut head = reader.take(HEAD_MAX);
    let first = line(&mut head)?;
    let status = first
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|status| status.parse::<u16>().ok())
        .ok_or(HttpError::Malformed("no status line"))?;
    let mut end = End::Close;
    loop {
        let line = line(&mut head)?;
        if line.is_empty() {
            return Ok((status, end));
        }
        let (name, value) = line.split_once(':').ok_or(HttpError::Malformed("a bad header"))?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(HttpError::Malformed("an unknown transfer encoding"));
            }
            end = End::Chunks;
        } else if name.eq_ignore_ascii_case("content-length") && !matches!(end, End::Chunks) {
            let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
            let length = value.parse().ok().filter(|_| digits);
            end = End::Length(length.ok_or(HttpError::Malformed("a bad content length"))?);
        }
    }
}

/// Chunks and trailers (RFC 9112 section 7.1).
fn chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> Result<(), HttpError> {
    loop {
        let size = line(&mut reader.take(LINE_MAX))?;
        let size = size.split(';').next().unwrap_or("").trim();
        let digits = (1..=16).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|_| digits);
        let size = size.ok_or(HttpError::Malformed("a bad chunk size"))?;
        if size == 0 {
            break;
        }
        if size > BODY_MAX - body.len() as u64 {
            return Err(HttpError::TooLarge);
        }
        let before = body.len() as u64;
        reader.take(size).read_to_end(body)?;
        if body.len() as u64 - before < size || !line(&mut reader.take(2))?.is_empty() {
            return Err(HttpError::Malformed("a chunk that ends elsewhere"));
        }
    }
    let mut trailers = reader.take(HEAD_MAX);
    while !line(&mut trailers)?.is_empty() {}
    Ok(())
}

/// A line without its end.
fn line(reader: &mut impl BufRead) -> Result<String, HttpError> {
    let mut bytes = Vec::new();
    reader.read_until(b'\n', &mut bytes)?;
    if bytes.pop() != Some(b'\n') {
        return Err(HttpError::Malformed("a line without an end"));
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    String::from_utf8(bytes).map_err(|_| HttpError::Malformed("a line that is not text"))
}

#[cfg(test)]
mod tests;
