//! Outputs of streams that the engine's own sockets don't send: each is opened in a thread, and again
//! whenever it breaks off. A picture and a sound that go to the same destination share an output.
//!
//! The link's engine passes a packet on when it may leave, and is charged for the bytes that the output
//! reports beyond that. While an output is not open its stream's frames are dropped as `send-failed`;
//! other streams continue.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use selvedge_control_config::{Destination, LinkConfig, StreamConfig};
use selvedge_media::StreamInfo;
use selvedge_media::output::{Output, OutputError, OutputKind, Program, kind};
use selvedge_os::keeper::{Keeper, Stop};
use selvedge_place_engine::engine::{Carrier, StreamCarrier};
#[cfg(feature = "gstreamer")]
use selvedge_place_engine::{engine::payload_max, frame_producer::FrameProducer};
use selvedge_units::{Bytes, Duration};

#[cfg(feature = "gstreamer")]
use crate::feed::packed::PackedReceiver;

/// The first wait before an output is opened again, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
/// How often an output is polled.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// The problem before the first attempt.
const NOT_YET: &str = "not open yet";

/// A stream's output. Once all that share it are dropped, it is closed.
#[derive(Clone)]
pub(crate) struct StreamOutput {
    line: Arc<Line>,
    _keeper: Arc<Keeper>,
    carrier: StreamCarrier,
}

/// A stream whose source says what it delivers.
pub(crate) trait Described: fmt::Debug + Send + Sync {
    /// The description of its medium, once that is known.
    fn described(&self) -> Option<StreamInfo>;
    /// Somebody joined who needs a picture that needs no other.
    fn want_intra(&self);
}

/// The state that the engine's thread and the output's share.
#[derive(Debug)]
struct Line {
    stream: String,
    to: Destination,
    kind: &'static OutputKind,
    /// How many streams share it, and their common program.
    streams: usize,
    #[cfg_attr(not(feature = "gstreamer"), allow(dead_code, reason = "recordings are RTP"))]
    program: Arc<Program>,
    open: Mutex<Option<Arc<dyn Output>>>,
    /// Why no packets are carried.
    problem: Mutex<Option<String>>,
    /// Bytes that the link has yet to be charged for.
    extra: AtomicU64,
    /// Where the descriptions of its streams are, as soon as they are known.
    described: Mutex<Vec<Weak<dyn Described>>>,
}

impl StreamOutput {
    /// Begins to open the output that a stream's destination needs, for those `others` as well; `None`
    /// if the engine sends it.
    pub(crate) fn start(
        stream: &StreamConfig,
        others: &[&StreamConfig],
        link: &LinkConfig,
        base: &Path,
    ) -> io::Result<Option<Self>> {
        let Some(to) = stream.output.clone() else { return Ok(None) };
        let to = to.in_folder(&std::path::absolute(base.join("."))?);
        let kind = kind(&to).map_err(io::Error::other)?;
        let (overhead, packet_max) = kind.fit(&to, link.mtu);
        // One delay for both streams, however long each may wait.
        let delays = others.iter().chain([&stream]).filter_map(|s| s.spec.contract.delay);
        let line = Arc::new(Line {
            stream: stream.spec.name.clone(),
            to,
            kind,
            streams: 1 + others.len(),
            program: Arc::new(Program::new(delays.max().unwrap_or_default())),
            open: Mutex::default(),
            problem: Mutex::new(Some(NOT_YET.to_owned())),
            extra: AtomicU64::new(0),
            described: Mutex::default(),
        });
        let kept = Arc::clone(&line);
        let name = format!("output {}", line.stream);
        let keeper = Arc::new(Keeper::start(name, move |stop| kept.maintain(stop))?);
        let by = Arc::clone(&line) as Arc<dyn Carrier>;
        let carrier = StreamCarrier { by, overhead, packet_max };
        Ok(Some(Self { line, _keeper: keeper, carrier }))
    }

    /// Passes on the description of this stream, too, once that is known.
    pub(crate) fn follow(&self, stream: &Arc<impl Described + 'static>) {
        let stream: Weak<_> = Arc::downgrade(stream);
        self.line.described.lock().push(stream);
    }

    /// The carrier to which the engine passes packets.
    pub(crate) fn carrier(&self) -> StreamCarrier {
        self.carrier.clone()
    }

    /// Why its packets are not carried, if they are not.
    pub(crate) fn problem(&self) -> Option<String> {
        self.line.problem.lock().clone()
    }

    /// For a stream to which it sends packets of its own: what makes them, and their largest payload.
    #[cfg(feature = "gstreamer")]
    pub(crate) fn packed(&self, frame_producer: FrameProducer) -> PackedReceiver {
        let Line { kind, program, .. } = &*self.line;
        let most = payload_max(self.carrier.packet_max, Bytes(0));
        PackedReceiver::new(frame_producer, (kind, Arc::clone(program)), most)
    }
}

impl Carrier for Line {
    fn carry(&self, packet: &[u8]) -> bool {
        let open = self.open.lock().clone();
        open.is_some_and(|open| open.send(packet))
    }

    fn take_extra(&self) -> Bytes {
        Bytes(self.extra.swap(0, Ordering::Relaxed))
    }
}

impl Line {
    /// Opens the output, and opens it again, until requested to stop.
    fn maintain(self: &Arc<Self>, stop: &Stop) {
        let mut wait = RETRY.0;
        while !stop.is_requested() {
            let opened = match self.check(&self.infos()) {
                Ok(()) => self.open(stop),
                Err(error) => Some(Err(error)),
            };
            let ended = match opened {
                Some(Ok(open)) => self.watch(open.into(), &mut wait, stop),
                Some(Err(error)) => Err(error),
                None => return,
            };
            let Err(error) = ended else { return };
            let why = error.to_string();
            if self.problem.lock().replace(why.clone()).as_ref() != Some(&why) {
                tracing::warn!(stream = self.stream, to = %self.to, why, "output not open");
            }
            stop.pause(wait);
            wait = (wait * 2).min(RETRY.1);
        }
    }

    /// The output, or the error; `None` when requested to stop. A name look-up may take longer than a
    /// stopping node should wait, so a separate thread does it, which is then abandoned.
    fn open(self: &Arc<Self>, stop: &Stop) -> Option<Result<Box<dyn Output>, OutputError>> {
        let (sender, opened) = mpsc::channel();
        let line = Arc::clone(self);
        let opener = thread::Builder::new().name(format!("open {}", self.stream));
        let opener = opener.spawn(move || sender.send(line.kind.open(&line.to, line.streams)));
        if let Err(error) = opener {
            tracing::error!(stream = self.stream, %error, "no thread for an output");
        }
        while !stop.is_requested() {
            match opened.recv_timeout(POLL_EVERY.into()) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Whether it carries these streams.
    fn check(&self, infos: &[StreamInfo]) -> Result<(), OutputError> {
        infos.iter().try_for_each(|info| self.kind.check(info.codec))
    }

    /// The streams that share it.
    fn described(&self) -> Vec<Arc<dyn Described>> {
        let mut streams = self.described.lock();
        streams.retain(|status| status.strong_count() > 0);
        streams.iter().filter_map(Weak::upgrade).collect()
    }

    /// Their descriptions, as far as they are known.
    fn infos(&self) -> Vec<StreamInfo> {
        self.described().iter().filter_map(|stream| stream.described()).collect()
    }

    /// Lends the output to the engine until it breaks off, or until requested to stop.
    fn watch(
        &self,
        open: Arc<dyn Output>,
        wait: &mut Duration,
        stop: &Stop,
    ) -> Result<(), OutputError> {
        *self.open.lock() = Some(Arc::clone(&open));
        let (mut ended, mut ready) = (Ok(()), false);
        let mut waited = true;
        while ended.is_ok() && !stop.is_requested() {
            let infos = self.infos();
            open.describe(&infos);
            let waits = open.waits();
            let mut problem = self.problem.lock();
            // The reason of the last failure is more useful than the fact that the output waits again.
            if waits.is_none() || problem.as_deref().is_none_or(|why| why == NOT_YET) {
                *problem = waits.map(str::to_owned);
            }
            drop(problem);
            let waits = waits.is_some();
            if open.take_joined() | (waited && !waits) {
                self.described().iter().for_each(|stream| stream.want_intra());
            }
            waited = waits;
            if !waits && !ready {
                tracing::info!(stream = self.stream, to = %self.to, "output open");
                (ready, *wait) = (true, RETRY.0);
            }
            stop.pause(POLL_EVERY);
            match self.check(&infos).and_then(|()| open.poll()) {
                Ok(extra) => drop(self.extra.fetch_add(extra.0, Ordering::Relaxed)),
                Err(error) => ended = Err(error),
            }
        }
        *self.open.lock() = None;
        // Closing may block, so it must not happen in the engine's thread, which may hold the last
        // reference for a moment.
        while Arc::strong_count(&open) > 1 {
            thread::yield_now();
        }
        ended
    }
}
