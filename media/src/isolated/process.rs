//! A source's process as its node sees it: the node starts it, requests it to open the source, reads
//! from it, and ends it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;
use selvedge_control_config::SourceUri;
use selvedge_units::{Bitrate, Duration};

use super::message::{self, Inbox, Knob, Order, Report, Request};
use crate::error::{SourceError, Trouble};
use crate::frame::{End, FrameSink, StreamInfo};
use crate::onlookers::{Onlookers, Watched};
use crate::source::{Encoder, EncoderOrders};

/// How long a read waits before it checks whether it must stop.
const LOOK: Duration = Duration::from_millis(50);
/// How long a process may take to start, beside the time that its source takes.
const START: Duration = Duration::from_secs(10);
/// How long a process may take to sign off from a camera or server.
const GOODBYE: Duration = Duration::from_millis(300);
/// The variables of the environment that a process gets, by their beginnings: nothing secret.
const ENVIRONMENT: [&str; 8] =
    ["GST_", "XDG_", "LD_", "LC_", "LANG", "HOME", "SELVEDGE_LOG", "RUST_BACKTRACE"];

/// A source that a process is to open.
#[derive(Clone, Debug)]
pub struct SourceRequest<'a> {
    /// Its address.
    pub uri: &'a SourceUri,
    /// The folder in which relative paths are resolved.
    pub base: &'a Path,
    /// The largest RTP payload of its packets.
    pub payload_max: usize,
    /// Whether small pictures of it are wanted.
    pub thumbnails: bool,
    /// Whether access units are wanted beside packets.
    pub units: bool,
    /// A camera or server whose pictures come at this period is not given up between two of them.
    pub expected: Duration,
}

/// A process for one source. Dropped, it is ended and waited for.
#[derive(Debug)]
pub struct SourceProcess {
    what: String,
    child: Child,
    inbox: Inbox,
    started: Instant,
    /// The orders about pages that it was sent last.
    watched: Watched,
    /// The encoder of its source, what that is to do, and what of it was sent.
    encoder: Option<Encoder>,
    orders: Arc<EncoderOrders>,
    ordered: (u64, u64),
    is_dead: bool,
}

impl SourceProcess {
    /// Starts a process of this program for a source. The source itself, with its login, goes through the
    /// socket, so that the list of processes does not show it.
    ///
    /// # Errors
    /// [`SourceError::Isolated`] if the process can't be started.
    pub fn start(program: &Path, request: &SourceRequest<'_>) -> Result<Self, SourceError> {
        let what = request.uri.to_string();
        let no_process = |error: std::io::Error| SourceError::Isolated {
            trouble: Trouble::Died,
            message: format!("no process for \"{what}\": {error}"),
        };
        let (ours, theirs) = UnixStream::pair().map_err(no_process)?;
        ours.set_read_timeout(Some(LOOK.into())).map_err(no_process)?;
        // A process that reads nothing is dead.
        ours.set_write_timeout(Some(START.into())).map_err(no_process)?;
        let child = spawn(program, theirs.into()).map_err(no_process)?;
        let process = Self {
            what: what.clone(),
            child,
            inbox: Inbox::new(ours),
            started: Instant::now(),
            watched: Watched::default(),
            encoder: None,
            orders: Arc::default(),
            ordered: (0, 0),
            is_dead: false,
        };
        let request = Request {
            uri: request.uri.reveal(),
            from: request.uri.sender(),
            bitrate: match request.uri {
                SourceUri::Launch { bitrate, .. } => bitrate.as_ref().map(Knob::from),
                _ => None,
            },
            base: PathBuf::from(request.base),
            payload_max: request.payload_max,
            thumbnails: request.thumbnails,
            units: request.units,
            expected_ns: request.expected.0,
        };
        process.ask(&request).map_err(no_process)?;
        Ok(process)
    }

    /// Whether it can be requested to open its source again.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        !self.is_dead
    }

    /// How long it has been running.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.started.elapsed().into()
    }

    /// Opens the source and waits for its first frame, at most for `limit`, and no longer once `stop`
    /// is set.
    ///
    /// # Errors
    /// [`SourceError`] as the process reports it, or that it died.
    pub fn open(&mut self, limit: Duration, stop: &AtomicBool) -> Result<StreamInfo, SourceError> {
        if let Err(error) = self.ask(&Order::Open { limit_ns: limit.0 }) {
            return Err(self.died(&error.to_string()));
        }
        let until = Instant::now() + (limit + START).to_std();
        while !stop.load(Ordering::Relaxed) && Instant::now() < until {
            match self.inbox.receive() {
                Ok(None) => {}
                Ok(Some((Report::Open { info, encoder }, _))) => {
                    let info = info.checked();
                    self.note_encoder(encoder);
                    return info.ok_or_else(|| self.died("it sent what is no stream"));
                }
                Ok(Some((Report::Failed { trouble, text }, _))) => {
                    return Err(message::failed(trouble, &text));
                }
                // Messages left over from the last attempt.
                Ok(Some((
                    Report::Thumbnail | Report::Image { .. } | Report::Refused { .. },
                    _,
                ))) => {}
                Ok(Some(_)) => return Err(self.died("it sent frames of no source")),
                Err(error) => return Err(self.died(&error.to_string())),
            }
        }
        self.is_dead = true;
        Err(SourceError::Stalled { what: self.what.clone(), waited: limit })
    }

    /// The encoder of its source, if the source is encoded there and the rate may change.
    #[must_use]
    pub fn encoder(&self) -> Option<Encoder> {
        self.encoder.clone()
    }

    /// The source was opened, with an encoder of this range.
    fn note_encoder(&mut self, range: Option<(u64, u64)>) {
        self.orders = Arc::default();
        self.ordered = (0, 0);
        let possible = |&(least, most): &(u64, u64)| 0 < least && least <= most;
        self.encoder = range.filter(possible).map(|(least, most)| {
            let orders = Arc::clone(&self.orders);
            Encoder::remote(Bitrate(least), Bitrate(most), orders)
        });
    }

    /// Sends what the encoder is to do, if that is new.
    fn lead_encoder(&mut self) -> std::io::Result<()> {
        let (rate, intras) = (self.orders.rate().0, self.orders.intras());
        let (rate_before, intras_before) = std::mem::replace(&mut self.ordered, (rate, intras));
        if rate != rate_before {
            self.ask(&Order::Rate { bps: rate })?;
        }
        if intras != intras_before { self.ask(&Order::Intra) } else { Ok(()) }
    }

    /// Delivers frames until the source ends or `stop` is set, which is checked every 50 ms.
    ///
    /// # Errors
    /// [`SourceError`] as the process reports it, or that it died; the node may start another.
    pub fn run(
        &mut self,
        sink: &mut dyn FrameSink,
        onlookers: &dyn Onlookers,
        stop: &AtomicBool,
    ) -> Result<End, SourceError> {
        let mut decoded = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            let watched = onlookers.watched();
            if self.watched != watched {
                self.watched = watched;
                self.ask(&Order::Watch(watched)).map_err(|error| self.died(&error.to_string()))?;
            }
            self.lead_encoder().map_err(|error| self.died(&error.to_string()))?;
            match self.inbox.receive() {
                Ok(None) => {}
                Ok(Some((Report::Frame(head), bytes))) => {
                    match head.take(bytes, decoded, |frame| sink.enqueue(frame)) {
                        Some(at) => decoded = at,
                        None => return Err(self.died("it sent what is no frame")),
                    }
                }
                Ok(Some((Report::Thumbnail, jpeg))) => onlookers.small(jpeg),
                Ok(Some((Report::Refused { packets }, _))) => onlookers.refused(packets),
                Ok(Some((Report::Image { media_ns }, jpeg))) => {
                    onlookers.image(Duration(media_ns), jpeg);
                }
                Ok(Some((Report::Ended { note }, _))) => {
                    return Ok(End::Eos { note: note.as_deref().map(message::shown) });
                }
                Ok(Some((Report::Failed { trouble, text }, _))) => {
                    return Err(message::failed(trouble, &text));
                }
                Ok(Some((Report::Open { .. }, _))) => {
                    return Err(self.died("it opened a source twice"));
                }
                Err(error) => return Err(self.died(&error.to_string())),
            }
        }
        self.is_dead = true;
        Ok(End::Stopped)
    }

    fn ask(&self, line: &impl serde::Serialize) -> std::io::Result<()> {
        let text = serde_json::to_string(line)? + "\n";
        self.inbox.socket().write_all(text.as_bytes())
    }

    /// Ends it, and returns an error with its exit status.
    fn died(&mut self, why: &str) -> SourceError {
        self.is_dead = true;
        // It may have ended by itself.
        let _ = self.child.kill();
        let how = self.child.wait().map_or_else(|error| error.to_string(), |how| how.to_string());
        let message = format!("the process of \"{}\" died: {why} ({how})", self.what);
        SourceError::Isolated { trouble: Trouble::Died, message }
    }
}

impl Drop for SourceProcess {
    fn drop(&mut self) {
        let mut socket = self.inbox.socket();
        let until = Instant::now() + GOODBYE.to_std();
        // The process sees the end of its input, releases its camera and exits, which closes the socket
        // here. Messages until then are discarded.
        if socket.shutdown(Shutdown::Write).is_ok() {
            let mut rest = vec![0; 64 << 10];
            while Instant::now() < until && !matches!(socket.read(&mut rest), Ok(0)) {}
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process to start: the program, its standard input, and the channel for the child.
type Start = (PathBuf, OwnedFd, Sender<std::io::Result<Child>>);

/// Starts a process on a thread that lives as long as this program: the kernel ends a source's process
/// when the thread that started it ends, so that none outlives its node.
fn spawn(program: &Path, input: OwnedFd) -> std::io::Result<Child> {
    static STARTER: Mutex<Option<Sender<Start>>> = Mutex::new(None);
    let gone = || std::io::Error::other("the thread that starts processes is gone");
    let (done, child) = channel();
    let mut starter = STARTER.lock();
    if starter.is_none() {
        let (starts, asked) = channel::<Start>();
        thread::Builder::new().name("source starter".into()).spawn(move || {
            for (program, input, done) in asked {
                let _ = done.send(command(&program, input).spawn());
            }
        })?;
        *starter = Some(starts);
    }
    let sent = starter.as_ref().and_then(|starts| starts.send((program.into(), input, done)).ok());
    drop(starter);
    sent.ok_or_else(gone)?;
    child.recv().map_err(|_| gone())?
}

/// The command that starts a source's process.
fn command(program: &Path, input: OwnedFd) -> Command {
    let mut command = Command::new(program);
    command.arg0("selvedge").arg("source-process").stdin(Stdio::from(input)).stdout(Stdio::null());
    let is_passed = |name: &std::ffi::OsStr| {
        ENVIRONMENT
            .iter()
            .any(|beginning| name.as_encoded_bytes().starts_with(beginning.as_bytes()))
    };
    command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_passed(name)));
    // Its node has just examined the plug-ins; and code generated at run time is not allowed.
    command.env("GST_REGISTRY_UPDATE", "no").env("ORC_CODE", "backup");
    // One heap for its dozen threads, which allocate little: each heap keeps its freed memory. Pictures
    // lie outside of it, so that their memory is returned.
    command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_MMAP_THRESHOLD_", "65536");
    command
}
