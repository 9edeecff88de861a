//! A stream that a node's API is asked for: `URL -> POST -> session description`. Until it is dropped it is asked for
//! again in time, also of a node that restarted; then it is left.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant as StdInstant;

use selvedge_cli_terminal::Failure;
use selvedge_control_config::view::AskedReceiver;
use selvedge_units::Duration;
use serde_json::json;

use crate::top::http::{Client, HttpError, TokenArgs};

/// How long one request lasts, and how often it is repeated before that is over.
const LASTS_S: u64 = 30;
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// How long an answer may take, and the answer to leaving.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const LEFT_WITHIN: Duration = Duration::from_secs(1);
/// How long a node may take until it knows what its source delivers, and how often it is asked meanwhile.
const KNOWN_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Without packets for this long, the node is asked again: it may have restarted.
const SILENT: Duration = Duration::from_secs(1);
/// The first wait before it is asked again while it does not send, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));

/// Why a node does not send a stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskFault {
    #[error("\"{0}\": write http://HOST:PORT/streams/NAME, or https:// where the node speaks TLS")]
    Url(String),
    #[error(
        "the node wants the token of this stream's receivers, as `receivers` of its node file has it; set \
         SELVEDGE_TOKEN or use --token"
    )]
    Token,
    #[error(transparent)]
    Http(HttpError),
    #[error("what answers is no node, or one of another version ({0}); see its address")]
    Answer(serde_json::Error),
    #[error("the node does not know yet what the stream consists of; is its source there?")]
    Unknown,
    #[error("no port is free: {0}")]
    Port(io::Error),
}

impl From<AskFault> for Failure {
    fn from(fault: AskFault) -> Self {
        match fault {
            AskFault::Url(_) => Self::input(fault),
            AskFault::Http(error) => error.into(),
            _ => Self::failed(fault),
        }
    }
}

/// What is asked for, of whom.
#[derive(Clone)]
struct Request {
    client: Client,
    /// That of the stream's receivers.
    path: String,
    port: u16,
    delay: Option<Duration>,
}

impl Request {
    fn send(&self) -> Result<AskedReceiver, AskFault> {
        let delay = self.delay.map(|delay| delay.to_string());
        let wanted = json!({ "port": self.port, "delay": delay, "for_s": LASTS_S }).to_string();
        let answer = self.client.send("POST", &self.path, &wanted, ANSWER_WITHIN);
        let body = answer.map_err(|error| match error {
            HttpError::Status(401) => AskFault::Token,
            error => AskFault::Http(error),
        })?;
        serde_json::from_slice(&body).map_err(AskFault::Answer)
    }
}

/// A stream that a node sends here.
pub(super) struct Asked {
    request: Request,
    /// Its session description.
    pub(super) sdp: String,
    /// Holds the port until the receiver listens there.
    holder: Option<UdpSocket>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asked {
    /// Whether a source is the address of a stream of a node's.
    pub(super) fn is_url(source: &str) -> bool {
        source.starts_with("http://") || source.starts_with("https://")
    }

    /// Asks for a stream by its address; waits until the node knows what it consists of, or `given_up`.
    pub(super) fn new(
        url: &str,
        token: &TokenArgs,
        delay: Option<Duration>,
        given_up: &AtomicBool,
    ) -> Result<Self, AskFault> {
        let (node, name) =
            url.split_once("/streams/").ok_or_else(|| AskFault::Url(url.to_owned()))?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(AskFault::Url(url.to_owned()));
        }
        let client = token.client(node).map_err(AskFault::Http)?;
        let holder = UdpSocket::bind("[::]:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"));
        let holder = holder.map_err(AskFault::Port)?;
        let port = holder.local_addr().map_err(AskFault::Port)?.port();
        let path = format!("/api/v1/streams/{name}/receivers");
        let request = Request { client, path, port, delay };
        let (holder, stop) = (Some(holder), Arc::default());
        let first = request.send()?;
        let mut asked = Self { request, sdp: String::new(), holder, stop, thread: None };
        let (began, mut sdp) = (StdInstant::now(), first.sdp);
        while sdp.is_none() {
            if given_up.load(Ordering::Relaxed) || began.elapsed() > KNOWN_WITHIN.to_std() {
                return Err(AskFault::Unknown);
            }
            thread::park_timeout(LOOK_EVERY.into());
            sdp = asked.request.send()?.sdp;
        }
        asked.sdp = sdp.unwrap_or_default();
        Ok(asked)
    }

    /// Leaves its port to the receiver.
    pub(super) fn release_port(&mut self) {
        self.holder = None;
    }

    /// Asks again in time from now on, and sooner while `packets`, the number of those that came, stands still.
    pub(super) fn keep(&mut self, packets: impl Fn() -> u64 + Send + 'static) -> io::Result<()> {
        let (request, stop) = (self.request.clone(), Arc::clone(&self.stop));
        let thread = thread::Builder::new().name("ask".to_owned());
        self.thread = Some(thread.spawn(move || renew(&request, &packets, &stop))?);
        Ok(())
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there has been printed already.
            let _ = thread.join();
        }
        // A node that is gone sends nothing; one that does not answer stops by itself.
        let path = format!("{}/{}", self.request.path, self.request.port);
        let _ = self.request.client.send("DELETE", &path, "", LEFT_WITHIN);
    }
}

/// Asks again until it is to stop.
fn renew(request: &Request, packets: &dyn Fn() -> u64, stop: &AtomicBool) {
    let (mut asked, mut heard) = (StdInstant::now(), StdInstant::now());
    let (mut seen, mut wait) = (packets(), RETRY.0);
    let mut problem: Option<String> = None;
    while !stop.load(Ordering::Acquire) {
        thread::park_timeout(LOOK_EVERY.into());
        let count = packets();
        if count != seen {
            (seen, heard) = (count, StdInstant::now());
        }
        let is_well = problem.is_none() && heard.elapsed() < SILENT.to_std();
        let every = if is_well { RENEW_EVERY } else { wait };
        if asked.elapsed() < every.to_std() {
            continue;
        }
        wait = if is_well { RETRY.0 } else { (wait * 2).min(RETRY.1) };
        asked = StdInstant::now();
        let now = request.send().err().map(|why| why.to_string());
        match &now {
            Some(why) if problem.as_ref() != Some(why) => {
                eprintln!("selvedge: {why}; the node is asked again");
            }
            None if problem.is_some() => eprintln!("selvedge: the node sends again"),
            _ => {}
        }
        problem = now;
    }
}
