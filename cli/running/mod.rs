//! A node at work: sources opened, engines started, and one view over all of it.
//!
//! `open` finds out everything that can fail before anything is started; `Running::start` starts
//! the links; `Feeds::start` starts a source's thread, which may feed more than one node (the demo
//! feeds two with the same frames).

mod channels;
mod feed;
mod placed;
mod stacks;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use selvedge_control_config::{NodeConfig, SourceUri, carried};
use selvedge_media::{Codec, Source, SourceError, StreamInfo};
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::feeder::{self, Feeder, FeederError};
use selvedge_place_engine::engine::{StreamParams, payload_max};
use selvedge_place_engine::inlet::{IPV4_UDP, IPV6_UDP};

pub(crate) use channels::ChannelWatch;
pub(crate) use feed::{FeedStatus, Feeds, Reopen};
pub(crate) use placed::{Engines, SourceEnd};
pub(crate) use stacks::Stacks;
pub(crate) use view::Running;

/// A source that is open, and what it said of itself.
pub(crate) struct Opened {
    pub(crate) source: Medium,
    pub(crate) info: StreamInfo,
}

/// Where a stream's frames come from, open.
pub(crate) enum Medium {
    /// GStreamer.
    Media(Box<Source>),
    /// A recording.
    Recording(feeder::Opened),
}

/// Why a source can't be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MediumError {
    #[error(transparent)]
    Media(#[from] SourceError),
    #[error(transparent)]
    Recording(#[from] FeederError),
}

impl Opened {
    fn new(uri: &SourceUri, base: &Path, payload: usize) -> Result<Self, MediumError> {
        let SourceUri::Record { path, encoding, repeat } = uri else {
            let source = Source::open(uri, base, payload)?;
            let info = source.info().clone();
            return Ok(Self { source: Medium::Media(Box::new(source)), info });
        };
        let recording = Feeder::open(&base.join(path), *repeat)?;
        let named = |codec: &Codec| codec.encoding() == encoding;
        let codec = Codec::ALL.into_iter().find(named).unwrap_or(Codec::H264);
        let info = StreamInfo {
            codec,
            payload_type: recording.payload_type,
            clock_rate: if codec == Codec::L16 { 44_100 } else { 90_000 },
            fmtp: None,
            channels: (codec == Codec::L16).then_some(2),
            period: recording.period,
            width: None,
            height: None,
        };
        Ok(Self { source: Medium::Recording(recording), info })
    }
}

/// A stream whose source can't be opened.
#[derive(Debug)]
pub(crate) struct OpenError {
    /// The stream's place in the node file.
    pub(crate) stream: usize,
    pub(crate) error: MediumError,
}

/// Opens all sources of a node, several at a time; tells of all that fail.
pub(crate) fn open(config: &NodeConfig, base: &Path) -> Result<Vec<Opened>, Vec<OpenError>> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = config
            .streams
            .iter()
            .enumerate()
            .map(|(n, stream)| {
                let payload = payload_of(config, n);
                scope.spawn(move || Opened::new(&stream.source, base, payload))
            })
            .collect();
        let joined = handles.into_iter().map(|handle| handle.join().expect("opening never panics"));
        joined.collect()
    });
    let mut opened = Vec::new();
    let mut failed = Vec::new();
    for (stream, result) in results.into_iter().enumerate() {
        match result {
            Ok(one) => opened.push(one),
            Err(error) => failed.push(OpenError { stream, error }),
        }
    }
    if failed.is_empty() { Ok(opened) } else { Err(failed) }
}

/// The largest RTP payload that a stream's packets may have.
pub(crate) fn payload_of(config: &NodeConfig, stream: usize) -> usize {
    let stream = &config.streams[stream];
    if let Some(stack) = &stream.stack {
        return payload_max(
            carried(stack, config.links[stream.link].mtu, stream.spec.to).message,
            0,
        );
    }
    let overhead = if stream.spec.to.is_ipv6() { IPV6_UDP } else { IPV4_UDP };
    payload_max(config.links[stream.link].mtu, overhead)
}

fn params(config: &NodeConfig, stream: usize, info: &StreamInfo, clock: Clock) -> StreamParams {
    let spec = config.streams[stream].spec.clone().with_media_period(info.period);
    let ssrc = ssrc(&spec.name, clock);
    StreamParams { spec, ssrc }
}

/// An RTP source identifier: of the name, so that streams differ, and of the moment, so that a
/// restarted node is seen to be another source (RFC 3550 section 8).
fn ssrc(name: &str, clock: Clock) -> u32 {
    let now = (clock.origin_nanos() + clock.now().0) ^ u64::from(std::process::id());
    let seed = 0xcbf2_9ce4_8422_2325 ^ now;
    let hash = name
        .bytes()
        .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash >> 32) as u32 ^ hash as u32
}

/// Waits on a condition that another thread makes true, without a busy loop.
pub(crate) fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = std::time::Instant::now() + limit;
    while !done() {
        if std::time::Instant::now() >= deadline {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    true
}

/// Thumbnails and states are shared between the feeds and the view.
pub(crate) type Statuses = Arc<[Arc<FeedStatus>]>;
