//! Links whose rate is measured by what their streams' receivers report by RTCP.
//!
//! Each stream has a sender of its own (`comm/rtp`), to which the link's engine passes packets when they may leave. The
//! link's rate is the sum of what the reports of all its receivers allow: streams that share a bottleneck share it as
//! senders of different hosts would. A receiver's request for an intra picture goes to the stream's encoder.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use selvedge_comm_rtp::{RtpOptions, RtpSender, SenderStatus};
use selvedge_control_config::view::PathSnapshot;
use selvedge_control_config::{LinkConfig, StreamConfig, reported};
use selvedge_data_link::PathEstimate;
use selvedge_data_net_rate::RateParams;
use selvedge_data_stack::compose::Fit;
use selvedge_data_stream::rtp;
use selvedge_os::clock::Clock;
use selvedge_os::keeper::{Keeper, Stop};
use selvedge_place_engine::engine::{Carrier, Heard, StreamCarrier};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::measured::{FOLLOW_EVERY, LOOK_EVERY, MeasuredLinks};
use crate::path_events::{PathEvents, SeenPath};

/// The senders of each measured link, by link and stream.
type Senders = BTreeMap<String, BTreeMap<String, Weak<ReportedStream>>>;
/// The streams of a link that are there, with their names.
type Present = Vec<(String, Arc<ReportedStream>)>;
/// What can be seen of the receivers of each link.
type Seen = BTreeMap<String, Vec<PathSnapshot>>;

/// The receivers that report, of all links.
pub(crate) struct NodeReceivers {
    clock: Clock,
    /// The name of the node's sources.
    name: String,
    senders: Arc<Mutex<Senders>>,
    seen: Arc<Mutex<Seen>>,
    keeper: Option<Keeper>,
}

/// A stream whose receiver reports.
#[derive(Debug)]
struct ReportedStream {
    clock: Clock,
    sender: RtpSender,
}

impl Carrier for ReportedStream {
    fn carry(&self, packet: &[u8]) -> bool {
        let tag = rtp::Packet::parse(packet).ok().and_then(|packet| packet.tag);
        let left = tag.map_or(0, |tag| tag.left_ms.max(0).unsigned_abs());
        self.sender.send(self.clock.now() + Duration::from_millis(left.into()), packet)
    }

    fn take_extra(&self) -> Bytes {
        self.sender.take_owed()
    }
}

impl NodeReceivers {
    pub(crate) fn new(node: &str, clock: Clock) -> Self {
        let (senders, seen) = Default::default();
        Self { clock, name: node.to_owned(), senders, seen, keeper: None }
    }

    /// The carrier of a stream, if its receiver's reports measure its link. Without sockets it has none: the engine sends
    /// the stream then, and the rate stays where it begins.
    pub(crate) fn carrier(
        &self,
        link: &LinkConfig,
        stream: &StreamConfig,
    ) -> Option<StreamCarrier> {
        if !stream.is_reported {
            return None;
        }
        let to = stream.spec.to;
        let options = RtpOptions {
            to,
            control_port: stream.rtcp_port,
            delay: stream.spec.contract.delay.unwrap_or_default(),
            name: self.name.clone(),
            rate: RateParams::default(),
        };
        let sender = match RtpSender::start(options, self.clock) {
            Ok(sender) => sender,
            Err(why) => {
                tracing::warn!(stream = stream.spec.name, %why, "no sockets for RTCP");
                return None;
            }
        };
        let by = Arc::new(ReportedStream { clock: self.clock, sender });
        let mut senders = self.senders.lock();
        let of_link = senders.entry(link.name.clone()).or_default();
        of_link.insert(stream.spec.name.clone(), Arc::downgrade(&by));
        let Fit { message, headers } = reported(link, to);
        Some(StreamCarrier { by, overhead: headers, packet_max: message })
    }

    /// Makes the links follow what is reported from now on, and publishes it.
    pub(crate) fn follow(
        &mut self,
        links: impl MeasuredLinks + 'static,
        events: Option<PathEvents>,
    ) -> io::Result<()> {
        let (clock, senders, seen) = (self.clock, self.senders.clone(), self.seen.clone());
        let watch = Watch { clock, senders, seen, links, events, before: BTreeMap::new() };
        let work = move |stop: &Stop| watch.run(stop);
        self.keeper = Some(Keeper::start("receivers".to_owned(), work)?);
        Ok(())
    }

    /// What can be seen of the receivers of a link.
    pub(crate) fn paths(&self, link: &str) -> Vec<PathSnapshot> {
        self.seen.lock().get(link).cloned().unwrap_or_default()
    }
}

/// Keeps rates, encoders and views up to date.
struct Watch<L> {
    clock: Clock,
    senders: Arc<Mutex<Senders>>,
    seen: Arc<Mutex<Seen>>,
    links: L,
    events: Option<PathEvents>,
    /// What each stream had sent at the last look.
    before: BTreeMap<(String, String), (Instant, Bytes)>,
}

impl<L: MeasuredLinks> Watch<L> {
    fn run(mut self, stop: &Stop) {
        let mut look_at = Instant::ZERO;
        while !stop.is_requested() {
            let now = self.clock.now();
            let looks = now >= look_at;
            if looks {
                look_at = now + LOOK_EVERY;
            }
            for (link, streams) in self.present() {
                self.follow(&link, &streams, now, looks);
            }
            stop.pause(FOLLOW_EVERY);
        }
    }

    /// The streams that are there, by link; those that went are left out from now on.
    fn present(&self) -> Vec<(String, Present)> {
        let mut senders = self.senders.lock();
        let of_link = |(link, streams): (&String, &mut BTreeMap<String, Weak<ReportedStream>>)| {
            streams.retain(|_, one| one.strong_count() > 0);
            let held =
                streams.iter().filter_map(|(name, one)| Some((name.clone(), one.upgrade()?)));
            (link.clone(), held.collect())
        };
        senders.iter_mut().filter(|(_, streams)| !streams.is_empty()).map(of_link).collect()
    }

    fn follow(&mut self, link: &str, streams: &Present, now: Instant, looks: bool) {
        let estimates = || streams.iter().map(|(_, one)| one.sender.estimate());
        let path = PathEstimate {
            rate: Bitrate(estimates().map(|path| path.rate.0).sum()),
            expected: Bitrate(estimates().map(|path| path.expected.0).sum()),
            reserve: Duration::ZERO,
        };
        self.links.set_path(link, path);
        if let Some(events) = &mut self.events {
            events.handle_paths(now, link, streams.iter().map(|(name, one)| one.seen(name)));
        }
        for (name, _) in streams.iter().filter(|(_, one)| one.sender.take_intra_request()) {
            self.links.request_intra(name);
        }
        for (name, one) in streams {
            self.links.handle_report(link, Some(name), one.heard());
        }
        self.links.lead_encoders(link, path, now);
        if looks {
            self.look(link, streams, now);
        }
    }

    /// Passes on what is known of the streams, and shows what is known of their receivers.
    fn look(&mut self, link: &str, streams: &Present, now: Instant) {
        let offered = self.links.offered(link);
        let mut shown = Vec::new();
        for (name, one) in streams {
            let info = offered.streams.iter().find(|stream| stream.name == *name);
            info.iter().for_each(|stream| one.sender.set_clock_rate(stream.info.clock_rate));
            one.sender.set_demand(offered.rate);
            let sent = (now, one.sender.status().sent);
            let before = self.before.insert((link.to_owned(), name.clone()), sent);
            shown.push(one.shown(name, now, before));
        }
        let was = self.seen.lock().insert(link.to_owned(), shown.clone()).unwrap_or_default();
        for (one, was) in shown.iter().zip(was) {
            if was.active != one.active && was.name == one.name {
                let what = if one.active { "its receiver reports" } else { &one.detail };
                self.links.note(format!("{link}.{}: {what}", one.name));
            }
        }
    }
}

impl ReportedStream {
    fn seen<'a>(&self, path: &'a str) -> SeenPath<'a> {
        let SenderStatus { rate, round_trip, queueing, loss, sent, .. } = self.sender.status();
        let carries = self.sender.is_reported();
        SeenPath { path, rate, round_trip, queueing, loss, sent, carries }
    }

    fn heard(&self) -> Heard {
        let SenderStatus { round_trip, queueing, loss, .. } = self.sender.status();
        let is_reported = self.sender.is_reported();
        let known =
            |time: Duration| Some(time).filter(|time| is_reported && *time > Duration::ZERO);
        Heard {
            is_reported,
            loss: is_reported.then_some(loss),
            round_trip: known(round_trip),
            queueing: known(queueing),
            frames: None,
        }
    }

    fn shown(&self, name: &str, now: Instant, before: Option<(Instant, Bytes)>) -> PathSnapshot {
        let seen = self.seen(name);
        let detail = match (seen.carries, self.sender.status().reported) {
            (true, _) => "",
            (false, None) => "its receiver sends no RTCP reports: state the link's rate",
            (false, Some(_)) => "its receiver reports no more",
        };
        seen.shown(detail, now, before)
    }
}
