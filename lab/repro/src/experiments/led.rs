//! Models of two others that lead an encoder over one path: a sender of RTP with Google congestion control, and one of SRT
//! with BELABOX's way. Both send lost packets again as long as that can be in time.
//!
//! `Coder -> LedSender -> packets -> LedReceiver -> reports -> LedSender`. The receiver reports what arrived when, what it
//! misses, and whether something came too late. By RTP that is transport-wide feedback, NACK and PLI. By SRT it is
//! ACK and NAK, and no request for an intra picture.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use selvedge_data_net_line::Packet;
use selvedge_sim::media::{AdaptiveEncoder, PacketArrival};
use selvedge_sim::{
    Datagram, Endpoint, EndpointId, FlowId, HostId, Network, NetworkError, Payload,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::belabox::Belabox;
use super::gcc::{Gcc, Reported};
use super::ladder::Coder;
use super::up_media::PERIOD;

/// How often the sender looks at its rate.
const LOOK: Duration = Duration::from_millis(20);
/// Intra pictures are requested at most this often.
const REQUEST_EVERY: Duration = Duration::from_secs(1);
/// Packets of a report's list of missing ones.
const MISSING_MAX: usize = 200;

/// Who leads the encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leader {
    Gcc,
    Belabox,
}

impl Leader {
    /// What a packet carries of a picture: of RTP as much as ours, of SRT seven packets of MPEG-TS.
    pub(super) const fn payload(self) -> Bytes {
        match self {
            Self::Gcc => Bytes(1_200),
            Self::Belabox => Bytes(7 * 184),
        }
    }

    /// Its headers: IPv4, UDP, and RTP with an extension of 8 bytes, or SRT and those of MPEG-TS.
    const fn headers(self) -> Bytes {
        match self {
            Self::Gcc => Bytes(28 + 20),
            Self::Belabox => Bytes(28 + 16 + 7 * 4),
        }
    }

    const fn report_every(self) -> Duration {
        match self {
            Self::Gcc => Duration::from_millis(50),
            Self::Belabox => Duration::from_millis(10),
        }
    }
}

#[derive(Debug)]
enum Control {
    Gcc(Gcc),
    Belabox(Belabox),
}

fn ms(at: Instant) -> f64 {
    at.since(Instant::ZERO).as_millis_f64()
}

/// A packet that may be sent again.
#[derive(Clone, Copy, Debug)]
struct Kept {
    frame: u32,
    packet: u16,
    size: Bytes,
    captured: Instant,
    left: Option<Instant>,
}

/// The sending end.
#[derive(Debug)]
pub(super) struct LedSender {
    leader: Leader,
    control: Control,
    coder: Coder,
    flow: FlowId,
    within: Duration,
    frames: u32,
    frame: u32,
    number: u64,
    kept: BTreeMap<u64, Kept>,
    fresh: VecDeque<u64>,
    again: VecDeque<u64>,
    /// What is not reported yet: by the number of the sending, when it left and its size.
    sendings: BTreeMap<u64, (Instant, Bytes)>,
    sending: u64,
    /// When the next may leave, and when to look again.
    next: Instant,
    look: Instant,
    round_trip: Option<f64>,
    /// Bytes of new packets in the last second, and of all.
    input: VecDeque<(Instant, Bytes)>,
    output: VecDeque<(Instant, Bytes)>,
    too_late: u64,
    requested: Instant,
}

fn rate_of(bytes: &mut VecDeque<(Instant, Bytes)>, now: Instant) -> f64 {
    while bytes.front().is_some_and(|(at, _)| now.since(*at) > Duration::from_secs(1)) {
        bytes.pop_front();
    }
    bytes.iter().map(|(_, size)| size.0 as f64 * 8.0).sum()
}

impl LedSender {
    /// Adds both ends; each picture has this long. Returns the receiving end.
    pub(super) fn attach(
        network: &mut Network,
        hosts: [HostId; 2],
        leader: Leader,
        coder: Coder,
        within: Duration,
        frames: u32,
    ) -> Result<EndpointId, NetworkError> {
        let [flow, back] = network.flow_and_answers("led", hosts)?;
        let most = coder.range().1.0 as f64;
        let control = match leader {
            Leader::Gcc => Control::Gcc(Gcc::new(most)),
            Leader::Belabox => Control::Belabox(Belabox::new(most, within.as_millis_f64())),
        };
        let sender = Self {
            leader,
            control,
            coder,
            flow,
            within,
            frames,
            frame: 0,
            number: 0,
            kept: BTreeMap::new(),
            fresh: VecDeque::new(),
            again: VecDeque::new(),
            sendings: BTreeMap::new(),
            sending: 0,
            next: Instant::ZERO,
            look: Instant::ZERO,
            round_trip: None,
            input: VecDeque::new(),
            output: VecDeque::new(),
            too_late: 0,
            requested: Instant::ZERO,
        };
        network.attach(Box::new(sender), &[back])?;
        network.attach(Box::new(LedReceiver::new(leader, back, within)), &[flow])
    }

    fn lead(&mut self, now: Instant) {
        let sending = rate_of(&mut self.output, now);
        let trip = self.round_trip.unwrap_or(100.0);
        if let Control::Belabox(belabox) = &mut self.control {
            belabox.look(ms(now), self.kept.len() as f64, trip, sending);
        }
        let rate = match &self.control {
            Control::Gcc(gcc) => gcc.rate(),
            Control::Belabox(belabox) => belabox.rate(),
        };
        self.coder.set_rate(Bitrate(rate as u64));
    }

    fn encode(&mut self, now: Instant) {
        let most = self.leader.payload().0;
        let mut left = self.coder.encode().size.0;
        let mut packet = 0;
        while left > 0 {
            let size = Bytes(left.min(most)) + self.leader.headers();
            let kept = Kept { frame: self.frame, packet, size, captured: now, left: None };
            self.kept.insert(self.number, kept);
            self.fresh.push_back(self.number);
            self.input.push_back((now, size));
            (packet, self.number, left) = (packet + 1, self.number + 1, left - left.min(most));
        }
        self.frame += 1;
    }

    /// What can't be in time any more is given up.
    fn give_up(&mut self, now: Instant) {
        let within = self.within;
        self.kept.retain(|_, kept| now.since(kept.captured) <= within);
    }

    /// The pace in bit/s.
    fn pace(&mut self, now: Instant) -> f64 {
        match &self.control {
            Control::Gcc(gcc) => {
                // What would wait for more than 50 ms leaves at once.
                let waiting = self.fresh.iter().chain(&self.again);
                let bits: u64 =
                    waiting.filter_map(|n| self.kept.get(n)).map(|kept| kept.size.0 * 8).sum();
                if bits as f64 > gcc.rate() * 0.05 { 1e9 } else { gcc.rate() }
            }
            // A fifth more than what comes in: belacoder's SRTO_OHEADBW.
            Control::Belabox(_) => (rate_of(&mut self.input, now) * 1.2).max(1_000_000.0),
        }
    }

    fn handle_report(&mut self, now: Instant, report: &Report) {
        for number in &report.missing {
            let trip = self.round_trip.unwrap_or(100.0);
            let kept = self.kept.get(number).and_then(|kept| kept.left);
            let is_due = kept.is_some_and(|left| now.since(left).as_millis_f64() >= trip);
            if is_due && !self.again.contains(number) {
                self.again.push_back(*number);
            }
        }
        self.kept = self.kept.split_off(&report.expected);
        if let Some((sending, _)) = report.arrived.last()
            && let Some((left, _)) = self.sendings.get(sending)
        {
            let trip = now.since(*left).as_millis_f64() - report.held.as_millis_f64();
            self.round_trip =
                Some(self.round_trip.map_or(trip, |before| before * 0.875 + trip * 0.125));
            let later = self.sendings.split_off(&(sending + 1));
            let done = std::mem::replace(&mut self.sendings, later);
            let arrived: BTreeMap<u64, Instant> = report.arrived.iter().copied().collect();
            let reported = done.iter().map(|(number, (left, size))| Reported {
                left: ms(*left),
                arrived: arrived.get(number).map(|at| ms(*at)),
                bits: size.0 as f64 * 8.0,
            });
            if let Control::Gcc(gcc) = &mut self.control {
                let trip = self.round_trip.unwrap_or(100.0);
                gcc.handle_report(ms(now), &reported.collect::<Vec<_>>(), trip);
            }
        }
        if self.leader == Leader::Gcc
            && report.too_late > self.too_late
            && now.since(self.requested) >= REQUEST_EVERY
        {
            self.coder.request_intra();
            (self.requested, self.too_late) = (now, report.too_late);
        }
    }
}

impl Endpoint for LedSender {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        if let Payload::Bytes(bytes) = &packet.payload.payload {
            self.handle_report(now, &Report::read(bytes));
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.look <= now {
            self.give_up(now);
            self.lead(now);
            self.look = now + LOOK;
        }
        while self.frame < self.frames && Instant::ZERO + PERIOD * u64::from(self.frame) <= now {
            self.encode(now);
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        if self.next > now {
            return None;
        }
        let (number, kept) = loop {
            let number = self.again.pop_front().or_else(|| self.fresh.pop_front())?;
            if let Some(kept) = self.kept.get_mut(&number) {
                kept.left = Some(now);
                break (number, *kept);
            }
        };
        let pace = self.pace(now);
        self.next = now + Duration((kept.size.0 as f64 * 8e9 / pace) as u64);
        self.sendings.insert(self.sending, (now, kept.size));
        self.output.push_back((now, kept.size));
        let mut bytes = Vec::with_capacity(30);
        for word in [self.sending, number, kept.captured.since(Instant::ZERO).0] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(kept.frame.to_be_bytes());
        bytes.extend(kept.packet.to_be_bytes());
        self.sending += 1;
        Some(Datagram::packet(self.flow, kept.size, Payload::Bytes(Arc::from(bytes))))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let frame = Instant::ZERO + PERIOD * u64::from(self.frame);
        let waits = !self.again.is_empty() || !self.fresh.is_empty();
        let times = [
            (self.frame < self.frames).then_some(frame),
            Some(self.look),
            waits.then_some(self.next),
        ];
        times.into_iter().flatten().min()
    }
}

/// What a receiver reports.
#[derive(Debug, Default)]
struct Report {
    /// All packets before this one came, or are given up.
    expected: u64,
    too_late: u64,
    /// Since the last arrival.
    held: Duration,
    missing: Vec<u64>,
    /// Sendings, and when they arrived, since the last report.
    arrived: Vec<(u64, Instant)>,
}

impl Report {
    fn write(&self) -> Vec<u8> {
        let counts = [self.missing.len() as u64, self.arrived.len() as u64];
        let head = [self.expected, self.too_late, self.held.0].into_iter().chain(counts);
        let arrived = self.arrived.iter().flat_map(|(n, at)| [*n, at.0]);
        let all = head.chain(self.missing.iter().copied()).chain(arrived);
        all.flat_map(u64::to_be_bytes).collect()
    }

    fn read(bytes: &[u8]) -> Self {
        let words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_be_bytes(word.try_into().expect("each chunk has eight bytes")));
        let words: Vec<u64> = words.collect();
        let [expected, too_late, held, missing, _, rest @ ..] = &words[..] else {
            return Self::default();
        };
        let (missing, arrived) = rest.split_at(*missing as usize);
        let arrived = arrived.chunks_exact(2).map(|pair| (pair[0], Instant(pair[1])));
        Self {
            expected: *expected,
            too_late: *too_late,
            held: Duration(*held),
            missing: missing.to_vec(),
            arrived: arrived.collect(),
        }
    }

    /// On the wire: headers, and about 8 bytes a packet.
    fn size(&self) -> Bytes {
        Bytes(60 + 8 * (self.missing.len() + self.arrived.len()) as u64)
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct LedReceiver {
    leader: Leader,
    back: FlowId,
    within: Duration,
    /// From a picture's encoding to the arrival of a packet at least.
    least: Duration,
    report: Report,
    came: BTreeMap<u64, Instant>,
    latest: Instant,
    due: Option<Instant>,
    arrivals: Vec<PacketArrival>,
}

impl LedReceiver {
    fn new(leader: Leader, back: FlowId, within: Duration) -> Self {
        let least = Duration(u64::MAX);
        let (report, came, arrivals) = (Report::default(), BTreeMap::new(), Vec::new());
        Self {
            leader,
            back,
            within,
            least,
            report,
            came,
            latest: Instant::ZERO,
            due: None,
            arrivals,
        }
    }

    /// All that arrived.
    pub(super) fn arrivals(&self) -> &[PacketArrival] {
        &self.arrivals
    }

    /// Goes on behind what came, and behind what is too late.
    fn advance(&mut self, now: Instant) {
        loop {
            if self.came.remove(&self.report.expected).is_none() {
                let Some((next, captured)) = self.came.first_key_value() else { return };
                if now.since(*captured) <= self.within + self.least {
                    return;
                }
                self.report.too_late += 1;
                self.report.expected = *next;
                continue;
            }
            self.report.expected += 1;
        }
    }
}

impl Endpoint for LedReceiver {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        let Payload::Bytes(bytes) = &packet.payload.payload else { return };
        let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_be_bytes);
        let [sending, number, captured] = [0, 8, 16].map(word);
        let frame = bytes[24..28].try_into().map_or(0, u32::from_be_bytes);
        let packet = bytes[28..30].try_into().map_or(0, u16::from_be_bytes);
        self.arrivals.push(PacketArrival { at: now, frame, packet });
        self.report.arrived.push((sending, now));
        self.latest = now;
        self.least = self.least.min(now.since(Instant(captured)));
        let last = self.came.last_key_value().map_or(self.report.expected, |(last, _)| last + 1);
        if number >= self.report.expected {
            self.came.insert(number, Instant(captured));
        }
        self.advance(now);
        let every = now + self.leader.report_every();
        // A new gap is reported at once.
        let due = if number > last { now } else { every };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        self.due.filter(|due| *due <= now)?;
        let last = self.came.last_key_value().map_or(self.report.expected, |(last, _)| *last);
        let came: BTreeSet<u64> = self.came.keys().copied().collect();
        let missing = (self.report.expected..last).filter(|number| !came.contains(number));
        self.report.missing = missing.take(MISSING_MAX).collect();
        self.report.held = now.since(self.latest);
        let payload = Payload::Bytes(Arc::from(self.report.write()));
        let packet = Datagram::packet(self.back, self.report.size(), payload);
        self.report.arrived.clear();
        // As long as something is missing, it is requested again.
        let is_missing = !self.report.missing.is_empty();
        self.due = is_missing.then_some(now + self.leader.report_every());
        Some(packet)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}
