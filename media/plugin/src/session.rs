//! One run of the element, from PAUSED to READY: a node of one link, started when all streams are
//! known.
//!
//! Inputs announce their periods from their own streaming threads, and fetch their ends of the engine.
//! At their end they wait until the engine is done with their frames. The element changes the
//! parameters that may be changed, and reads the fates of the frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant as StdInstant;

use parking_lot::{Condvar, Mutex};
use selvedge_control_config::view::{Knob, NodeView};
use selvedge_control_config::{
    LinkConfig, NodeConfig, PageConfig, SourceUri, StreamConfig, bonded,
};
use selvedge_data_stream::{Fate, Frame, Spec, Window, Windows, rtp};
use selvedge_media::{Encoder, StreamInfo};
use selvedge_node::{Node, NodeOptions, StartError};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{Carrier, FateTap, StreamCarrier, payload_max};
use selvedge_place_engine::frame_producer::FrameProducer;
use selvedge_place_engine::report::LinkReport;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::output::Output;
use crate::settings::PERIOD_DEFAULT;

/// How long the first stream with a frame waits for the others to announce their periods.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The time that the engine may take beyond the longest delay to be done with a frame.
const GRACE: Duration = Duration::from_millis(500);

/// A run of the element.
pub(crate) struct Session {
    link: LinkConfig,
    phase: Mutex<SessionState>,
    changed: Condvar,
    settled: Arc<SettledCounts>,
    /// The outputs for frames that have left: for the filter, one for each stream; else none.
    outputs: Vec<Arc<Output>>,
    /// What stands for the encoder of each stream.
    encoders: Vec<Encoder>,
    closing: AtomicBool,
}

struct SessionState {
    rate: Bitrate,
    streams: Vec<Spec>,
    /// The known periods; once all are known, the engine starts.
    periods: Vec<Option<Duration>>,
    /// What is known of the streams' media.
    media: Vec<Option<StreamInfo>>,
    node: Option<Node>,
    failure: Option<String>,
    last: LinkReport,
}

/// Why an input has no end of the engine.
#[derive(Debug)]
pub(crate) enum NoProducer {
    /// It was interrupted.
    Interrupted,
    /// The engine could not start, or has stopped.
    Failed(String),
}

/// How many frames of each stream the engine is done with.
#[derive(Default)]
struct SettledCounts {
    counts: Vec<AtomicU64>,
    lock: Mutex<()>,
    more: Condvar,
}

struct FrameFollower {
    counts: Arc<SettledCounts>,
    outputs: Vec<Arc<Output>>,
}

/// Discards the filter's packets: they only represent the use of the link by a frame.
#[derive(Debug)]
struct Discard;

impl Carrier for Discard {
    fn carry(&self, _: &[u8]) -> bool {
        true
    }
}

impl FateTap for FrameFollower {
    fn settled(&mut self, stream: usize, frame: &Frame, fate: Fate, _: Instant) {
        // Frames that were lost before they reached the engine have no packets.
        if frame.payload.len == 0 {
            return;
        }
        if let Some(output) = self.outputs.get(stream) {
            output.settled(frame.seq, matches!(fate, Fate::Sent { .. }));
        }
        if let Some(count) = self.counts.counts.get(stream) {
            count.fetch_add(1, Ordering::Release);
            // A waiter reads the counts under the lock, so it can't miss this.
            drop(self.counts.lock.lock());
            self.counts.more.notify_all();
        }
    }
}

impl Session {
    /// A run over this link; streams are numbered in their order, and so are their encoders, and their outputs, if any.
    pub(crate) fn new(
        link: LinkConfig,
        streams: Vec<Spec>,
        outputs: Vec<Arc<Output>>,
        encoders: Vec<Encoder>,
    ) -> Arc<Self> {
        let settled = SettledCounts {
            counts: streams.iter().map(|_| AtomicU64::new(0)).collect(),
            ..SettledCounts::default()
        };
        let session = Self {
            phase: Mutex::new(SessionState {
                rate: link.rate,
                periods: streams.iter().map(Spec::declared_period).collect(),
                media: streams.iter().map(|_| None).collect(),
                node: None,
                failure: None,
                last: LinkReport::default(),
                streams,
            }),
            changed: Condvar::new(),
            settled: Arc::new(settled),
            outputs,
            encoders,
            closing: AtomicBool::new(false),
            link,
        };
        session.start_if_known(&mut session.phase.lock());
        Arc::new(session)
    }

    /// The largest payload that a packet of this stream may carry.
    pub(crate) fn payload_max(&self, stream: usize) -> usize {
        if let Some(bond) = &self.link.bond {
            return payload_max(bonded(&self.link, bond.address()).message, Bytes(0));
        }
        let ipv6 = self.phase.lock().streams.get(stream).is_some_and(|s| s.to.is_ipv6());
        payload_max(self.link.mtu, if ipv6 { rtp::IPV6_UDP } else { rtp::IPV4_UDP })
    }

    /// Sets what is known of a stream's medium, as for [`Self::set_media_period`].
    pub(crate) fn set_media(&self, stream: usize, info: &StreamInfo) {
        let mut phase = self.phase.lock();
        if let Some(slot) = phase.media.get_mut(stream) {
            *slot = Some(info.clone());
        }
        phase.describe(stream);
        drop(phase);
        self.set_media_period(stream, info.period);
    }

    /// Sets the period of a stream's medium; a period set by a property takes precedence.
    pub(crate) fn set_media_period(&self, stream: usize, period: Duration) {
        let mut phase = self.phase.lock();
        let known = phase.periods.get(stream).is_some_and(Option::is_some);
        if !known && let Some(slot) = phase.periods.get_mut(stream) {
            *slot = Some(period);
            self.start_if_known(&mut phase);
        }
    }

    fn start_if_known(&self, phase: &mut SessionState) {
        if phase.node.is_some() || phase.failure.is_some() {
            return;
        }
        let Some(periods) = phase.periods.iter().copied().collect::<Option<Vec<_>>>() else {
            return;
        };
        let link = LinkConfig { rate: phase.rate, ..self.link.clone() };
        match self.node(link, &phase.streams, &periods) {
            Ok(node) => {
                for (stream, encoder) in phase.streams.iter().zip(&self.encoders) {
                    node.set_encoder(&stream.name, encoder.clone());
                }
                phase.node = Some(node);
                (0..phase.streams.len()).for_each(|stream| phase.describe(stream));
            }
            Err(error) => phase.failure = Some(error.to_string()),
        }
        self.changed.notify_all();
    }

    /// A node whose streams are the pads: frames come from the element itself.
    fn node(
        &self,
        link: LinkConfig,
        streams: &[Spec],
        periods: &[Duration],
    ) -> Result<Node, StartError> {
        let of_pad = |(stream, &period): (&Spec, &Duration)| StreamConfig {
            spec: stream.clone().with_media_period(period),
            far: self.link.bond.as_ref().map(|bond| bond.to.clone()),
            ..StreamConfig::new(&stream.name, SourceUri::Program, stream.to)
        };
        let config = NodeConfig {
            name: link.name.clone(),
            // It serves no page.
            page: PageConfig::default(),
            links: vec![link],
            bonds: Vec::new(),
            tunnels: Vec::new(),
            streams: streams.iter().zip(periods).map(of_pad).collect(),
        };
        let (counts, outputs) = (Arc::clone(&self.settled), self.outputs.clone());
        let below = rtp::IPV4_UDP;
        let discard = |_: &_| StreamCarrier {
            by: Arc::new(Discard),
            overhead: below,
            packet_max: self.link.mtu - below,
        };
        let options = NodeOptions {
            clock: Clock::new(),
            carriers: outputs.iter().map(discard).collect(),
            taps: Box::new(move |_| {
                let (counts, outputs) = (Arc::clone(&counts), outputs.clone());
                Some(Box::new(FrameFollower { counts, outputs }))
            }),
            ..NodeOptions::default()
        };
        let node = Node::prepare(&config, options)?;
        node.start_sources()?;
        Ok(node)
    }

    /// The stream's end of the engine. Waits until the other streams have announced their periods, 2 s
    /// at most: a stream that has not announced one by then counts as having 25 frames a second.
    pub(crate) fn frame_producer(
        &self,
        stream: usize,
        interrupted: impl Fn() -> bool,
    ) -> Result<FrameProducer, NoProducer> {
        let began = StdInstant::now();
        let mut phase = self.phase.lock();
        loop {
            if interrupted() {
                return Err(NoProducer::Interrupted);
            }
            if let Some(failure) = &phase.failure {
                return Err(NoProducer::Failed(failure.clone()));
            }
            if let (Some(node), Some(plan)) = (&phase.node, phase.streams.get(stream)) {
                let frame_producer = node.frame_producer(&plan.name);
                return frame_producer.ok_or_else(|| NoProducer::Failed("it is in use".into()));
            }
            let left = TIMEOUT - began.elapsed().into();
            if left == Duration::ZERO {
                for period in &mut phase.periods {
                    period.get_or_insert(PERIOD_DEFAULT);
                }
                self.start_if_known(&mut phase);
            } else {
                self.changed.wait_for(&mut phase, left.into());
            }
        }
    }

    /// Waits until the engine is done with this number of frames of a stream, no longer than the
    /// longest delay takes, or until interrupted. True if it is done.
    pub(crate) fn drain(&self, stream: usize, given: u64, interrupted: impl Fn() -> bool) -> bool {
        let delays = self.phase.lock().streams.iter().filter_map(|s| s.contract.delay).max();
        let longest = delays.unwrap_or(Duration::ZERO) + GRACE;
        let until = StdInstant::now() + longest.to_std();
        let Some(count) = self.settled.counts.get(stream) else { return true };
        let mut held = self.settled.lock.lock();
        while count.load(Ordering::Acquire) < given {
            let left = until.saturating_duration_since(StdInstant::now());
            if left.is_zero() || interrupted() || self.closing.load(Ordering::Acquire) {
                return false;
            }
            self.settled.more.wait_for(&mut held, left);
        }
        true
    }

    /// Wakes waiting threads, so that they see that they are interrupted.
    pub(crate) fn wake(&self) {
        drop(self.phase.lock());
        self.changed.notify_all();
        drop(self.settled.lock.lock());
        self.settled.more.notify_all();
    }

    /// The run is about to end: no thread may wait for frames any more.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn set_rate(&self, rate: Bitrate) {
        let mut phase = self.phase.lock();
        phase.rate = rate;
        phase.turn(Knob::Rate { link: self.link.name.clone(), rate });
    }

    pub(crate) fn set_window(&self, stream: usize, window: Window) {
        let mut phase = self.phase.lock();
        let Some(plan) = phase.streams.get_mut(stream) else { return };
        plan.contract.windows = Windows::Whole(window);
        let stream = plan.name.clone();
        phase.turn(Knob::Window { stream, window });
    }

    pub(crate) fn set_priority(&self, stream: usize, priority: i32) {
        let mut phase = self.phase.lock();
        let Some(plan) = phase.streams.get_mut(stream) else { return };
        plan.contract.priority = priority;
        let stream = plan.name.clone();
        phase.turn(Knob::Priority { stream, priority });
    }

    /// How long after its arrival a frame of this stream is due.
    pub(crate) fn delay(&self, stream: usize) -> Duration {
        let phase = self.phase.lock();
        phase.streams.get(stream).and_then(|stream| stream.contract.delay).unwrap_or_default()
    }

    /// The newest report, and the names of its streams with their counts of QoS events if they have
    /// outputs; the last one, once stopped.
    pub(crate) fn report(&self) -> (LinkReport, Vec<(String, Option<u64>)>) {
        let phase = self.phase.lock();
        let newest = phase.node.as_ref().and_then(|node| node.reports().pop());
        let report = newest.unwrap_or_else(|| phase.last.clone());
        let qos = |n: usize| self.outputs.get(n).map(|output| output.qos());
        let pads = phase.streams.iter().enumerate();
        (report, pads.map(|(n, stream)| (stream.name.clone(), qos(n))).collect())
    }

    /// Stops the node; waiting frames are not sent.
    pub(crate) fn stop(&self) {
        let node = {
            let mut phase = self.phase.lock();
            phase.failure.get_or_insert_with(|| "the element has stopped".into());
            phase.node.take()
        };
        // Not under the lock: the engine's thread ends after it has noticed.
        if let Some(last) = node.and_then(|node| node.stop().links.pop()) {
            self.phase.lock().last = last;
        }
        self.wake();
    }
}

impl SessionState {
    /// Describes a stream to the node, if both are there: over a bond it goes only with that.
    fn describe(&self, stream: usize) {
        if let (Some(node), Some(Some(info))) = (&self.node, self.media.get(stream)) {
            node.set_info(&self.streams[stream].name, info.clone());
        }
    }

    /// Adjusts the node, if it runs. A value that it refuses stays with the element's property, as
    /// one that was set before the node runs.
    fn turn(&self, knob: Knob) {
        if let Some(node) = &self.node {
            let _ = node.set_knob(knob);
        }
    }
}
