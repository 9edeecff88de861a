//! An event channel: a source and its subscribers, each with the product's own [`Exchange`].
//!
//! A frame is a datagram with its sender, its recipient and a number before it; one that came after a later one
//! is gone, since an exchange expects a transport that may lose and keeps the order. A process that was killed is
//! another host to the exchanges, as it is to those of `comm/event`. Records carry their numbers. What a process
//! did and saw is in [`Seen`], which the fuzz reads. It is Q-Fabric's channel (sections 2.2 and 4.2).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use selvedge_control_event::{
    Attributes, ChannelId, Destination, Event, Exchange, Format, HostId, Notice, NoticeKind,
    Overflow, SinkCounts, SinkId, Subscription, Wake,
};
use selvedge_data_net_line::{Packet, Random};
use selvedge_units::{Bytes, Duration, Instant};

use crate::endpoint::Endpoint;
use crate::network::{Network, NetworkError};
use crate::packet::{Datagram, EndpointId, FlowId, Payload};
use crate::results::Flow;

/// The channel's name; each table of traffic has a network of its own.
const NAME: &str = "news";
/// The sender and the recipient, 4 bytes each, and the frame's number.
const BEFORE: usize = 16;
/// A host is a process of an end: the end's number is in the low bits.
const END_BITS: u32 = 8;
/// Every process of an end.
const ALL: u32 = u32::MAX >> END_BITS;
/// The member that lies, and is at no end.
const LIAR: HostId = HostId((1 << END_BITS) - 1);
/// A slow subscriber takes so many events in a row, this long after the last ones.
const SLOW: (usize, Duration) = (4, Duration::from_millis(20));
/// For how long an event that is not reliable is worth something.
const FRESH: Duration = Duration::from_millis(30);

/// What a source offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// When it begins, and when it ends.
    pub(crate) span: [Instant; 2],
    /// From event to event.
    pub(crate) every: Duration,
    /// Of a record.
    pub(crate) size: Bytes,
    /// Whether events are kept until they were taken.
    pub(crate) is_reliable: bool,
}

/// What one process did and saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The process, as the others know it.
    pub(crate) host: HostId,
    /// From when to when it lived.
    pub(crate) life: [Instant; 2],
    /// Events that it published or took, by their numbers. The higher half of a number is the source.
    pub(crate) events: Vec<(u64, Instant)>,
    /// The first event that was published for each member.
    pub(crate) owed_from: BTreeMap<HostId, u64>,
    /// Events that were reported as dropped, by the other end.
    pub(crate) dropped: BTreeMap<HostId, u64>,
    /// When the last frame of each member came.
    pub(crate) heard: BTreeMap<HostId, Instant>,
    /// For how long members had been silent when they were reported lost.
    pub(crate) silences: Vec<(HostId, Duration)>,
    /// Why events could not be read.
    pub(crate) unreadable: Vec<String>,
    /// Frames that came too late or again.
    pub(crate) overtaken: u64,
    /// Frames of a member that lies.
    pub(crate) lies: u64,
    /// Reliable events that the source keeps.
    pub(crate) held: usize,
    /// Events that were offered to the sink, and their fates.
    pub(crate) offered: u64,
    pub(crate) fates: SinkCounts,
}

/// A process at an end of the channel.
#[derive(Debug)]
struct Process {
    exchange: Exchange,
    channel: ChannelId,
    sink: Option<SinkId>,
    /// When the source publishes, or a slow subscriber takes.
    next: Instant,
    /// The number of the last frame of each sender.
    last: BTreeMap<HostId, u64>,
    seen: Seen,
}

/// Another end.
#[derive(Debug)]
pub(crate) struct Peer {
    end: u32,
    flow: FlowId,
    /// The flow from there.
    pub(crate) from: FlowId,
    /// Frames sent to it.
    sent: u64,
}

/// One end of a channel: end 0 is the source. Every second of the others is slow, and knows another version of
/// the format: a member more, and none of those that only fill the record.
#[derive(Debug)]
pub struct EventEnd {
    end: u32,
    pub(crate) offer: Offer,
    /// What the records of this end have.
    pub(crate) format: Format,
    /// Where a record has its number.
    place: usize,
    /// Of a source its subscribers, of a subscriber its source.
    pub(crate) peers: Vec<Peer>,
    /// When each process begins and ends.
    lives: Vec<[Instant; 2]>,
    processes: Vec<Process>,
    outgoing: VecDeque<Packet<Datagram>>,
}

impl EventEnd {
    /// Adds a source at the first host, and subscribers at the second; the source and the first subscriber are
    /// killed when their hosts' programs are. Returns the ends, the source first.
    pub(crate) fn attach(
        network: &mut Network,
        name: &str,
        hosts: [crate::packet::HostId; 2],
        offer: Offer,
        sinks: u32,
        kills: [Option<(Instant, Duration)>; 2],
    ) -> Result<Vec<EndpointId>, NetworkError> {
        let mut source = Self::new(0, offer, kills[0]);
        let mut others = Vec::new();
        for end in 1..=sinks {
            let name = if sinks == 1 { name.to_owned() } else { format!("{name} {end}") };
            let [there, back] = network.flow_and_answers(&name, hosts)?;
            source.peers.push(Peer { end, flow: there, from: back, sent: 0 });
            let mut sink = Self::new(end, offer, kills[1].filter(|_| end == 1));
            sink.peers.push(Peer { end: 0, flow: back, from: there, sent: 0 });
            others.push(sink);
        }
        let ends = std::iter::once(source).chain(others);
        ends.map(|end| {
            let flows: Vec<_> = end.peers.iter().map(|peer| peer.from).collect();
            network.attach(Box::new(end), &flows)
        })
        .collect()
    }

    fn new(end: u32, offer: Offer, kill: Option<(Instant, Duration)>) -> Self {
        let begin = offer.span[0];
        let lives = match kill {
            Some((at, lasts)) if begin < at => vec![[begin, at], [at + lasts, Instant(u64::MAX)]],
            Some((at, lasts)) => vec![[begin.max(at + lasts), Instant(u64::MAX)]],
            None => vec![[begin, Instant(u64::MAX)]],
        };
        let (text, place) = match (end > 0 && end.is_multiple_of(2), offer.size.0) {
            (true, _) => ("input { int more; long number; };".to_owned(), 8),
            (false, ..=8) => ("input { long number; };".to_owned(), 0),
            (false, size) => (format!("input {{ long number; char fill[{}]; }};", size - 8), 0),
        };
        let format = Format::parse(NAME, &text).expect("it is a format");
        let (peers, processes, outgoing) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { end, offer, format, place, peers, lives, processes, outgoing }
    }

    /// Whether it takes events as soon as they come.
    pub(crate) const fn is_prompt(&self) -> bool {
        self.end % 2 == 1
    }

    /// The most events that wait for it.
    pub(crate) const fn bound(&self) -> usize {
        if self.is_prompt() { 256 } else { 16 }
    }

    /// What each of its processes did and saw until now, or its end.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let seen = self.processes.iter().map(|process| {
            let mut seen = process.seen.clone();
            if let Some(view) = process.exchange.view(process.channel) {
                (seen.held, seen.offered) = (view.held, view.events);
                seen.fates = view.sinks.first().map(|(_, fates)| *fates).unwrap_or_default();
            }
            seen
        });
        seen.collect()
    }

    /// The process that lives now; another one if it is its time.
    fn process(&mut self, now: Instant) -> Option<&mut Process> {
        while let Some(life) = self.lives.get(self.processes.len()).filter(|life| life[0] <= now) {
            let host = HostId((self.processes.len() as u32) << END_BITS | self.end);
            let mut exchange = Exchange::new(now);
            let channel = exchange.open(now, NAME, &self.format, Wake::All).expect("it is new");
            let overflow =
                if self.offer.is_reliable { Overflow::Block } else { Overflow::DropOldest };
            let wish = Subscription { bound: self.bound(), overflow, filter: None };
            let sink =
                (self.end > 0).then(|| exchange.subscribe(channel, wish).expect("it is open"));
            let seen = Seen { host, life: *life, ..Seen::default() };
            let (next, last) = (now, BTreeMap::new());
            self.processes.push(Process { exchange, channel, sink, next, last, seen });
        }
        self.processes.last_mut().filter(|process| now < process.seen.life[1])
    }

    /// Takes events, reads notices, and sends the frames of the exchange.
    fn finish(&mut self, now: Instant) {
        let (is_prompt, place) = (self.is_prompt(), self.place);
        let Some(process) = self.processes.last_mut() else { return };
        if is_prompt {
            process.take(now, place, usize::MAX);
        }
        process.read_notices(now);
        while process.exchange.poll_interest().is_some() {}
        let everyone: Vec<_> =
            self.peers.iter().map(|peer| HostId(ALL << END_BITS | peer.end)).collect();
        while let Some(transmit) = process.exchange.poll_transmit(now) {
            let hosts = match transmit.to {
                Destination::All => &everyone,
                Destination::Hosts(hosts) | Destination::Subscribers { hosts, .. } => hosts,
            };
            for host in hosts {
                let Some(peer) = self.peers.iter_mut().find(|peer| peer.end == host.0 & LIAR.0)
                else {
                    continue;
                };
                peer.sent += 1;
                let numbers = [process.seen.host.0.to_le_bytes(), host.0.to_le_bytes()].concat();
                let bytes = [&numbers[..], &peer.sent.to_le_bytes(), transmit.bytes].concat();
                self.outgoing.push_back(Datagram::udp(peer.flow, Arc::from(bytes)));
            }
        }
    }
}

impl Process {
    fn take(&mut self, now: Instant, place: usize, most: usize) {
        let Some(sink) = self.sink else { return };
        for _ in 0..most {
            let Some(delivery) = self.exchange.poll_event(now, self.channel, sink) else { return };
            let number = delivery.event.record[place..].first_chunk();
            self.seen.events.push((u64::from_le_bytes(*number.expect("it has a number")), now));
        }
    }

    fn read_notices(&mut self, now: Instant) {
        let seen = &mut self.seen;
        while let Some(Notice { host, kind, .. }) = self.exchange.poll_notice() {
            match kind {
                _ if host == LIAR => {}
                NoticeKind::Joined => {
                    seen.heard.insert(host, now);
                }
                NoticeKind::Lost => {
                    let heard = seen.heard.remove(&host).unwrap_or_default();
                    seen.silences.push((host, now.since(heard)));
                }
                NoticeKind::Missed(events) | NoticeKind::Undelivered(events) => {
                    *seen.dropped.entry(host).or_default() += events;
                }
                NoticeKind::Unreadable(why) => seen.unreadable.push(why.to_string()),
                NoticeKind::Left | NoticeKind::Refused(_) => {}
            }
        }
    }

    fn publish(&mut self, now: Instant, offer: &Offer, record: &mut [u8]) {
        let seen = &mut self.seen;
        let number = u64::from(seen.host.0) << 32 | seen.events.len() as u64;
        let view = self.exchange.view(self.channel).expect("it is open");
        for member in view.members.iter().filter(|member| member.wants) {
            seen.owed_from.entry(member.host).or_insert(number);
        }
        record[..8].copy_from_slice(&number.to_le_bytes());
        let deadline = (!offer.is_reliable).then(|| now + FRESH);
        let event = Event { deadline, attributes: Attributes::default(), record };
        let published = if offer.is_reliable {
            self.exchange.publish_reliably(now, self.channel, event)
        } else {
            self.exchange.publish(now, self.channel, event)
        };
        published.expect("without sinks here nothing refuses a whole record");
        seen.events.push((number, now));
    }

    /// The frame in a packet, with its sender; `None` if it is for another process, or too late.
    fn open<'p>(&mut self, bytes: &'p [u8]) -> Option<(HostId, &'p [u8])> {
        let (before, frame) = bytes.split_at_checked(BEFORE)?;
        let number = u64::from_le_bytes(*before.last_chunk()?);
        let host = |at: usize| Some(HostId(u32::from_le_bytes(*before[at..].first_chunk()?)));
        let (from, to) = (host(0)?, host(4)?);
        if to != self.seen.host && to.0 >> END_BITS != ALL {
            return None;
        }
        let last = self.last.entry(from).or_default();
        if number <= *last {
            self.seen.overtaken += 1;
            return None;
        }
        *last = number;
        Some((from, frame))
    }
}

impl Endpoint for EventEnd {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        let Payload::Bytes(bytes) = &packet.payload.payload else { return };
        let is_peer = self.peers.iter().any(|peer| peer.from.0 == packet.flow);
        let Some(process) = self.process(now) else { return };
        if is_peer {
            let Some((from, frame)) = process.open(bytes) else { return };
            if let Some(heard) = process.seen.heard.get_mut(&from) {
                *heard = now;
            }
            process.exchange.handle_frame(now, from, frame);
        } else {
            process.seen.lies += 1;
            process.exchange.handle_frame(now, LIAR, bytes);
        }
        self.finish(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        let (offer, place, is_slow) = (self.offer, self.place, !self.is_prompt());
        let mut record = vec![0; self.format.size()];
        let Some(process) = self.process(now) else { return };
        process.exchange.handle_timeout(now);
        if process.sink.is_none() {
            while process.next <= now && process.next < offer.span[1] {
                process.publish(now, &offer, &mut record);
                process.next += offer.every.max(Duration(1));
            }
        } else if is_slow && process.next <= now {
            process.take(now, place, SLOW.0);
            process.next = now + SLOW.1;
        }
        self.finish(now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        self.outgoing.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let begin = self.lives.get(self.processes.len()).map(|life| life[0]);
        let due =
            self.processes.last().and_then(|Process { exchange, sink, next, seen, .. }| {
                let has_next =
                    if sink.is_some() { !self.is_prompt() } else { *next < self.offer.span[1] };
                let due =
                    exchange.poll_timeout().into_iter().chain(has_next.then_some(*next)).min();
                due.filter(|due| *due < seen.life[1])
            });
        due.into_iter().chain(begin).min()
    }

    fn report(&self, flows: &mut [Flow]) {
        let taken = self.processes.iter().filter(|process| process.sink.is_some());
        let taken: usize = taken.map(|process| process.seen.events.len()).sum();
        for peer in &self.peers {
            if let Some(flow) = flows.get_mut(peer.from.0 as usize) {
                flow.useful = Some(Bytes(taken as u64 * self.offer.size.0));
            }
        }
    }
}

/// A member that lies: it sends frames of every kind, with wrong numbers and content.
#[derive(Debug)]
pub(crate) struct Liar {
    flow: FlowId,
    every: Duration,
    next: Instant,
    is_due: bool,
    random: Random,
}

impl Liar {
    /// Sends one packet `every` so often in this flow.
    pub(crate) fn new(flow: FlowId, next: Instant, every: Duration, random: Random) -> Self {
        Self { flow, every: every.max(Duration(1)), next, is_due: false, random }
    }

    /// A frame as `control/event` encodes it: its kind, the channel, numbers, and what else there is.
    fn frame(&mut self) -> Vec<u8> {
        let kind = self.random.below(7) as u8;
        let mut bytes = vec![kind];
        if kind < 6 {
            bytes.push(NAME.len() as u8);
            bytes.extend_from_slice(NAME.as_bytes());
        }
        // Reliable, Credit and Skip have two numbers: small ones, and the largest.
        for _ in 0..if (3..6).contains(&kind) { 2 } else { 0 } {
            match self.random.below(2) {
                0 => bytes.push(self.random.below(128) as u8),
                _ => bytes.extend([[0xff; 9].as_slice(), &[1]].concat()),
            }
        }
        match kind {
            0 => bytes.extend([1, self.random.below(2) as u8]),
            4 => bytes.push(self.random.below(2) as u8),
            1 | 5 => {}
            _ => {
                let len = 2 + self.random.below(100) as u8;
                bytes.extend([len, 1, self.random.below(3) as u8]);
                bytes.extend((2..len).map(|_| self.random.bits() as u8));
            }
        }
        bytes
    }
}

impl Endpoint for Liar {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet<Datagram>) {}

    fn handle_timeout(&mut self, now: Instant) {
        if self.next <= now {
            self.next += self.every;
            self.is_due = true;
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        let frame = std::mem::take(&mut self.is_due).then(|| self.frame())?;
        Some(Datagram::udp(self.flow, Arc::from(frame)))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next)
    }
}
