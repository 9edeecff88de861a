//! What a receiver can measure of a stream, from its packets and their arrival times: loss, duplicates,
//! reordering, jitter (RFC 3550), and frames: complete, on time, decodable.
//!
//! Pure: time is an argument. Packets come from the receiver of `place/engine` or from anywhere else; memory is
//! constant per stream, whatever arrives.

mod bare;
mod frames;
mod playout;
mod sequence;

use std::fmt;
use std::num::NonZeroU32;

use selvedge_data_stream::rtp::Packet;
use selvedge_units::{Bytes, Duration, Instant};
use serde::{Deserialize, Serialize};

use bare::BareFrames;
use frames::{FrameLog, TaggedPacket};

pub use playout::Playout;
use sequence::{Arrival, Jitter, Sequence};

/// Incomplete frames are given up when no packet has arrived for this long.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The most settled frames whose fates can be polled.
const SETTLED_KEPT: u64 = 256;

/// Ticks per second of a stream's timestamps, more than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRate(NonZeroU32);

impl ClockRate {
    /// That of every video payload format: 90,000 per second.
    pub const VIDEO: Self = Self(NonZeroU32::new(90_000).expect("it is not zero"));

    /// This many ticks per second; `None` for zero.
    #[must_use]
    pub const fn new(hertz: u32) -> Option<Self> {
        match NonZeroU32::new(hertz) {
            Some(hertz) => Some(Self(hertz)),
            None => None,
        }
    }

    /// Ticks per second.
    #[must_use]
    pub const fn hertz(self) -> u32 {
        self.0.get()
    }

    /// An instant in ticks, wrapping as timestamps do.
    const fn units(self, at: Instant) -> u32 {
        (at.0 as u128 * self.0.get() as u128 / 1_000_000_000) as u32
    }
}

/// Returns a frame's deadline for its number, on the clock of the meter's own instants.
pub type Deadlines = Box<dyn Fn(u32) -> Option<Instant> + Send>;

/// The first packet of another source, on trial (RFC 3550, appendix A.1).
struct Candidate {
    source: u32,
    /// The number that would confirm it.
    next: u16,
    at: Instant,
}

/// Measures one stream.
pub struct StreamMeter {
    rate: ClockRate,
    deadlines: Option<Deadlines>,
    source: Option<u32>,
    /// The first packet of another source, until a second confirms that the source has changed.
    candidate: Option<Candidate>,
    /// That packet's bytes.
    trial: Vec<u8>,
    sequence: Sequence,
    jitter: Jitter,
    playout: Playout,
    frames: FrameLog,
    /// The next frame whose fate is to be returned.
    settled: u64,
    bare: BareFrames,
    tagged: bool,
    packets: u64,
    bytes: Bytes,
    duplicates: u64,
    stray: u64,
    malformed: u64,
    restarts: u64,
    first: Option<Instant>,
    last: Instant,
}

impl StreamMeter {
    /// A meter that takes deadlines from the packets: to 1 ms, except for the constant part of the path's
    /// delay, which is assumed to be the least that it sees.
    #[must_use]
    pub fn new(rate: ClockRate) -> Self {
        Self {
            rate,
            deadlines: None,
            source: None,
            candidate: None,
            trial: Vec::with_capacity(2048),
            sequence: Sequence::default(),
            jitter: Jitter::default(),
            playout: Playout::default(),
            frames: FrameLog::default(),
            settled: 0,
            bare: BareFrames::default(),
            tagged: false,
            packets: 0,
            bytes: Bytes(0),
            duplicates: 0,
            stray: 0,
            malformed: 0,
            restarts: 0,
            first: None,
            last: Instant::ZERO,
        }
    }

    /// A meter on the same clock as the sender, which states each frame's deadline: a frame is on time if its
    /// last packet arrived by then. Frames without such a deadline (`None`) are judged as by [`Self::new`].
    #[must_use]
    pub fn with_shared_clock(
        rate: ClockRate,
        deadline_of: impl Fn(u32) -> Option<Instant> + Send + 'static,
    ) -> Self {
        Self { deadlines: Some(Box::new(deadline_of)), ..Self::new(rate) }
    }

    /// Takes a datagram that arrived at `now`. Datagrams that are not RTP packets are counted and otherwise
    /// ignored. O(1), except for jumps in the numbers: at most some thousand steps.
    pub fn handle_packet(&mut self, now: Instant, bytes: &[u8]) {
        // Control packets that share the port are recognised by their type (RFC 5761 section 4).
        if matches!(bytes, [_, 192..=223, ..]) {
            self.stray += 1;
            return;
        }
        let Ok(packet) = Packet::parse(bytes) else {
            self.malformed += 1;
            return;
        };
        let header = packet.header;
        if !self.is_from_source(header.ssrc, header.sequence) {
            self.stray += 1;
            let (source, next) = (header.ssrc, header.sequence.wrapping_add(1));
            self.candidate = Some(Candidate { source, next, at: now });
            self.trial.clear();
            self.trial.extend_from_slice(bytes);
            return;
        }
        // When a source is confirmed, its first packet counts, too: it begins an intra picture.
        if let Some(first) = self.candidate.take().filter(|first| first.source == header.ssrc) {
            self.stray -= 1;
            let trial = std::mem::take(&mut self.trial);
            self.handle_packet(first.at, &trial);
            self.trial = trial;
        }
        let number = match self.sequence.handle(header.sequence) {
            Arrival::New(number) => number,
            Arrival::Restarted(number) => {
                self.restarts += 1;
                self.jitter.restart();
                self.playout.restart();
                self.bare.restart();
                number
            }
            Arrival::Duplicate => {
                self.duplicates += 1;
                return;
            }
            Arrival::Stray => {
                self.stray += 1;
                return;
            }
        };
        self.packets += 1;
        self.bytes += Bytes(bytes.len() as u64);
        self.first.get_or_insert(now);
        self.last = self.last.max(now);
        self.jitter.handle(now, header.timestamp, self.rate);
        let Some(tag) = packet.tag else {
            self.bare.handle(number, header.timestamp, header.marker);
            return;
        };
        self.tagged = true;
        self.playout.observe(now, &tag);
        let packet = TaggedPacket { number, tag, now };
        self.frames.handle(packet, |seq, evidence| {
            let estimate = self.playout.is_on_time(evidence);
            let stated = self.deadlines.as_ref().and_then(|deadline_of| deadline_of(seq));
            stated.map_or(estimate, |deadline| evidence.whole <= deadline)
        });
    }

    /// The next settled frame of a tagged stream, by its number, and whether it can be decoded. Each is
    /// returned once, in decoding order, except those of long ago.
    pub fn poll_settled(&mut self) -> Option<(u32, bool)> {
        let next = self.frames.next();
        if self.settled > next || next - self.settled > SETTLED_KEPT {
            self.settled = next.saturating_sub(SETTLED_KEPT);
        }
        let seq = self.settled;
        (seq < next).then(|| {
            self.settled += 1;
            (seq as u32, self.frames.was_decodable(seq))
        })
    }

    /// Gives up incomplete frames when no packet has arrived for five seconds. To be called now and then; a
    /// late call only delays the counts.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now.since(self.last) >= IDLE_MAX {
            self.finish();
        }
    }

    /// Settles the frames that have begun, as far as their time is up: the receiver stops, and the sender may
    /// go on. The others stay pending, since the rest of them may be on its way.
    pub fn stop(&mut self, now: Instant) {
        self.frames.settle_expired(now);
        self.bare.settle_all();
    }

    /// Settles all frames that have begun: the stream is over.
    pub fn finish(&mut self) {
        self.frames.settle_all();
        self.bare.settle_all();
    }

    /// The measurements so far.
    #[must_use]
    pub fn snapshot(&self) -> MeterSnapshot {
        let counts = self.frames.counts();
        let if_tagged = |count: u64| self.tagged.then_some(count);
        let complete = counts.on_time + counts.late + self.bare.whole;
        let incomplete = counts.incomplete + self.bare.incomplete;
        let settled = complete + incomplete + counts.unseen;
        let lost = self.sequence.lost();
        let lasted = self.last.since(self.first.unwrap_or(self.last));
        let jitter = self.jitter.estimate();
        MeterSnapshot {
            packets: self.packets,
            bytes: self.bytes.0,
            mean_bps: (self.bytes / lasted).0,
            lost,
            lost_share: share(lost, self.packets + lost),
            duplicates: self.duplicates,
            reordered: self.sequence.reordered(),
            stray: self.stray,
            malformed: self.malformed,
            restarts: self.restarts + counts.restarts,
            jitter_units: jitter,
            jitter_ms: jitter as f64 * 1e3 / f64::from(self.rate.hertz()),
            queueing_ms: self.tagged.then(|| self.playout.excess() as f64 / 1e6),
            frames: settled,
            complete,
            incomplete,
            unseen: if_tagged(counts.unseen),
            on_time: if_tagged(counts.on_time),
            on_time_share: if_tagged(counts.on_time).and_then(|n| share(n, settled)),
            decodable: if_tagged(counts.decodable),
            decodable_share: if_tagged(counts.decodable).and_then(|n| share(n, settled)),
            late: if_tagged(counts.late),
            pending: self.frames.pending() + self.bare.pending(),
            after_settled: counts.after_settled,
            socket_drops: 0,
        }
    }

    /// Whether a packet is from the stream's source. Another source takes over when two of its packets arrive
    /// in a row with none of the old one between, so that one stray packet does not replace the source.
    fn is_from_source(&mut self, source: u32, number: u16) -> bool {
        match self.source {
            Some(current) if current == source => {}
            Some(_)
                if self.candidate.as_ref().is_some_and(|it| it.confirmed_by(source, number)) =>
            {
                self.restarts += 1;
                self.sequence.restart();
                self.jitter.restart();
                self.playout.restart();
                self.frames.restart();
                self.bare.restart();
            }
            Some(_) => return false,
            None => {}
        }
        self.source = Some(source);
        true
    }
}

impl Candidate {
    const fn confirmed_by(&self, source: u32, number: u16) -> bool {
        self.source == source && self.next == number
    }
}

impl fmt::Debug for StreamMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamMeter").field("snapshot", &self.snapshot()).finish_non_exhaustive()
    }
}

/// `part` of `whole` as a fraction of 1, if there is a whole.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A stream as received, at one instant. Counters count since the start. Values that only tags provide
/// (whether a frame was on time, decodable, or never seen) are absent for streams without them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeterSnapshot {
    /// RTP packets, duplicates not included.
    pub packets: u64,
    /// Bytes in them, headers of IP and UDP not included.
    pub bytes: u64,
    /// Mean rate of these bytes, between the first and the last packet.
    pub mean_bps: u64,
    /// Packets missing among their sequence numbers.
    pub lost: u64,
    /// The same, as a share of all expected packets.
    pub lost_share: Option<f64>,
    /// Packets that arrived again.
    pub duplicates: u64,
    /// Packets that arrived after one with a higher number.
    pub reordered: u64,
    /// Packets of other sources or wild numbers, and control packets.
    pub stray: u64,
    /// Datagrams that are not RTP packets.
    pub malformed: u64,
    /// How often source or numbering began anew.
    pub restarts: u64,
    /// Interarrival jitter (RFC 3550) in units of the clock rate.
    pub jitter_units: u64,
    /// The same in milliseconds.
    pub jitter_ms: f64,
    /// Delay that queues on the path added to the last packet, above the least seen, milliseconds.
    pub queueing_ms: Option<f64>,
    /// Frames settled: complete, incomplete, and unseen.
    pub frames: u64,
    /// Frames of which every packet arrived.
    pub complete: u64,
    /// Frames of which some packets arrived.
    pub incomplete: u64,
    /// Frames of which no packet arrived, or that were never sent.
    pub unseen: Option<u64>,
    /// Complete frames that arrived by their deadline.
    pub on_time: Option<u64>,
    /// The same, as a share of the frames settled.
    pub on_time_share: Option<f64>,
    /// Frames on time whose references all were decodable.
    pub decodable: Option<u64>,
    /// The same, as a share of the frames settled.
    pub decodable_share: Option<f64>,
    /// Complete frames that arrived after their deadline.
    pub late: Option<u64>,
    /// Frames that have begun and are not settled.
    pub pending: u64,
    /// Packets that arrived for frames settled before.
    pub after_settled: u64,
    /// Datagrams that the receiving socket dropped because its buffer was full.
    pub socket_drops: u64,
}

#[cfg(test)]
mod tests;
