//! What channels cost beside the bare engine: one source here, sinks in another process, the same
//! settings for both. Sinks compare the time in an event with the machine's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration as StdDuration;

use selvedge_comm_event::{
    Address, ChannelHandle, DirectCallback, Notices, Participant, Settings, StartError,
    engine_configuration,
};
use selvedge_control_event::{Attributes, Event, Format, NoticeKind, Overflow, Subscription, Wake};
use selvedge_os::clock::Clock;
use selvedge_units::Duration;
use serde::{Deserialize, Serialize};
use zenoh::Wait;
use zenoh::qos::CongestionControl;
use zenoh::sample::{Locality, SampleKind};

/// The events that are sent one at a time, for the time until the last sink has them.
pub const PACED: u64 = 300;
/// The bytes of an event: its number, when it was sent, and what fills it.
pub const SIZE: usize = 104;

const CHANNEL: &str = "bench";
const FORMAT: &str = "input { long number; long sent; char rest[88]; };";
const KEY: &str = "selvedge-bench/events";

/// What sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A channel.
    Channel,
    /// A channel, with reliable events at the pace of the slowest sink.
    Reliable,
    /// A channel as between hosts: nothing of it through memory.
    Engine,
    /// A publisher of the engine.
    Bare,
}

/// What a process's sinks saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SinkTotals {
    /// Of each paced event that all sinks got: until the last one had it, in nanoseconds.
    pub last_ns: Vec<u64>,
    /// How many of the paced events did not reach every sink.
    pub incomplete: u64,
    /// How many others came, to all sinks together.
    pub flood: u64,
    /// From the first of them to the last, in nanoseconds.
    pub flood_ns: u64,
    /// How many found no room among those that waited for their sink.
    pub sink_full: u64,
    /// How many messages found no room in an inbox: they came by the engine, and were not read in time.
    pub inbox_full: u64,
}

struct SinkTally {
    clock: Clock,
    pause: Duration,
    sinks: u64,
    last: Vec<(AtomicU64, AtomicU64)>,
    flood: AtomicU64,
    begin: AtomicU64,
    end: AtomicU64,
}

impl SinkTally {
    fn new(sinks: usize, pause: Duration) -> Self {
        Self {
            clock: Clock::shared(),
            pause,
            sinks: sinks as u64,
            last: (0..PACED).map(|_| Default::default()).collect(),
            flood: AtomicU64::new(0),
            begin: AtomicU64::new(u64::MAX),
            end: AtomicU64::new(0),
        }
    }

    fn count(&self, record: &[u8]) {
        if self.pause > Duration::ZERO {
            self.clock.sleep_until(self.clock.now() + self.pause);
        }
        let now = self.clock.now().0;
        let word = |at: usize| {
            record
                .get(at..at + 8)
                .map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
        };
        let (number, sent) = (word(0), word(8));
        if let Some((last, count)) = usize::try_from(number).ok().and_then(|at| self.last.get(at)) {
            last.fetch_max(now.saturating_sub(sent), Ordering::Relaxed);
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.flood.fetch_add(1, Ordering::Relaxed);
        self.begin.fetch_min(sent, Ordering::Relaxed);
        self.end.fetch_max(now, Ordering::Relaxed);
    }

    fn seen(&self) -> SinkTotals {
        let complete = self.last.iter().filter(|(_, n)| n.load(Ordering::Relaxed) == self.sinks);
        let last_ns: Vec<u64> = complete.map(|(last, _)| last.load(Ordering::Relaxed)).collect();
        let incomplete = PACED - last_ns.len() as u64;
        let (begin, end) = (self.begin.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        let flood = self.flood.load(Ordering::Relaxed);
        let flood_ns = end.saturating_sub(begin);
        SinkTotals { last_ns, incomplete, flood, flood_ns, ..SinkTotals::default() }
    }
}

fn settings(kind: Kind, connect: &[Address]) -> Settings {
    Settings {
        rings: matches!(kind, Kind::Channel | Kind::Reliable),
        name: Some("bench".to_owned()),
        domain: "bench".to_owned(),
        connect: connect.to_vec(),
        // Sinks know the source, not each other.
        gossip: false,
        meet: false,
        ..Settings::default()
    }
}

fn session(connect: &[Address]) -> Result<(zenoh::Session, Address), StartError> {
    let (zenoh_config, listen) = engine_configuration(&settings(Kind::Bare, connect))?;
    let failed = |error: zenoh::Error| StartError::Engine(error.to_string());
    let configuration = zenoh::Config::from_json5(&zenoh_config).map_err(failed)?;
    let session = zenoh::open(configuration).wait().map_err(failed)?;
    Ok((session, listen[0].clone()))
}

/// Sinks, each with a session of its own.
pub struct Sinks {
    tally: Arc<SinkTally>,
    kept: Vec<KeptSink>,
}

/// A sink, as long as it is kept.
enum KeptSink {
    Channel(DirectCallback, Participant),
    Bare { _kept: Box<dyn std::any::Any + Send> },
}

impl std::fmt::Debug for Sinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sinks({})", self.tally.sinks)
    }
}

impl Sinks {
    /// Connects so many to a source. Each pauses at every event, if it is to be slow.
    ///
    /// # Errors
    /// If one can't.
    pub fn start(
        kind: Kind,
        source: &Address,
        count: usize,
        pause: Duration,
    ) -> Result<Self, StartError> {
        let tally = Arc::new(SinkTally::new(count, pause));
        let sinks = (0..count).map(|number| match kind {
            Kind::Channel | Kind::Reliable | Kind::Engine => channel_sink(kind, source, &tally),
            Kind::Bare => bare_sink(source, number, &tally),
        });
        let kept = sinks.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { tally, kept })
    }

    /// What they have seen.
    pub fn seen(&self) -> SinkTotals {
        let mut seen = self.tally.seen();
        for kept in &self.kept {
            if let KeptSink::Channel(sink, host) = kept {
                seen.sink_full += sink.sink_counts().overflowed;
                seen.inbox_full += host.dropped().0;
            }
        }
        seen
    }
}

fn channel_sink(
    kind: Kind,
    source: &Address,
    tally: &Arc<SinkTally>,
) -> Result<KeptSink, StartError> {
    let host = Participant::start(&settings(kind, std::slice::from_ref(source)))?;
    let joined = open(&host);
    let overflow = if kind == Kind::Reliable { Overflow::Block } else { Overflow::DropOldest };
    let wish = Subscription { bound: 4096, overflow, filter: None };
    let tally = Arc::clone(tally);
    let sink: DirectCallback = joined
        .on_event_direct(wish, move |event| tally.count(&event.record))
        .map_err(|error| StartError::Engine(error.to_string()))?;
    Ok(KeptSink::Channel(sink, host))
}

fn bare_sink(
    source: &Address,
    number: usize,
    tally: &Arc<SinkTally>,
) -> Result<KeptSink, StartError> {
    let failed = |error: zenoh::Error| StartError::Engine(error.to_string());
    let (session, _) = session(std::slice::from_ref(source))?;
    let tally = Arc::clone(tally);
    let subscriber = session.declare_subscriber(KEY);
    let subscriber = subscriber.callback(move |sample| tally.count(&sample.payload().to_bytes()));
    let subscriber = subscriber.wait().map_err(failed)?;
    let token = session.liveliness().declare_token(format!("selvedge-bench/up/{number}"));
    let token = token.wait().map_err(failed)?;
    Ok(KeptSink::Bare { _kept: Box::new((session, subscriber, token)) })
}

fn open(host: &Participant) -> ChannelHandle {
    let format = Format::parse(CHANNEL, FORMAT).expect("written above");
    host.open(CHANNEL, &format, Wake::All).expect("a name")
}

/// A source, to be measured.
#[allow(clippy::large_enum_variant, reason = "there is one")]
enum MeasuredSource {
    Channel {
        joined: ChannelHandle,
        notices: Notices,
        host: Participant,
        is_reliable: bool,
    },
    Bare {
        publisher: zenoh::pubsub::Publisher<'static>,
        there: Arc<AtomicUsize>,
        _kept: (zenoh::Session, zenoh::pubsub::Subscriber<()>),
    },
}

/// A source.
pub struct Source {
    way: MeasuredSource,
    address: Address,
    clock: Clock,
    next: u64,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({})", self.address)
    }
}

impl Source {
    /// Listens for sinks.
    ///
    /// # Errors
    /// If it can't.
    pub fn start(kind: Kind) -> Result<Self, StartError> {
        let failed = |error: zenoh::Error| StartError::Engine(error.to_string());
        let (way, address) = match kind {
            Kind::Channel | Kind::Reliable | Kind::Engine => {
                let host = Participant::start(&settings(kind, &[]))?;
                let (joined, notices) = (open(&host), host.notices());
                let address = host.listen()[0].clone();
                let is_reliable = kind == Kind::Reliable;
                (MeasuredSource::Channel { joined, notices, host, is_reliable }, address)
            }
            Kind::Bare => {
                let (session, address) = session(&[])?;
                let there = Arc::new(AtomicUsize::new(0));
                let count = Arc::clone(&there);
                let tokens = session.liveliness().declare_subscriber("selvedge-bench/up/*");
                let tokens = tokens.history(true).callback(move |sample| {
                    match sample.kind() {
                        SampleKind::Put => count.fetch_add(1, Ordering::SeqCst),
                        SampleKind::Delete => count.fetch_sub(1, Ordering::SeqCst),
                    };
                });
                let tokens = tokens.wait().map_err(failed)?;
                let publisher = session
                    .declare_publisher(KEY)
                    .congestion_control(CongestionControl::Drop)
                    .allowed_destination(Locality::Remote)
                    .wait()
                    .map_err(failed)?;
                (MeasuredSource::Bare { publisher, there, _kept: (session, tokens) }, address)
            }
        };
        Ok(Self { way, address, clock: Clock::shared(), next: 0 })
    }

    /// Where sinks connect.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// How many sinks are there.
    pub fn sinks(&self) -> usize {
        match &self.way {
            MeasuredSource::Channel { joined, .. } => {
                let wants = joined.view(|v| v.members.iter().filter(|one| one.wants).count());
                wants.unwrap_or(0)
            }
            MeasuredSource::Bare { there, .. } => there.load(Ordering::SeqCst),
        }
    }

    /// Sends the next event; how long that took.
    pub fn publish(&mut self) -> Duration {
        let mut record = [0; SIZE];
        record[..8].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        let begin = self.clock.now();
        record[8..16].copy_from_slice(&begin.0.to_le_bytes());
        match &self.way {
            MeasuredSource::Channel { joined, is_reliable, .. } => {
                let attributes = Attributes::default();
                let event = Event { deadline: None, attributes, record: &record };
                let sent = if *is_reliable {
                    joined.publish_paced(event, None)
                } else {
                    joined.publish(event)
                };
                sent.expect("the record has the format's size");
            }
            MeasuredSource::Bare { publisher, .. } => {
                let _ = publisher.put(&record[..]).wait();
            }
        }
        self.clock.now().since(begin)
    }

    /// How many events have found no room in a ring.
    pub fn ring_full(&self) -> u64 {
        match &self.way {
            MeasuredSource::Channel { host, is_reliable: false, .. } => host.rings().dropped,
            // Reliable ones are sent again.
            MeasuredSource::Channel { .. } | MeasuredSource::Bare { .. } => 0,
        }
    }

    /// Waits until all that was promised is taken, for a time at most.
    pub fn settle(&self, wait: StdDuration) {
        let MeasuredSource::Channel { joined, .. } = &self.way else { return };
        let begin = self.clock.now();
        while joined.view(|view| view.held).unwrap_or(0) > 0
            && self.clock.now().since(begin).0 < wait.as_nanos() as u64
        {
            self.clock.sleep_until(self.clock.now() + Duration::from_millis(1));
        }
    }

    /// Waits until a channel's member is lost; `None` if it is not within a time.
    pub fn lost(&self, wait: StdDuration) -> Option<Duration> {
        let MeasuredSource::Channel { notices, .. } = &self.way else { return None };
        let begin = self.clock.now();
        loop {
            let left =
                wait.checked_sub(StdDuration::from_nanos(self.clock.now().since(begin).0))?;
            if notices.take(left.into())?.kind == NoticeKind::Lost {
                return Some(self.clock.now().since(begin));
            }
        }
    }
}

/// Takes part for the first time, and opens a channel, a first and a second: how long each takes.
///
/// # Errors
/// If it can't.
pub fn opening() -> Result<[Duration; 3], StartError> {
    let clock = Clock::shared();
    let begin = clock.now();
    let host = Participant::start(&settings(Kind::Channel, &[]))?;
    let started = clock.now();
    let first = open(&host);
    let opened = clock.now();
    let second = host.open("second", first.format(), Wake::All);
    let end = clock.now();
    drop(second);
    Ok([started.since(begin), opened.since(started), end.since(opened)])
}
