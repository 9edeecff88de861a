//! A node at work: sources opened, engines started, and one view over all of it.
//!
//! `open` finds out everything that can fail before anything is started; `Running::start` starts
//! the links; `Feeds::start` starts a source's thread, which may feed more than one node (the demo
//! feeds two with the same frames).

mod feed;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use selvedge_host::clock::Clock;
use selvedge_host::engine::{Engine, EngineError, FateTap, StreamParams, payload_max};
use selvedge_host::inlet::{IPV4_UDP, IPV6_UDP, Inlet};
use selvedge_host::report::LinkReport;
use selvedge_media::{Source, SourceError, StreamInfo};
use selvedge_node::config::NodeConfig;
use selvedge_stream::Contract;

pub(crate) use feed::{FeedStatus, Feeds, Reopen};
pub(crate) use view::Running;

/// A source that is open, and what it said of itself.
pub(crate) struct Opened {
    pub(crate) source: Source,
    pub(crate) info: StreamInfo,
}

/// A stream whose source can't be opened.
#[derive(Debug)]
pub(crate) struct OpenError {
    /// The stream's place in the node file.
    pub(crate) stream: usize,
    pub(crate) error: SourceError,
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
                scope.spawn(move || {
                    let source = Source::open(&stream.source, base, payload)?;
                    let info = source.info().clone();
                    Ok(Opened { source, info })
                })
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
    let overhead = if stream.to.is_ipv6() { IPV6_UDP } else { IPV4_UDP };
    payload_max(config.links[stream.link].mtu, overhead)
}

/// The contract that a stream of the node file has once its medium is known.
pub(crate) fn contract(config: &NodeConfig, stream: usize, info: &StreamInfo) -> Contract {
    let stream = &config.streams[stream];
    Contract {
        period: stream.period.unwrap_or(info.period),
        windows: stream.windows,
        late: stream.late,
        work_conserving: stream.work_conserving,
        weight: stream.weight,
        priority: stream.priority,
        class: stream.class,
        parent: stream.parent,
        delay: Some(stream.delay),
    }
}

/// The engines of a node, one for each link, and where each stream is.
pub(crate) struct Engines {
    pub(crate) engines: Vec<Engine>,
    /// For each stream: its link, and its number there.
    pub(crate) places: Vec<(usize, usize)>,
}

impl Engines {
    /// Starts them; returns the sources' ends in the order of the streams.
    pub(crate) fn start(
        clock: Clock,
        config: &NodeConfig,
        infos: &[StreamInfo],
        mut tap: impl FnMut(&[usize]) -> Option<Box<dyn FateTap>>,
    ) -> Result<(Self, Vec<Inlet>), EngineError> {
        let mut places = vec![(0, 0); config.streams.len()];
        let mut inlets: Vec<Option<Inlet>> = config.streams.iter().map(|_| None).collect();
        let mut engines = Vec::new();
        for (n, link) in config.links.iter().enumerate() {
            let members: Vec<usize> =
                (0..config.streams.len()).filter(|&s| config.streams[s].link == n).collect();
            let params: Vec<_> =
                members.iter().map(|&s| params(config, s, &infos[s], clock)).collect();
            let (engine, ends) = Engine::start(clock, link, &params, tap(&members))?;
            for (at, (&stream, inlet)) in members.iter().zip(ends).enumerate() {
                places[stream] = (n, at);
                inlets[stream] = Some(inlet);
            }
            engines.push(engine);
        }
        let inlets = inlets.into_iter().map(|i| i.expect("every stream has a link")).collect();
        Ok((Self { engines, places }, inlets))
    }

    /// The newest report of each link.
    pub(crate) fn reports(&self) -> Vec<LinkReport> {
        self.engines.iter().map(Engine::report).collect()
    }

    /// Stops all; the last report of each link.
    pub(crate) fn stop(self) -> Vec<LinkReport> {
        self.engines.into_iter().map(Engine::stop).collect()
    }
}

fn params(config: &NodeConfig, stream: usize, info: &StreamInfo, clock: Clock) -> StreamParams {
    let it = &config.streams[stream];
    StreamParams {
        contract: contract(config, stream, info),
        to: it.to,
        ring: it.ring,
        pool: it.pool,
        full: it.full,
        ssrc: ssrc(&it.name, clock),
    }
}

/// An RTP source identifier: of the name, so that streams differ, and of the moment, so that a
/// restarted node is seen to be another source (RFC 3550 section 8).
fn ssrc(name: &str, clock: Clock) -> u32 {
    let now = clock.origin_nanos() ^ u64::from(std::process::id());
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
