//! Recordings in Matroska or MP4, and RTMP: access units from the transport stream's packets, through
//! GStreamer's parsers into another container, in a thread of the output's own.
//!
//! Samples are written in the order in which they leave the link, so neither of two streams waits for
//! the other; only the head of a file waits for both, up to [`HEAD`]. A recording is written in pieces
//! of half a second at most: if a node is killed at any moment, all but the last second can be read. No
//! existing file is ever overwritten. The stream key of RTMP goes to the element as a property, and is
//! removed from its messages.

mod flv;
mod matroska;
mod mp4;
mod track;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use parking_lot::Mutex;
use selvedge_control_config::{Destination, redacted};
use selvedge_os::connections::connections_to;
use selvedge_units::{Bytes, Duration};

use self::track::{Encoding, Parser, Sample, Track};
use super::pipeline::{self, State, WAITING};
use super::transport_stream::RTP_LEN;
use super::units::{Unit, Units};
use super::{IPV6_MORE, Opened, Output, OutputError, TCP};
use crate::source::elements::{init, make, wiring};

/// The largest payload of a TCP segment.
const SEGMENT: u64 = 1448;
/// How long the end of a connection may take.
const END: Duration = Duration::from_secs(2);
/// How long samples wait for the others of their piece, and for the other stream in front of a file.
const PIECE: Duration = Duration::from_millis(500);
const HEAD: Duration = Duration::from_secs(1);
/// All times begin here, so that those of the other stream may lie before the first.
const BEGIN: Duration = Duration::from_secs(1);

/// An output that ends in a file or a connection.
#[derive(Debug)]
struct Muxed {
    /// Assembles units, and the channel to the thread; `None` once it is closed.
    entry: Mutex<(Units, Option<Sender<Unit>>)>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    connection: Option<Connection>,
}

/// The state that the muxing thread shares with the others.
#[derive(Debug, Default)]
struct Shared {
    /// Bytes of units that wait for it.
    waiting: AtomicU64,
    failed: Mutex<Option<OutputError>>,
}

/// A connection to a server of RTMP.
#[derive(Debug)]
struct Connection {
    pipeline: gst::Pipeline,
    input: gst_app::AppSrc,
    element: gst::Element,
    bus: gst::Bus,
    secret: String,
    /// Bytes of headers on each segment.
    headers: u64,
    sent: Mutex<State>,
    /// Whether the server has answered.
    answered: AtomicBool,
    /// The possible addresses of the server.
    peers: Vec<SocketAddr>,
    /// Sockets that were connected there before.
    others: Vec<u32>,
    /// The number of its socket, 0 until that is known.
    socket: AtomicU32,
}

/// Sockets whose sent bytes are already counted by an output.
static COUNTED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A file that does not exist yet; its ending selects the container.
pub(super) fn recording(to: &Destination, _: SocketAddr, streams: usize) -> Opened {
    init()?;
    let path = free(Path::new(to.path().unwrap_or_default()));
    let is_mp4 = path.extension().is_some_and(|ending| ending == "mp4");
    let file = File::create_new(&path).map_err(|why| written(&path, &why))?;
    let recording = Recording { path, file, is_mp4, fragments: 0, begun: None };
    open(Sink::File(recording), streams, None)
}

/// A server of RTMP, with or without TLS.
pub(super) fn rtmp(to: &Destination, at: SocketAddr, streams: usize) -> Opened {
    init()?;
    let caps = gst::Caps::new_empty_simple("video/x-flv");
    let input = gst_app::AppSrc::builder().caps(&caps).build();
    let element = make("rtmp2sink")?;
    element.set_property("location", to.reveal());
    element.set_property("sync", false);
    element.set_property("async", false);
    let pipeline = gst::Pipeline::new();
    let parts: [&gst::Element; 2] = [input.upcast_ref(), &element];
    pipeline.add_many(parts).map_err(|e| wiring("rtmp2sink", e))?;
    gst::Element::link_many(parts).map_err(|e| wiring("rtmp2sink", e))?;
    let bus = pipeline.bus().ok_or_else(|| wiring("pipeline", "it has no bus"))?;
    let port = match (at.port(), to.scheme()) {
        (0, "rtmps") => 443,
        (0, _) => 1935,
        (port, _) => port,
    };
    let peers: Vec<SocketAddr> = (to.host(), port).to_socket_addrs()?.collect();
    let connection = Connection {
        pipeline,
        input: input.clone(),
        element,
        bus,
        secret: to.secret().to_owned(),
        headers: super::kind(to).map_or(0, |kind| kind.headers.0),
        sent: Mutex::default(),
        answered: AtomicBool::new(false),
        others: peers
            .iter()
            .flat_map(|peer| connections_to(*peer))
            .flatten()
            .map(|c| c.socket)
            .collect(),
        peers,
        socket: AtomicU32::new(0),
    };
    let playing = connection.pipeline.set_state(gst::State::Playing);
    connection.broken()?;
    playing.map_err(|e| wiring("rtmp2sink", e))?;
    open(Sink::Server(input, [None, None]), streams, Some(connection))
}

fn open(sink: Sink, streams: usize, connection: Option<Connection>) -> Opened {
    let (sender, units) = mpsc::channel();
    let shared = Arc::new(Shared::default());
    let parsers = [None, None];
    let muxer = Muxer { parsers, streams, sink, zero: None, waiting: Vec::new(), since: None };
    let thread = thread::Builder::new().name("muxer".into()).spawn({
        let shared = Arc::clone(&shared);
        move || muxer.run(&units, &shared)
    })?;
    let entry = Mutex::new((Units::default(), Some(sender)));
    Ok(Box::new(Muxed { entry, shared, thread: Some(thread), connection }))
}

/// The first of `NAME.mkv`, `NAME-2.mkv`, ... that does not exist.
fn free(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ending = path.extension().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = (2..).map(|n| path.with_file_name(format!("{stem}-{n}.{ending}")));
    std::iter::once(path.to_owned())
        .chain(numbered)
        .find(|path| !path.exists())
        .unwrap_or_else(|| path.to_owned())
}

fn written(path: &Path, why: &io::Error) -> OutputError {
    wiring("the recording", format!("can't write \"{}\": {why}", path.display())).into()
}

impl Output for Muxed {
    fn send(&self, packet: &[u8]) -> bool {
        if let Some(connection) = &self.connection {
            if !connection.answered.load(Ordering::Relaxed) {
                return false;
            }
            connection.sent.lock().pay(packet.len() as u64 + connection.headers - RTP_LEN as u64);
        }
        if self.shared.waiting.load(Ordering::Relaxed) > WAITING {
            return false;
        }
        let (units, sender) = &mut *self.entry.lock();
        let Some(unit) = units.take(packet) else { return true };
        self.shared.waiting.fetch_add(unit.bytes.len() as u64, Ordering::Relaxed);
        sender.as_ref().is_some_and(|sender| sender.send(unit).is_ok())
    }

    fn poll(&self) -> Result<Bytes, OutputError> {
        let failed = self.shared.failed.lock().take();
        failed.map_or(Ok(()), Err)?;
        self.connection.as_ref().map_or(Ok(Bytes(0)), Connection::poll)
    }

    fn waits(&self) -> Option<&'static str> {
        let connection = self.connection.as_ref()?;
        let silent = !connection.answered.load(Ordering::Relaxed);
        silent.then_some("the server has not answered yet")
    }
}

impl Drop for Muxed {
    fn drop(&mut self) {
        // The thread ends when nothing more can arrive.
        self.entry.lock().1 = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

impl Connection {
    /// The error, if it is broken.
    fn broken(&self) -> Result<(), OutputError> {
        let Some((element, text)) = pipeline::error(&self.bus) else { return Ok(()) };
        Err(wiring(&element, redacted(&text).replace(&self.secret, "***")).into())
    }

    fn poll(&self) -> Result<Bytes, OutputError> {
        self.broken()?;
        // Handshake and answers included; zero until the server answers.
        let stats = self.element.property::<Option<gst::Structure>>("stats");
        let sent = stats.and_then(|stats| stats.get::<u64>("out-bytes-total").ok()).unwrap_or(0);
        self.answered.store(sent > 0, Ordering::Relaxed);
        let about = sent + sent.div_ceil(SEGMENT) * self.headers;
        let wire = self.counted().filter(|_| sent > 0).unwrap_or(about);
        Ok(self.sent.lock().extra(wire))
    }

    /// The bytes on the wire by the kernel's count: all segments with their headers, including
    /// retransmissions. `None` where it does not show which connection this is.
    fn counted(&self) -> Option<u64> {
        let mut counted = COUNTED.lock();
        let known = self.socket.load(Ordering::Relaxed);
        let all = self.peers.iter().filter_map(|peer| Some((peer, connections_to(*peer).ok()?)));
        let mut all = all.flat_map(|(peer, found)| found.into_iter().map(move |one| (peer, one)));
        let is_ours = |socket| match known {
            0 => !counted.contains(&socket) && !self.others.contains(&socket),
            known => socket == known,
        };
        let (peer, found) = all.find(|(_, found)| is_ours(found.socket))?;
        if known == 0 {
            self.socket.store(found.socket, Ordering::Relaxed);
            counted.insert(found.socket);
        }
        let more = if peer.is_ipv6() { IPV6_MORE } else { Bytes(0) };
        Some(found.bytes + found.segments * (TCP + more).0)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Fails only if the element has stopped.
        if self.input.end_of_stream().is_ok() {
            let ends = [gst::MessageType::Eos, gst::MessageType::Error];
            let limit = gst::ClockTime::from_nseconds(END.0);
            self.bus.timed_pop_filtered(limit, &ends);
        }
        let _ = self.pipeline.set_state(gst::State::Null);
        COUNTED.lock().remove(self.socket.get_mut());
    }
}

/// The muxing thread's state: units in, pieces of a container out.
struct Muxer {
    parsers: [Option<Parser>; 2],
    /// How many streams the output has.
    streams: usize,
    sink: Sink,
    /// The offset that is subtracted from all times.
    zero: Option<Duration>,
    waiting: Vec<Sample>,
    /// When the first waiting sample arrived.
    since: Option<Instant>,
}

/// The destination of pieces.
enum Sink {
    File(Recording),
    /// A server, and the tracks that were announced to it.
    Server(gst_app::AppSrc, [Option<Track>; 2]),
}

/// A file that grows.
struct Recording {
    path: PathBuf,
    file: File,
    is_mp4: bool,
    fragments: u32,
    /// The tracks, once its head is written.
    begun: Option<[Option<Track>; 2]>,
}

impl Muxer {
    fn run(mut self, units: &Receiver<Unit>, shared: &Shared) {
        let mut ended = false;
        while !ended {
            let left =
                self.since.map_or(PIECE, |since| self.limit() - Duration::from(since.elapsed()));
            // Everything received counts, however late this thread wakes up.
            let (mut done, mut left) = (Ok(()), left);
            while done.is_ok() {
                match units.recv_timeout(left.to_std()) {
                    Ok(unit) => {
                        shared.waiting.fetch_sub(unit.bytes.len() as u64, Ordering::Relaxed);
                        done = self.take(unit);
                    }
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        ended = true;
                        let rest = self.parsers.iter().flatten().flat_map(Parser::end).collect();
                        self.keep(rest);
                        break;
                    }
                }
                left = Duration::ZERO;
            }
            if let Err(error) = done.and_then(|()| self.write(ended)) {
                *shared.failed.lock() = Some(error);
                return;
            }
        }
    }

    fn take(&mut self, unit: Unit) -> Result<(), OutputError> {
        let parser = match &mut self.parsers[unit.track] {
            Some(parser) => parser,
            none => none.insert(Parser::new(&unit)?),
        };
        let samples = parser.push(unit);
        self.keep(samples);
        Ok(())
    }

    /// Keeps samples for their piece, with the container's times.
    fn keep(&mut self, samples: Vec<Sample>) {
        for mut sample in samples {
            let zero = *self.zero.get_or_insert(sample.decode - BEGIN);
            // A sample before the beginning has no place.
            if sample.decode < zero {
                continue;
            }
            sample.decode = sample.decode - zero;
            sample.present = (sample.present - zero).max(sample.decode);
            self.waiting.push(sample);
            self.since.get_or_insert_with(Instant::now);
        }
    }

    fn tracks(&self) -> [Option<Track>; 2] {
        [0, 1].map(|n| self.parsers[n].as_ref().and_then(Parser::track))
    }

    /// How long samples may wait.
    fn limit(&self) -> Duration {
        match &self.sink {
            Sink::Server(..) => Duration::ZERO,
            Sink::File(Recording { begun: Some(_), .. }) => PIECE,
            Sink::File(_) if self.tracks().iter().flatten().count() >= self.streams => PIECE,
            Sink::File(_) => HEAD,
        }
    }

    /// Writes samples that have waited long enough, or all.
    fn write(&mut self, all: bool) -> Result<(), OutputError> {
        let is_due =
            self.since.is_some_and(|since| Duration::from(since.elapsed()) >= self.limit());
        if self.waiting.is_empty() || !(all || is_due) {
            return Ok(());
        }
        self.since = None;
        let (tracks, samples) = (self.tracks(), std::mem::take(&mut self.waiting));
        match &mut self.sink {
            Sink::File(recording) => recording.write(tracks, &samples),
            Sink::Server(input, announced) => {
                for sample in &samples {
                    let track = &tracks[sample.track];
                    let head = track.as_ref().filter(|_| *track != announced[sample.track]);
                    let head = head.map(|track| flv::head(track, sample.decode));
                    announced[sample.track].clone_from(track);
                    for tag in head.into_iter().chain([flv::sample(sample)]) {
                        let pushed = input.push_buffer(gst::Buffer::from_slice(tag));
                        pushed.map_err(|e| wiring("rtmp2sink", e))?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl Recording {
    fn write(&mut self, tracks: [Option<Track>; 2], samples: &[Sample]) -> Result<(), OutputError> {
        let mut piece = Vec::new();
        match &self.begun {
            Some(begun) if *begun != tracks => {
                let why = "another stream has come, or one has changed: it goes on in a new file";
                return Err(wiring("the recording", why).into());
            }
            Some(_) => {}
            None if self.is_mp4 => {
                let mpeg =
                    |track: &Track| matches!(track.encoding, Encoding::Mpeg1 | Encoding::Mpeg2);
                if tracks.iter().flatten().any(mpeg) {
                    let why = "MP4 does not carry MPV; write to = \"file:NAME.mkv\"";
                    return Err(wiring("the recording", why).into());
                }
                piece = mp4::head(&tracks);
            }
            None => piece = matroska::head(&tracks),
        }
        self.begun = Some(tracks);
        if self.is_mp4 {
            self.fragments += 1;
            piece.extend(mp4::fragment(self.fragments, samples));
        } else {
            piece.extend(matroska::cluster(samples));
        }
        self.file.write_all(&piece).map_err(|why| written(&self.path, &why))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Each attempt would leave one more empty file.
        if self.begun.is_none() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
