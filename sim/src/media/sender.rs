//! The sending end: frames from lists become packets, and a link decides which of them goes next, and when.
//!
//! It does in virtual time what the frame producers and the engine of `place/engine` do in real time, by the
//! same code: packets are tagged by `FrameTag`, numbered by `Numbering`, and stamped when they leave. Since
//! their payloads are zeros, they are written no earlier than that.

use std::sync::Arc;

use selvedge_data_link::{self as link, Link, PathEstimate};
use selvedge_data_memory::PayloadSpan;
use selvedge_data_net_line::Packet;
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::rtp::{FrameTag, Header, packet_len, stamp_deadline, write_packet};
use selvedge_data_stream::{
    Contract, DropReason, Frame, FrameList, ListedFrame, Numbering, Totals,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::audit::Audit;
use super::led::{AdaptiveEncoder, Led};
use super::life::{Life, LifeEvent};
use crate::endpoint::Endpoint;
use crate::packet::{Datagram, FlowId, Payload};
use crate::promise::{Breach, Promise};
use crate::results::Flow;

/// A stream that a sender plays.
#[derive(Clone, Debug)]
pub struct MediaStream {
    /// Its name.
    pub name: String,
    /// The flow of its packets.
    pub flow: FlowId,
    /// The port that they go to, by which recordings of links know them; 0: none.
    pub port: u16,
    /// Its frames, played round and round.
    pub list: FrameList,
    /// What each packet of each frame carries; where there are none, packets are as full as they may be.
    pub packets: Vec<Vec<u16>>,
    /// From frame to frame; at least 1 ns.
    pub period: Duration,
    /// What its link is asked for.
    pub contract: Contract,
    /// When its first frame comes.
    pub begin: Instant,
    /// How many frames come.
    pub frames: u32,
}

impl MediaStream {
    /// What each packet of this frame carries, if that is known.
    fn packets_of(&self, frame: u32) -> Option<&[u16]> {
        self.packets.get(frame as usize % self.packets.len().max(1)).map(Vec::as_slice)
    }
}

#[derive(Debug)]
struct Sending {
    about: MediaStream,
    index: StreamIndex,
    /// The source identifier of its packets.
    ssrc: u32,
    numbering: Numbering,
    /// The number of the frame that comes next.
    seq: u32,
    /// Its encoder, in place of its list.
    led: Option<Led>,
}

/// What makes the source of a flow's packets another one: the process that sends them is.
const SECOND: u32 = 1 << 31;

impl Sending {
    /// Whether its first frames take at most half of its part of the link, and each of them at most half of the time
    /// that it has, so that nothing needs to be given up.
    fn is_light(&self, rate: Bitrate, streams: usize) -> bool {
        const FRAMES: u32 = 60;
        const HEADERS: Bytes = Bytes(100);
        let part = Bitrate(rate.0 / (2 * streams as u64));
        let MediaStream { period, contract, list, .. } = &self.about;
        let mut times = (0..FRAMES).map(|n| (list.frame(n).size + HEADERS) / part);
        let largest = times.clone().max().unwrap_or_default();
        let all = times.try_fold(Duration::ZERO, |sum, time| {
            (time < Duration::from_secs(60)).then(|| sum + time)
        });
        largest <= contract.delay.unwrap_or(*period)
            && all.is_some_and(|all| all <= *period * u64::from(FRAMES))
    }

    /// When the first frame comes at `back` or later, if there is one.
    fn next_from(&self, back: Instant) -> Option<Instant> {
        let MediaStream { begin, period, frames, .. } = &self.about;
        let over = back.since(*begin).0.div_ceil(period.0);
        (over < u64::from(*frames)).then(|| *begin + *period * over)
    }

    /// In a new process, from its first frame on.
    fn begin_again(&mut self, back: Instant) {
        let MediaStream { begin, period, frames, .. } = &mut self.about;
        let over = u32::try_from(back.since(*begin).0.div_ceil(period.0)).unwrap_or(u32::MAX);
        (*begin, *frames) = ((*begin).max(back), frames.saturating_sub(over));
        self.ssrc |= SECOND;
        (self.numbering, self.seq) = (Numbering::default(), 0);
    }

    /// When the next frame comes, if there is one.
    fn arrival(&self) -> Option<Instant> {
        let MediaStream { begin, period, frames, .. } = &self.about;
        (self.seq < *frames).then(|| *begin + *period * u64::from(self.seq))
    }
}

/// A paced link of the product at a host, with all its streams.
#[derive(Debug)]
pub struct Sender {
    link: Link,
    /// The headers of each packet on the wire.
    headers: Bytes,
    streams: Vec<Sending>,
    /// When the next frame of any stream comes.
    arrival: Option<Instant>,
    /// The longest payload; a shorter one is its beginning.
    payload: Vec<u8>,
    /// Room for the packet that leaves.
    packet: Vec<u8>,
    /// When the frame of the packet that left last is due.
    deadline: Instant,
    /// Bytes that were sent beside packets, and that the link has yet to pay for.
    owed: Bytes,
    /// When a packet may leave, or the link wants to be polled.
    due: Option<Instant>,
    watched: Option<Box<Watched>>,
    audit: Option<Box<Audit>>,
    kill: Option<Kill>,
}

/// The end of a sender's process, and the beginning of the next one.
#[derive(Debug)]
struct Kill {
    at: Instant,
    back: Instant,
    /// The link with its streams, as it is at the beginning of each process.
    link: Link,
    state: Process,
    /// What the first process counted of each stream, and where it broke a promise.
    totals: Vec<Totals>,
    breaches: Vec<Breach>,
    /// From its first frame to its first packet.
    silent: Option<Duration>,
    /// When the second process has its first frame.
    again: Option<Instant>,
}

/// Where a sender that is to be killed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    First,
    Gone,
    Second,
}

/// The frame whose life is recorded.
#[derive(Debug)]
struct Watched {
    life: Life,
    /// Whether it is with the link.
    waits: bool,
    /// The frame that the link chose last while it was.
    chosen: Option<(FlowId, u32)>,
}

impl Sender {
    /// A link without streams, whose packets take `overhead` bytes of headers below RTP.
    #[must_use]
    pub fn new(link: Link, overhead: Bytes) -> Self {
        let headers = overhead + Bytes(packet_len(0) as u64);
        let payload_max = (link.params().mtu - headers).max(Bytes(1)).0 as usize;
        Self {
            link,
            headers,
            streams: Vec::new(),
            arrival: None,
            payload: vec![0; payload_max],
            packet: vec![0; packet_len(payload_max)],
            deadline: Instant::ZERO,
            owed: Bytes(0),
            due: None,
            watched: None,
            audit: None,
            kill: None,
        }
    }

    /// Kills it at this time, after its streams were added; so much later it works again, as a new process with an
    /// empty link, whose streams begin with their first frames.
    pub fn kill(&mut self, at: Instant, lasts: Duration) {
        let (link, state) = (self.link.clone(), Process::First);
        let (back, totals, breaches) = (at + lasts, Vec::new(), Vec::new());
        self.kill =
            Some(Kill { at, back, link, state, totals, breaches, silent: None, again: None });
    }

    /// Sends over a path of which this is known from now on.
    pub fn set_path(&mut self, now: Instant, path: PathEstimate) {
        if !path.is_near(&self.link.path()) {
            self.link.set_path(now, path);
            self.settle(now);
        }
    }

    /// The link pays for bytes that were sent beside packets.
    pub fn owe(&mut self, owed: Bytes) {
        self.owed += owed;
    }

    /// Whether its link weighs frames, so that their tags matter.
    #[must_use]
    pub fn selects(&self) -> bool {
        self.link.params().selection
    }

    /// The shortest time that a frame has.
    #[must_use]
    pub fn shortest_delay(&self) -> Option<Duration> {
        self.streams.iter().filter_map(|stream| stream.about.contract.delay).min()
    }

    /// What its streams offered of late.
    #[must_use]
    pub fn offered(&self, now: Instant) -> Bitrate {
        self.link.rates(now).0
    }

    /// When the frame of the packet that left last is due.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Holds the link to its promises from now on.
    pub fn audit(&mut self) {
        self.audit = Some(Box::default());
    }

    /// Where the link broke a promise while it was held to them.
    #[must_use]
    pub fn breaches(&self) -> Vec<Breach> {
        let mut breaches = self.kill.as_ref().map_or_else(Vec::new, |kill| kill.breaches.clone());
        let indices: Vec<_> = self.streams.iter().map(|stream| stream.index).collect();
        breaches.extend(self.audit.iter().flat_map(|audit| audit.breaches(&self.link, &indices)));
        breaches
    }

    /// Of a flow's packets, how many left so close to their deadlines that a receiver may judge otherwise.
    #[must_use]
    pub fn near(&self, flow: FlowId) -> u64 {
        let stream = self.streams.iter().find(|stream| stream.about.flow == flow);
        let audit = self.audit.as_ref().zip(stream);
        audit.map_or(0, |(audit, stream)| audit.near(stream.index))
    }

    /// Ends the first process, or begins the second, if it is time.
    fn change_process(&mut self, now: Instant) {
        let Some(kill) = &mut self.kill else { return };
        if kill.state == Process::First && kill.at <= now {
            let indices: Vec<_> = self.streams.iter().map(|stream| stream.index).collect();
            let ledgers = indices.iter().map(|index| self.link.ledger(*index));
            kill.totals = ledgers
                .map(|one| one.map_or_else(Totals::default, |one| one.totals().clone()))
                .collect();
            if let Some(audit) = &mut self.audit {
                let first = std::mem::take(&mut **audit);
                kill.breaches = first.breaches(&self.link, &indices);
                let begin = self.streams.iter().map(|stream| stream.about.begin).min();
                kill.silent = first.first.zip(begin).map(|(first, begin)| first.since(begin));
            }
            (kill.state, self.link, self.due) = (Process::Gone, kill.link.clone(), None);
        }
        if kill.state == Process::Gone && kill.back <= now {
            kill.state = Process::Second;
            let again = self.streams.iter().filter_map(|stream| stream.next_from(kill.back));
            kill.again = again.min();
            for stream in &mut self.streams {
                stream.begin_again(kill.back);
            }
            self.find_arrival();
        }
    }

    /// Whether the second process is silent by so much longer than the first one was at its beginning.
    #[must_use]
    pub fn is_late_after_kill(&self, end: Instant, by: Duration) -> Option<Breach> {
        let kill = self.kill.as_ref().filter(|kill| kill.state == Process::Second)?;
        if !self
            .streams
            .iter()
            .all(|stream| stream.is_light(self.link.params().rate, self.streams.len()))
        {
            return None;
        }
        let due = kill.again? + kill.silent? + by;
        let first = self.audit.as_ref()?.first;
        (due < end && first.is_none_or(|first| first > due)).then(|| {
            let what =
                format!("back at {:?}, the first packet at {first:?}, due at {due:?}", kill.back);
            Breach { promise: Promise::Back, what }
        })
    }

    fn is_gone(&self) -> bool {
        self.kill.as_ref().is_some_and(|kill| kill.state == Process::Gone)
    }

    /// Adds a stream, before the network runs.
    pub fn add_stream(&mut self, mut about: MediaStream) {
        about.period = about.period.max(Duration(1));
        let index = self.link.add_stream(about.contract);
        let (ssrc, numbering) = (about.flow.0 as u32, Numbering::default());
        self.streams.push(Sending { about, index, ssrc, numbering, seq: 0, led: None });
        self.find_arrival();
    }

    /// The frames of a stream come from this encoder, in place of its list, and the encoder follows the path behind a bond.
    pub fn encode(&mut self, flow: FlowId, encoder: Box<dyn AdaptiveEncoder>) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.about.flow == flow) {
            stream.led = Some(Led::new(encoder));
        }
    }

    /// Whether encoders follow.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.streams.iter().any(|stream| stream.led.is_some())
    }

    /// Makes the encoders follow what is known of the path.
    pub fn lead(&mut self, now: Instant, path: PathEstimate) {
        let lost = |index| {
            let totals = self.link.ledger(index).map(|ledger| ledger.totals());
            totals.map_or(0, |totals| totals.dropped[DropReason::ReferenceLost as usize])
        };
        let waiting = self.link.backlog();
        let rate = self
            .shortest_delay()
            .map_or(path.expected, |delay| link::beside_waiting(path.expected, waiting, delay));
        let led = self.streams.iter_mut().filter_map(|one| Some((one.index, one.led.as_mut()?)));
        let mut led: Vec<_> = led.collect();
        let mut aims: Vec<_> = led.iter().map(|(_, led)| led.aim.clone()).collect();
        link::follow(&mut aims, rate, Bitrate(0), now);
        for ((index, led), aim) in led.iter_mut().zip(aims) {
            led.handle_lost(now, lost(*index));
            led.set_aim(aim);
        }
    }

    fn find_arrival(&mut self) {
        self.arrival = self.streams.iter().filter_map(Sending::arrival).min();
    }

    /// Records the life of a stream's frame from now on, in place of another's.
    pub fn watch(&mut self, flow: FlowId, seq: u32) {
        let life = Life::new(flow, seq);
        self.watched = Some(Box::new(Watched { life, waits: false, chosen: None }));
    }

    /// What the link did with the frame that is watched.
    #[must_use]
    pub fn life(&self) -> Option<&Life> {
        self.watched.as_ref().map(|watched| &watched.life)
    }

    /// Hands a stream's next frame to the link. One of too many packets leaves a gap, which the link counts.
    fn enqueue(&mut self, now: Instant, at: usize, arrival: Instant) {
        let stream = &mut self.streams[at];
        let seq = stream.seq;
        stream.seq += 1;
        let listed = match &mut stream.led {
            Some(led) => led.encoder.encode(),
            None => stream.about.list.frame(seq),
        };
        let ListedFrame { kind, referenced, size, refs } = listed;
        let most = self.payload.len() as u64;
        let (size, packets) = match stream.about.packets_of(seq) {
            None => (size, size.0.div_ceil(most)),
            Some(known) => {
                let size = known.iter().map(|len| u64::from(*len).min(most)).sum();
                (Bytes(size), known.len() as u64)
            }
        };
        let Ok(packets) = u16::try_from(packets) else { return };
        let size = size + Bytes(self.headers.0 * u64::from(packets));
        let (deadline, payload) = (None, PayloadSpan::default());
        let frame =
            Frame { seq, kind, referenced, refs, packets, size, arrival, deadline, payload };
        if let Some(watched) = &mut self.watched {
            let event = LifeEvent::Enqueued(frame, self.link.backlog());
            watched.record(now, (stream.about.flow, seq), event);
        }
        let index = stream.index;
        if let Some(audit) = &mut self.audit {
            audit.handle_frame(&self.link, index, frame);
        }
        self.link.handle_frame(now, index, frame);
        self.settle(now);
    }

    /// Releases the frames that the link is done with.
    fn settle(&mut self, now: Instant) {
        while let Some(settled) = self.link.poll_settled() {
            if let Some(audit) = &mut self.audit {
                audit.handle_settled(&settled, self.link.params().selection);
            }
            if let Some(watched) = &mut self.watched {
                let flow = self.streams[settled.stream.0 as usize].about.flow;
                let frame = (flow, settled.frame.seq);
                watched.record(now, frame, LifeEvent::Settled(settled.fate));
            }
        }
    }

    /// The packet that leaves now; `due` is when to ask again if there is none.
    fn next_packet(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        let Some(next) = self.link.poll_transmit(now) else {
            self.due = self.link.next_event(now);
            return None;
        };
        let Sending { about, numbering, ssrc, .. } = &mut self.streams[next.stream.0 as usize];
        let frame = (about.flow, next.frame.seq);
        if let Some(watched) = &mut self.watched {
            watched.choose(now, frame, &about.name);
        }
        let max = Bytes(self.payload.len() as u64) + self.headers;
        let size = match about.packets_of(next.frame.seq) {
            None => next.frame.size - Bytes(max.0 * u64::from(next.packet)),
            Some(known) => Bytes(known[usize::from(next.packet)].into()) + self.headers,
        };
        let size = max.min(size);
        let departure = self.link.departure(size);
        if departure > now {
            self.due = Some(departure);
            return None;
        }
        let number = numbering.number(&next.frame, next.packet);
        // Of a video's clock: 90,000 ticks a second.
        let timestamp = (u128::from(next.frame.arrival.0) * 9 / 100_000) as u32;
        let header =
            Header { marker: false, payload_type: 96, sequence: number, timestamp, ssrc: *ssrc };
        let payload = &self.payload[..(size - self.headers).0 as usize];
        let packet = &mut self.packet[..packet_len(payload.len())];
        write_packet(packet, header, FrameTag::of(&next.frame, next.packet), payload);
        stamp_deadline(packet, next.deadline, now);
        if let Some(watched) = &mut self.watched {
            let left = next.deadline.since(now);
            watched.record(now, frame, LifeEvent::Sent(next.packet, number, left));
        }
        if let Some(audit) = &mut self.audit {
            audit.handle_sent(now, &self.link, size);
            audit.handle_packet(now, next.stream, next.deadline);
        }
        self.link.sent(now, size + std::mem::take(&mut self.owed));
        self.deadline = next.deadline;
        let payload = Payload::Bytes(Arc::from(&*packet));
        Some(Packet { port: about.port, ..Datagram::packet(frame.0, size, payload) })
    }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet<Datagram>) {}

    fn handle_timeout(&mut self, now: Instant) {
        self.change_process(now);
        if self.is_gone() {
            return;
        }
        if self.arrival.is_none_or(|arrival| arrival > now) {
            return;
        }
        for at in 0..self.streams.len() {
            while let Some(arrival) = self.streams[at].arrival().filter(|arrival| *arrival <= now) {
                self.enqueue(now, at, arrival);
            }
        }
        self.find_arrival();
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        if self.is_gone() {
            return None;
        }
        let packet = self.next_packet(now);
        self.settle(now);
        packet
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let change = self.kill.as_ref().and_then(|kill| match kill.state {
            Process::First => Some(kill.at),
            Process::Gone => Some(kill.back),
            Process::Second => None,
        });
        if self.is_gone() {
            return change;
        }
        [self.arrival, self.due, change].into_iter().flatten().min()
    }

    fn report(&self, flows: &mut [Flow]) {
        for (number, Sending { about, index, .. }) in self.streams.iter().enumerate() {
            let (flow, ledger) = (flows.get_mut(about.flow.0 as usize), self.link.ledger(*index));
            if let (Some(flow), Some(ledger)) = (flow, ledger) {
                let mut totals = ledger.totals().clone();
                if let Some(before) = self.kill.as_ref().and_then(|kill| kill.totals.get(number)) {
                    add(&mut totals, before);
                }
                flow.frames.get_or_insert_default().sent = totals;
            }
        }
    }
}

fn add(totals: &mut Totals, more: &Totals) {
    totals.frames += more.frames;
    totals.sent += more.sent;
    totals.on_time += more.on_time;
    totals.decodable += more.decodable;
    totals.unknown += more.unknown;
    totals.dropped.iter_mut().zip(more.dropped).for_each(|(sum, more)| *sum += more);
}

impl Watched {
    /// Records what became of a frame, if it is the one.
    fn record(&mut self, now: Instant, frame: (FlowId, u32), event: LifeEvent) {
        if (self.life.flow, self.life.seq) == frame {
            self.waits = !matches!(event, LifeEvent::Settled(_));
            self.life.record(now, event);
        }
    }

    /// Records a decision, if it is another than the last and the frame waits.
    fn choose(&mut self, now: Instant, chosen: (FlowId, u32), name: &str) {
        if self.waits && self.chosen.replace(chosen) != Some(chosen) {
            let is_it = (self.life.flow, self.life.seq) == chosen;
            let other = || LifeEvent::PassedOver(name.to_owned(), chosen.1);
            self.life.record(now, if is_it { LifeEvent::Chosen } else { other() });
        }
    }
}
