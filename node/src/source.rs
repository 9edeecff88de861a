//! The sources of a node, opened before anything is started: GStreamer, a recording, or the program
//! itself. Their descriptions become the streams' contracts.

use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "gstreamer")]
use std::sync::atomic::AtomicBool;
use std::thread::ScopedJoinHandle;

use selvedge_control_config::{FilePart, LinkConfig, NodeConfig, SourceUri, StreamConfig};
use selvedge_data_stream::{Contract, Late, Spec};
use selvedge_media::output::{OutputError, OutputKind, kind};
use selvedge_media::sdp::{Described, Session};
use selvedge_media::{Codec, SourceError, StreamInfo};
#[cfg(feature = "gstreamer")]
use selvedge_media::{Pair, Trouble};
use selvedge_os::clock::Clock;
use selvedge_os::socket::SocketError;
use selvedge_place_coprocessor::feeder::{self, Feeder, FeederError};
use selvedge_place_engine::engine::{StreamCarrier, StreamParams};
use selvedge_place_engine::slot::{ALL_STREAMLETS, SlotParams};
use selvedge_units::Duration;

#[cfg(feature = "gstreamer")]
use crate::media_source::MediaSource;
use crate::output::StreamOutput;
#[cfg(feature = "gstreamer")]
use crate::shared_source::{SharedError, SharedSource};
use crate::source_spec::SourceSpec;
use crate::streamlets::Listeners;

/// How long a node waits at its start for a source that may be absent; later it has longer.
#[cfg(feature = "gstreamer")]
const FIRST_LOOK: Duration = Duration::from_secs(3);
/// How long a file, or a source that waits for packets, may take to open.
#[cfg(feature = "gstreamer")]
pub(crate) const OPENING_LOCAL: Duration = Duration::from_secs(10);

/// A source that is open.
pub(crate) struct Opened {
    pub(crate) source: Medium,
    /// Its description; `None` for the program's own frames.
    pub(crate) info: Option<StreamInfo>,
    /// The output that carries its packets, if not the engine's sockets.
    pub(crate) output: Option<StreamOutput>,
}

/// The open source of a stream's frames.
pub(crate) enum Medium {
    /// GStreamer; `None` while its origin is absent.
    #[cfg(feature = "gstreamer")]
    Media(Option<Box<MediaSource>>),
    /// A recording.
    Recording(feeder::OpenRecording),
    /// The program that runs the node.
    Program,
    /// A bond, or the device of a tunnel.
    Bond,
    /// Another program, through shared memory.
    #[cfg(feature = "gstreamer")]
    OtherProgram(Box<SharedSource>),
    /// The sockets of its streamlets.
    Streamlets(Listeners),
    /// That of another stream, whose frames it shares.
    Shared,
}

/// Why a source can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file, a device or a launch line that delivers nothing.
    #[error(transparent)]
    Media(#[from] SourceError),
    /// A recording that can't be read.
    #[error(transparent)]
    Recording(#[from] FeederError),
    /// The source needs GStreamer.
    #[error(
        "\"{0}\" needs GStreamer, which this build lacks; build with the feature `gstreamer`, or \
         give a recording (record:)"
    )]
    NoGstreamer(String),
    /// The media of its source can't go to its destination.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A socket of its streamlets can't be opened.
    #[error(transparent)]
    Listen(#[from] SocketError),
    /// Its program can't hand over frames.
    #[cfg(feature = "gstreamer")]
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// A stream whose source are streamlets has none.
    #[error("the stream has no streamlets; give it a slot")]
    NoStreamlets,
    /// Its output's thread can't be started.
    #[error("can't start an output: {0}")]
    Thread(#[from] std::io::Error),
}

impl OpenError {
    /// The key of the stream whose value must be changed.
    pub(crate) const fn key(&self) -> &'static str {
        match self {
            Self::Output(_) => "to",
            Self::Listen(_) | Self::NoStreamlets => "streamlets",
            Self::Media(error) => error.key(),
            _ => "source",
        }
    }
}

/// A stream whose source can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("{stream}: {error}")]
pub struct SourceFailure {
    /// The stream's name.
    pub stream: String,
    /// The reason.
    pub error: OpenError,
}

/// A session description that can't be written.
#[derive(Debug, thiserror::Error)]
#[error("stream \"{stream}\": can't write \"{path}\": {why}")]
pub struct SdpFailure {
    /// The stream's name.
    pub stream: String,
    /// The file.
    pub path: String,
    /// The system's error.
    pub why: std::io::Error,
}

impl Opened {
    /// The source of a stream of this link, unless it is `shared` with another stream, whose medium is then given, and an output that it does
    /// not share.
    pub(crate) fn new(
        spec: &SourceSpec,
        link: &LinkConfig,
        shared: Option<Option<StreamInfo>>,
    ) -> Result<Self, OpenError> {
        let output = StreamOutput::start(&spec.stream, &[], link, &spec.base)?;
        let opened = match shared {
            Some(info) => Self::shared(&spec.stream, info)?,
            None => Self::without_output(spec)?,
        };
        Ok(Self { output, ..opened })
    }

    /// The source of another stream, of this medium.
    fn shared(stream: &StreamConfig, info: Option<StreamInfo>) -> Result<Self, OpenError> {
        if let (Some(to), Some(info)) = (&stream.output, &info) {
            kind(to)?.check(info.codec)?;
        }
        Ok(Self { source: Medium::Shared, info, output: None })
    }

    fn without_output(spec: &SourceSpec) -> Result<Self, OpenError> {
        let SourceSpec { stream, base, .. } = spec;
        let (source, info) = match &stream.source {
            SourceUri::Program => (Medium::Program, None),
            SourceUri::Bond { .. } | SourceUri::Tunnel(_) => (Medium::Bond, None),
            SourceUri::Streamlets => {
                let slot = stream.slot.as_ref().ok_or(OpenError::NoStreamlets)?;
                (Medium::Streamlets(Listeners::open(slot)?), None)
            }
            #[cfg(feature = "gstreamer")]
            SourceUri::Shared { path, encoding, bitrate } => {
                let most = bitrate.unwrap_or_default();
                let source = SharedSource::open(spec, (path, encoding), most)?;
                let info = Some(source.info().clone());
                (Medium::OtherProgram(Box::new(source)), info)
            }
            SourceUri::Record { path, encoding, repeat } => {
                let recording = Feeder::open(&base.join(path), *repeat)?;
                let info = recorded(&recording, encoding);
                (Medium::Recording(recording), Some(info))
            }
            _ => Self::media(spec)?,
        };
        if let (Some(to), Some(info)) = (&stream.output, &info) {
            kind(to)?.check(info.codec)?;
        }
        Ok(Self { source, info, output: None })
    }

    /// The carrier of its packets.
    pub(crate) fn carrier(&self) -> Option<StreamCarrier> {
        self.output.as_ref().map(StreamOutput::carrier)
    }

    #[cfg(feature = "gstreamer")]
    fn media(spec: &SourceSpec) -> Result<(Medium, Option<StreamInfo>), OpenError> {
        let uri = &spec.stream.source;
        let limit = if may_be_absent(uri) { FIRST_LOOK } else { OPENING_LOCAL };
        match MediaSource::open(spec, &mut None, limit, &AtomicBool::new(false)) {
            Ok(source) => {
                let info = Some(source.info().clone());
                Ok((Medium::Media(Some(Box::new(source))), info))
            }
            Err(error) if is_absence(uri, &error) => {
                tracing::warn!(source = %uri, %error, "a source is not there yet");
                Ok((Medium::Media(None), None))
            }
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(not(feature = "gstreamer"))]
    fn media(spec: &SourceSpec) -> Result<(Medium, Option<StreamInfo>), OpenError> {
        Err(OpenError::NoGstreamer(spec.stream.source.to_string()))
    }
}

/// Whether a source may come and go while the node runs: a camera, or a network source.
#[cfg(feature = "gstreamer")]
pub(crate) const fn may_be_absent(uri: &SourceUri) -> bool {
    matches!(uri, SourceUri::Camera(_) | SourceUri::Network(_) | SourceUri::Launch { .. })
}

/// Whether a source is only absent, so that it is tried again: for a launch line, if it does not
/// answer; for other sources, unless this machine lacks something.
#[cfg(feature = "gstreamer")]
fn is_absence(uri: &SourceUri, error: &SourceError) -> bool {
    let trouble = error.trouble();
    match uri {
        SourceUri::Launch { .. } => trouble == Trouble::Silent,
        uri => may_be_absent(uri) && trouble != Trouble::Lacking,
    }
}

/// The medium of a recording, as derived from its packets and the node file.
fn recorded(recording: &feeder::OpenRecording, encoding: &str) -> StreamInfo {
    let named = |codec: &Codec| codec.encoding() == encoding;
    let codec = Codec::ALL.into_iter().find(named).unwrap_or(Codec::H264);
    StreamInfo {
        codec,
        payload_type: recording.payload_type,
        clock_rate: if codec == Codec::L16 { 44_100 } else { 90_000 },
        fmtp: None,
        channels: (codec == Codec::L16).then_some(2),
        period: recording.period,
        width: None,
        height: None,
    }
}

/// The parts of a stream that continues: its output, its description, and its pair.
pub(crate) struct Kept {
    pub(crate) output: Option<StreamOutput>,
    pub(crate) info: Option<StreamInfo>,
    #[cfg(feature = "gstreamer")]
    pub(crate) pair: Option<Pair>,
}

/// Opens the sources and outputs of some streams of a node, several at a time; reports all failures.
/// `kept` returns the parts of the other streams, by their index.
pub(crate) fn open(
    config: &NodeConfig,
    which: &[usize],
    spec_of: impl Fn(&StreamConfig, &LinkConfig) -> SourceSpec + Sync,
    kept: impl Fn(usize) -> Option<Kept>,
) -> Result<Vec<Opened>, Vec<SourceFailure>> {
    let streams = || which.iter().map(|&stream| &config.streams[stream]);
    let shared: Vec<Option<usize>> = which.iter().map(|&n| opener(config, which, n)).collect();
    let results: Vec<_> = std::thread::scope(|scope| {
        let open = |stream: &'_ StreamConfig| {
            let spec = spec_of(stream, &config.links[stream.link]);
            Opened::without_output(
                &spec
                    .fit_for(config.streams.iter().map(|other| (other, &config.links[other.link]))),
            )
        };
        let opening = streams()
            .zip(&shared)
            .map(|(stream, shared)| shared.is_none().then(|| scope.spawn(move || open(stream))));
        let handles: Vec<_> = opening.collect();
        let joined = |handle: ScopedJoinHandle<'_, _>| handle.join().expect("opening never panics");
        handles.into_iter().map(|handle| handle.map(joined)).collect()
    });
    let mut opened: Vec<Opened> = Vec::new();
    let mut failed = Vec::new();
    for ((stream, result), by) in streams().zip(results).zip(shared) {
        let shared = || {
            let place = by.and_then(|by| which.iter().position(|&n| n == by));
            let info = match place {
                Some(place) => opened.get(place).and_then(|opened| opened.info.clone()),
                None => by.and_then(&kept).and_then(|kept| kept.info),
            };
            Opened::shared(stream, info)
        };
        match result.unwrap_or_else(shared) {
            Ok(one) => opened.push(one),
            Err(error) => failed.push(SourceFailure { stream: stream.spec.name.clone(), error }),
        }
    }
    if failed.is_empty() {
        for (n, stream) in streams().enumerate() {
            let (before, now) = opened.split_at(n);
            let of = |other| match which.iter().position(|&w| w == other) {
                Some(at) => before.get(at).map(|one| Kept {
                    output: one.output.clone(),
                    info: one.info.clone(),
                    #[cfg(feature = "gstreamer")]
                    pair: None,
                }),
                None => kept(other),
            };
            let base = spec_of(stream, &config.links[stream.link]).base;
            match output(config, stream, &now[0], &base, of) {
                Ok(output) => opened[n].output = output,
                Err(error) => {
                    failed.push(SourceFailure { stream: stream.spec.name.clone(), error });
                }
            }
        }
    }
    if !failed.is_empty() {
        return Err(failed);
    }
    #[cfg(feature = "gstreamer")]
    join_pairs(config, which, &mut opened, |n| kept(n)?.pair);
    Ok(opened)
}

/// The stream whose source a stream shares: one that runs, or the first of those that are opened. `None` if it opens its
/// own.
fn opener(config: &NodeConfig, which: &[usize], stream: usize) -> Option<usize> {
    let all = || config.streams.iter().enumerate();
    let others = || all().filter(|(_, other)| config.streams[stream].shares_source(other));
    let runs = others().find(|(n, _)| !which.contains(n));
    let first = others().find(|(n, _)| *n < stream);
    runs.or(first).map(|(n, _)| n)
}

/// A stream's output: that of another stream if they share it.
fn output(
    config: &NodeConfig,
    stream: &StreamConfig,
    opened: &Opened,
    base: &Path,
    of: impl Fn(usize) -> Option<Kept>,
) -> Result<Option<StreamOutput>, OpenError> {
    let all = config.streams.iter().enumerate();
    let others: Vec<_> = all.filter(|(_, other)| stream.shares_output(other)).collect();
    let mut shared = None;
    for &(n, other) in &others {
        let Some(Kept { output, info, .. }) = of(n) else { continue };
        if let Some((info, others)) = opened.info.as_ref().zip(info) {
            OutputKind::join(info.codec, (&other.spec.name, others.codec))?;
        }
        shared = shared.or(output);
    }
    if shared.is_some() {
        return Ok(shared);
    }
    let others: Vec<_> = others.into_iter().map(|(_, other)| other).collect();
    Ok(StreamOutput::start(stream, &others, &config.links[stream.link], base)?)
}

/// Synchronises the sound of each file with its picture, where both are streams. Streams that begin now
/// share a new pair; one that comes later joins the pair of the other, which is found by its index.
#[cfg(feature = "gstreamer")]
fn join_pairs(
    config: &NodeConfig,
    which: &[usize],
    opened: &mut [Opened],
    pair_of: impl Fn(usize) -> Option<Pair>,
) {
    for (sound, stream) in config.streams.iter().enumerate() {
        let Some(picture) = picture_of(config, stream) else { continue };
        let both = [picture, sound];
        let places = both.map(|stream| which.iter().position(|&w| w == stream));
        let fresh = || places.iter().all(Option::is_some).then(Pair::default);
        let Some(pair) = both.into_iter().find_map(&pair_of).or_else(fresh) else { continue };
        for at in places.into_iter().flatten() {
            if let Medium::Media(Some(source)) = &mut opened[at].source {
                source.join(&pair);
            }
        }
    }
}

/// The index of the stream that sends the picture of the file whose sound this one sends.
#[must_use]
pub fn picture_of(config: &NodeConfig, sound: &StreamConfig) -> Option<usize> {
    let SourceUri::File { path, repeat, part: FilePart::Sound | FilePart::L16 } = &sound.source
    else {
        return None;
    };
    let is_picture = |stream: &StreamConfig| match &stream.source {
        SourceUri::File { path: of, repeat: repeats, part } => {
            (of, repeats) == (path, repeat)
                && matches!(part, FilePart::First | FilePart::Encoded(_))
        }
        _ => false,
    };
    config.streams.iter().position(is_picture)
}

/// A stream with the parameters that its link needs, once its medium is known.
pub(crate) fn params(
    stream: &StreamConfig,
    info: Option<&StreamInfo>,
    clock: Clock,
) -> StreamParams {
    let contract = contract_of(stream, info);
    let spec = Spec { contract, ..stream.spec.clone() };
    let ssrc = match stream.slot {
        Some(_) => ALL_STREAMLETS,
        None => ssrc(&spec.name, clock),
    };
    StreamParams { ssrc, spec }
}

/// The slot of a stream that has streamlets.
pub(crate) fn slot(stream: &StreamConfig, clock: Clock) -> Option<SlotParams> {
    let Spec { name, contract, pool, .. } = &stream.spec;
    Some(SlotParams {
        config: Arc::clone(stream.slot.as_ref()?),
        delay: contract.delay.filter(|_| contract.late == Late::Drop),
        pool: *pool,
        ssrc: ssrc(name, clock),
    })
}

/// The contract of a stream, once its medium is known.
pub(crate) fn contract_of(stream: &StreamConfig, info: Option<&StreamInfo>) -> Contract {
    let Spec { contract, period_from_media, .. } = &stream.spec;
    let media = info.filter(|_| *period_from_media).map(|info| info.period);
    let period = media.unwrap_or(contract.period);
    let Some(slot) = &stream.slot else { return Contract { period, ..*contract } };
    // Each frame of a source goes to each streamlet. The slot gives up what waits for too long; its period only says
    // when it has its turns.
    let turns = if *period_from_media { u64::from(slot.count()) } else { 1 };
    let period = Duration((period.0 / turns).max(1));
    Contract { period, delay: None, late: Late::Send, ..*contract }
}

/// An RTP source identifier: derived from the name, so that streams differ, and from the present time,
/// so that receivers see a restarted node as another source (RFC 3550 section 8).
fn ssrc(name: &str, clock: Clock) -> u32 {
    let now = (clock.origin_nanos() + clock.now().0) ^ u64::from(std::process::id());
    let seed = 0xcbf2_9ce4_8422_2325 ^ now;
    let hash = name
        .bytes()
        .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash >> 32) as u32 ^ hash as u32
}

/// A stream's session description.
pub(crate) fn session_of(stream: &StreamConfig, info: &StreamInfo) -> Session {
    let mut described = Described::new(info, stream.spec.to);
    // Later than its frame's deadline no packet is of use.
    let kept = stream.spec.contract.delay.filter(|_| stream.is_reported);
    described.feedback_ms = kept.map(|kept| kept.0 / 1_000_000);
    Session { name: stream.spec.name.clone(), streams: vec![described] }
}

/// Writes a stream's session description, if one is configured and its medium is known.
pub(crate) fn write_sdp(
    stream: &StreamConfig,
    info: Option<&StreamInfo>,
    base: &Path,
) -> Result<(), SdpFailure> {
    let (Some(path), Some(info)) = (&stream.sdp, info) else { return Ok(()) };
    let session = session_of(stream, info);
    std::fs::write(base.join(path), session.to_string()).map_err(|why| SdpFailure {
        stream: session.name,
        path: path.clone(),
        why,
    })
}
