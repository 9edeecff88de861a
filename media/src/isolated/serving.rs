//! The process of a source: from its node's orders on standard input, a socket, to the frames that it
//! sends back there. It ends with its node.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use parking_lot::Mutex;
use rustix::process::{Signal, set_parent_process_death_signal};
use selvedge_control_config::{EncoderKnob, SourceUri};
use selvedge_os::sandbox::{CapabilitySet, close_others, confine, keep_capabilities};
use selvedge_units::{Bitrate, Duration};
use serde::de::DeserializeOwned;

use super::message::{FrameHead, Info, Order, Report, Request, send};
use super::plugins;
use crate::error::SourceError;
use crate::frame::{End, MediaFrame};
use crate::onlookers::{Onlookers, Watched};
use crate::source::{Encoder, Source, SourceOpener, elements};

/// The files that name resolution reads, and those that TLS trusts.
#[rustfmt::skip]
const READABLE: [&str; 9] = [
    "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services",
    "/etc/ssl/certs", "/usr/share/ca-certificates", "/run/systemd/resolve",
];

/// Runs a source for the node at the other end of standard input, until that end is closed.
///
/// # Errors
/// [`ServeError`], if this was not started by a node; errors of the source go to the node.
pub fn serve() -> Result<(), ServeError> {
    close_others();
    // It may have been started by a link of another name.
    let _ = rustix::thread::set_name(c"selvedge-source");
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from)?;
    // Before any thread is started: each thread has its own set.
    keep_capabilities(CapabilitySet::empty())?;
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut lines = BufReader::new(socket.try_clone()?);
    let mut request: Request = next(&mut lines).ok_or(ServeError::NoRequest)?;
    let mut uri: SourceUri = request.uri.parse().map_err(|_| ServeError::NoRequest)?;
    if let Some(from) = request.from {
        uri.keep_to(from);
    }
    if let SourceUri::Launch { bitrate, .. } = &mut uri {
        *bitrate = request.bitrate.take().map(EncoderKnob::from);
    }
    let opener = match elements::init().and_then(|()| SourceOpener::new(&uri, &request.base)) {
        Ok(opener) => opener,
        Err(error) => return Ok(send(&socket, &failure(&error), &[])?),
    };
    opener.load_ciphers();
    plugins::load(&uri, request.thumbnails);
    confine(&READABLE.map(Path::new))?;

    let stop = AtomicBool::new(false);
    let (attempts, asked) = channel();
    let reports = Arc::new(Reports {
        socket: Mutex::new(socket),
        stop,
        watched: Mutex::default(),
        encoder: Mutex::default(),
    });
    let to = Arc::clone(&reports);
    thread::Builder::new().name("node".into()).spawn(move || {
        while let Some(order) = next(&mut lines) {
            match order {
                Order::Open { limit_ns } => drop(attempts.send(Duration(limit_ns))),
                Order::Watch(watched) => *to.watched.lock() = watched,
                Order::Rate { bps } => {
                    to.encoder().iter().for_each(|one| one.set_rate(Bitrate(bps)));
                }
                Order::Intra => to.encoder().iter().for_each(Encoder::request_intra),
            }
        }
        to.stop.store(true, Ordering::Relaxed);
    })?;
    Serving { reports, request, opener }.run(&asked);
    Ok(())
}

/// Why a process of a source can't work.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was not started by a node.
    #[error("standard input has no source; only a node starts this, for a source in the network")]
    NoRequest,
    /// It has more rights than it should.
    #[error("this source can't be isolated: {0}")]
    Sandbox(#[from] selvedge_os::sandbox::SandboxError),
    /// Its node is gone.
    #[error("standard input is no socket of a node: {0}")]
    Socket(#[from] std::io::Error),
}

/// The next line; `None` at the end.
fn next<T: DeserializeOwned>(lines: &mut impl BufRead) -> Option<T> {
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

fn failure(error: &SourceError) -> Report {
    Report::Failed { trouble: error.trouble(), text: error.to_string() }
}

/// The connection to the node, for several threads.
#[derive(Debug)]
struct Reports {
    socket: Mutex<UnixStream>,
    stop: AtomicBool,
    /// What the node's pages watch.
    watched: Mutex<Watched>,
    /// The encoder of the open source, if its rate may change.
    encoder: Mutex<Option<Encoder>>,
}

impl Reports {
    fn encoder(&self) -> Option<Encoder> {
        self.encoder.lock().clone()
    }

    /// Sends; if that fails, no node is left to work for.
    fn send(&self, report: &Report, bytes: &[u8]) {
        if send(&self.socket.lock(), report, bytes).is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Onlookers for Reports {
    fn watched(&self) -> Watched {
        *self.watched.lock()
    }

    fn small(&self, jpeg: &[u8]) {
        self.send(&Report::Thumbnail, jpeg);
    }

    fn refused(&self, packets: u64) {
        if packets > 0 {
            self.send(&Report::Refused { packets }, &[]);
        }
    }

    fn image(&self, present: Duration, jpeg: &[u8]) {
        self.send(&Report::Image { media_ns: present.0 }, jpeg);
    }
}

struct Serving {
    reports: Arc<Reports>,
    request: Request,
    opener: SourceOpener,
}

impl Serving {
    /// Opens the source each time the node requests it.
    fn run(&self, asked: &Receiver<Duration>) {
        for limit in asked {
            let report = match self.deliver(limit) {
                Ok(End::Stopped) => return,
                Ok(End::Eos { note }) => Report::Ended { note },
                Err(error) => failure(&error),
            };
            self.reports.send(&report, &[]);
        }
    }

    fn deliver(&self, limit: Duration) -> Result<End, SourceError> {
        let Request { payload_max, thumbnails, units, expected_ns, .. } = self.request;
        let (reports, stop) = (&self.reports, &self.reports.stop);
        let mut source = Source::open_by(self.opener.clone(), payload_max, limit, stop)?;
        let encoder = source.encoder();
        let range = encoder.as_ref().map(Encoder::range).map(|(least, most)| (least.0, most.0));
        *reports.encoder.lock() = encoder;
        let info = Info::from(source.info());
        reports.send(&Report::Open { info, encoder: range }, &[]);
        let shown = source.show(Arc::clone(reports) as Arc<dyn Onlookers>, thumbnails);
        // A page is less important than the stream: it continues without small pictures.
        if let Err(error) = shown {
            tracing::warn!(%error, "no thumbnails");
        }
        source.expect_period(Duration(expected_ns));
        let mut bytes = Vec::new();
        let mut sink = |frame: MediaFrame<'_>| {
            let units = units || reports.watched().units;
            let head = FrameHead::new(&frame, units, &mut bytes);
            reports.send(&Report::Frame(head), &bytes);
        };
        source.run(&mut sink, stop)
    }
}
