//! The sending end towards a receiver of RTP that is no node: numbers packets, measures the path from the receiver's
//! reports, retransmits what is requested and can still be in time, and reports itself.

use std::collections::VecDeque;

use selvedge_data_link::PathEstimate;
use selvedge_data_net_rate::{Estimator, Loss, RateParams, Report, State};
use selvedge_data_stream::rtp::{EXTENSION_LEN, HEADER_LEN, Packet, SEQUENCE_AT};
use selvedge_units::{Bitrate, Bytes, Duration, Instant, Share};

use crate::by_loss::ByLoss;
use crate::bytes::RtcpError;
use crate::congestion::{self, middle_of, span_of};
use crate::feedback::{Feedback, Reception, parse};
use crate::history::History;
use crate::transport::{self, TRANSPORT_OVERHEAD, numbered};
use crate::write::{self, SenderInfo};

/// So often the sender reports.
const EVERY: Duration = Duration::from_secs(1);
/// Retransmissions take at most this part of the rate, and at once what it makes in this time.
const REPAIR_PART: u64 = 4;
const REPAIR_BURST: Duration = Duration::from_millis(250);
/// Retransmissions that wait to be sent, at most.
const QUEUE_MAX: usize = 256;
/// After so long without a report the receiver counts as silent.
const SILENT: Duration = Duration::from_secs(10);
/// What late wake-ups miss of copies is sent afterwards, up to this.
const CATCH_UP: Duration = Duration::from_millis(5);
/// A queue that is longer is not lengthened by copies.
const QUEUED: Duration = Duration::from_millis(40);
/// After so long without a packet, since no frame fits, copies show whether the path carries more by now.
const UNUSED: Duration = Duration::from_secs(2);
/// A longer round trip is none: the report names another sender report.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(10);
/// What a retransmission is longer by than the packet: its payload begins with the lost packet's sequence number.
pub const REPAIR_OVERHEAD: Bytes = Bytes(2);

/// The payload type under which packets of this type are sent again.
#[must_use]
pub const fn retransmission_type(payload_type: u8) -> u8 {
    match payload_type {
        // Those below are assigned, and 127 is the last.
        96..127 => payload_type + 1,
        127 => 126,
        _ => 97,
    }
}

/// What a sender has to know.
#[derive(Clone, Debug)]
pub struct SenderParams {
    /// From a frame's arrival to its deadline.
    pub delay: Duration,
    /// The source of retransmissions.
    pub retransmissions: u32,
    /// The name of the sources, the same for those that belong together (RFC 7022).
    pub name: String,
    /// Bytes of headers below RTP.
    pub below: Bytes,
    /// Where the measured rate begins, and its limits.
    pub rate: RateParams,
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// To the receiver's port of RTP.
    Media(Vec<u8>),
    /// To its port of RTCP.
    Control(Vec<u8>),
}

/// What a sender knows of the path.
#[derive(Clone, Copy, Debug)]
pub struct SenderStatus {
    /// When the last report came, if one did.
    pub reported: Option<Instant>,
    /// The rate at which it is sent to.
    pub rate: Bitrate,
    /// From a packet to its report; zero if unknown.
    pub round_trip: Duration,
    /// How long packets wait in queues; zero if unknown.
    pub queueing: Duration,
    /// The share of packets that is lost.
    pub loss: Share,
    /// Bytes sent, all headers and retransmissions included.
    pub sent: Bytes,
}

/// The sending end of one stream. A packet costs O(its bytes), a report O(its packets); memory is bounded by 8192 packets
/// and 4 MiB.
#[derive(Clone, Debug)]
pub struct Sender {
    params: SenderParams,
    ssrc: Option<u32>,
    /// The next packet's number.
    number: u64,
    estimator: Estimator,
    /// Whether arrivals are reported, so that the estimator measures.
    is_measured: bool,
    /// Whether arrivals are reported by transport-wide numbers, so that copies count.
    is_numbered: bool,
    demand: Bitrate,
    /// When the stream's newest packet was sent.
    newest: Option<Instant>,
    /// When the path has taken what was sent, at the present rate.
    free_at: Instant,
    by_loss: ByLoss,
    sent: History,
    sent_again: History,
    next_again: u16,
    transport: transport::Unwrapped,
    congestion: congestion::Unwrapped,
    clock: Option<MediaClock>,
    queue: VecDeque<Vec<u8>>,
    room: Bytes,
    room_at: Instant,
    report_at: Option<Instant>,
    round_trip: Option<Duration>,
    reported: Option<Instant>,
    loss: Loss,
    packets: u32,
    octets: u32,
    all: Bytes,
    owed: Bytes,
    is_intra_requested: bool,
}

impl Sender {
    /// A sender that knows nothing of the path yet.
    #[must_use]
    pub fn new(now: Instant, params: SenderParams) -> Self {
        Self {
            ssrc: None,
            number: 1,
            estimator: Estimator::new(now, params.rate),
            is_measured: false,
            is_numbered: false,
            demand: Bitrate(0),
            newest: None,
            free_at: now,
            by_loss: ByLoss::new(now, params.rate),
            sent: History::default(),
            sent_again: History::default(),
            next_again: 0,
            transport: transport::Unwrapped::default(),
            congestion: congestion::Unwrapped::default(),
            clock: None,
            queue: VecDeque::new(),
            room: Bytes(0),
            room_at: now,
            report_at: None,
            round_trip: None,
            reported: None,
            loss: Loss::default(),
            packets: 0,
            octets: 0,
            all: Bytes(0),
            owed: Bytes(0),
            is_intra_requested: false,
            params,
        }
    }

    /// A packet of the stream leaves now; its frame is due at `deadline`. Returns what to send. `None`: it is no packet of
    /// RTP.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        deadline: Instant,
        packet: &[u8],
    ) -> Option<Vec<u8>> {
        let Packet { header, payload, .. } = Packet::parse(packet).ok()?;
        if self.ssrc.replace(header.ssrc) != Some(header.ssrc) {
            self.sent = History::default();
            self.report_at = Some(now);
        }
        let bytes = numbered(packet, self.number);
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(payload.len() as u32);
        if let Some(clock) = &mut self.clock {
            clock.handle_frame(deadline - self.params.delay, header.timestamp);
        }
        let number = self.count(now, bytes.len());
        self.sent.handle_sent(now, header.sequence, number, deadline, packet.into());
        self.newest = Some(now);
        Some(bytes)
    }

    /// Sets what would be sent if there were room: while the rate is to be found and is less than a quarter above it, copies
    /// of the newest packet fill the path, if the receiver reports them. Receivers leave copies out.
    pub const fn set_demand(&mut self, demand: Bitrate) {
        self.demand = demand;
    }

    /// When a copy may be sent, if it helps to find the rate.
    fn copy_at(&self) -> Option<Instant> {
        let sent = self.newest?;
        let is_low = self.rate().0 < self.demand.0 / 4 * 5;
        let is_queued = self.estimator.queueing() > QUEUED;
        let is_starting = self.estimator.state() == State::Starting;
        let from = if is_starting { self.free_at } else { self.free_at.max(sent + UNUSED) };
        (self.is_numbered && is_low && !is_queued).then_some(from)
    }

    /// Sets the ticks of the stream's time stamps in a second: without them it does not report itself.
    pub fn set_clock_rate(&mut self, clock_rate: u32) {
        if self.clock.is_none_or(|clock| clock.rate != clock_rate) && clock_rate > 0 {
            self.clock = Some(MediaClock { rate: clock_rate, shown: None });
        }
    }

    /// Counts a datagram that leaves now, and returns its number.
    fn count(&mut self, now: Instant, len: usize) -> u64 {
        let (number, size) = (self.number, self.params.below + Bytes(len as u64));
        self.number += 1;
        let counted = self.estimator.handle_sent(now, number, size);
        debug_assert!(counted.is_ok(), "{counted:?}");
        self.by_loss.handle_sent(size);
        self.all += size;
        self.free_at = self.free_at.max(now - CATCH_UP) + size / self.rate();
        number
    }

    /// A datagram came from the receiver.
    ///
    /// # Errors
    /// [`RtcpError`]; nothing changes then.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) -> Result<(), RtcpError> {
        for feedback in parse(bytes)? {
            match feedback {
                Feedback::Reception(seen) if Some(seen.ssrc) == self.ssrc => {
                    self.handle_reception(now, seen);
                }
                Feedback::Requested { ssrc, sequences } if Some(ssrc) == self.ssrc => {
                    sequences.iter().for_each(|sequence| self.retransmit(now, *sequence));
                }
                Feedback::IntraRequested { ssrc } if Some(ssrc) == self.ssrc => {
                    self.is_intra_requested = true;
                }
                Feedback::Transport(transport) => {
                    let report = self.transport.report(&transport, self.number);
                    self.is_numbered |= report.is_some();
                    self.handle_report(now, report);
                }
                Feedback::Congestion(congestion) => {
                    let (main, again) = (self.ssrc, self.params.retransmissions);
                    let number_of = |ssrc, sequence| match ssrc {
                        _ if Some(ssrc) == main => self.sent.number_of(sequence),
                        _ if ssrc == again => self.sent_again.number_of(sequence),
                        _ => None,
                    };
                    let report = self.congestion.report(&congestion, number_of);
                    self.handle_report(now, report);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn handle_report(&mut self, now: Instant, report: Option<Report>) {
        let Some(report) = report else { return };
        self.is_measured = true;
        self.loss.handle_packets(report.packets.iter().map(Option::is_some));
        self.estimator.handle_report(now, &report);
        self.reported = Some(now);
    }

    fn handle_reception(&mut self, now: Instant, seen: Reception) {
        if self.sent.number_of(seen.highest as u16).is_none() {
            return;
        }
        let took = middle_of(now).wrapping_sub(seen.last_report).wrapping_sub(seen.since_report);
        let took = Some(span_of(took.into())).filter(|took| *took < ROUND_TRIP_MAX);
        self.round_trip = took.filter(|_| seen.last_report != 0).or(self.round_trip);
        self.reported = Some(now);
        if !self.is_measured {
            self.loss = Loss::of_256(seen.lost);
            self.by_loss.handle_loss(now, seen.lost, self.round_trip);
        }
    }

    /// A packet is requested: it is sent again if that can be in time, within a part of the rate.
    fn retransmit(&mut self, now: Instant, sequence: u16) {
        let rate = Bitrate(self.rate().0 / REPAIR_PART);
        self.room = (self.room + rate * now.since(self.room_at)).min(rate * REPAIR_BURST);
        self.room_at = now;
        let round_trip = self.round_trip();
        if self.queue.len() == QUEUE_MAX {
            return;
        }
        let Some(kept) = self.sent.request(now, sequence, round_trip) else { return };
        let (deadline, len) = (kept.deadline, kept.packet.len());
        let added = TRANSPORT_OVERHEAD + REPAIR_OVERHEAD + self.params.below;
        let size = Bytes(len as u64) + added;
        if now + round_trip / 2 > deadline || size > self.room {
            return;
        }
        self.room = self.room - size;
        let mut bytes = numbered(&kept.packet, self.number);
        let extension = HEADER_LEN + EXTENSION_LEN + TRANSPORT_OVERHEAD.0 as usize;
        if bytes.len() == kept.packet.len() || bytes.len() < extension {
            return;
        }
        bytes.splice(extension..extension, sequence.to_be_bytes());
        bytes[1] = bytes[1] & 0x80 | retransmission_type(bytes[1] & 0x7f);
        bytes[SEQUENCE_AT..SEQUENCE_AT + 2].copy_from_slice(&self.next_again.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.params.retransmissions.to_be_bytes());
        let number = self.count(now, bytes.len());
        self.sent_again.handle_sent(now, self.next_again, number, deadline, Box::default());
        self.next_again = self.next_again.wrapping_add(1);
        self.owed += size;
        self.queue.push_back(bytes);
    }

    /// Lowers the rate where reports cease.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_measured {
            self.estimator.handle_timeout(now);
        }
    }

    /// The next datagram to send beside the packets of the stream.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if let Some(again) = self.queue.pop_front() {
            return Some(Transmit::Media(again));
        }
        if self.copy_at().is_some_and(|at| at <= now) {
            let copy = numbered(self.sent.newest()?, self.number);
            self.count(now, copy.len());
            return Some(Transmit::Media(copy));
        }
        let (ssrc, at) = (self.ssrc?, self.report_at?);
        let timestamp = self.clock?.timestamp(now)?;
        if at > now {
            return None;
        }
        self.report_at = Some(now + EVERY);
        let bytes = self.sender_report(now, ssrc, timestamp);
        let size = Bytes(bytes.len() as u64) + self.params.below;
        self.owed += size;
        self.all += size;
        Some(Transmit::Control(bytes))
    }

    fn sender_report(&self, now: Instant, ssrc: u32, timestamp: u32) -> Vec<u8> {
        let ntp = ((u128::from(now.0) << 32) / 1_000_000_000) as u64;
        let (packets, octets) = (self.packets, self.octets);
        SenderInfo { ssrc, ntp, timestamp, packets, octets }.report(&self.params.name)
    }

    /// The last datagram: the stream ends.
    #[must_use]
    pub fn goodbye(&self, now: Instant) -> Option<Vec<u8>> {
        let ssrc = self.ssrc?;
        let timestamp = self.clock?.timestamp(now)?;
        let mut bytes = self.sender_report(now, ssrc, timestamp);
        write::goodbye(&mut bytes, ssrc);
        Some(bytes)
    }

    /// When [`Self::handle_timeout`] and [`Self::poll_transmit`] should be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let estimator = self.estimator.poll_timeout().filter(|_| self.is_measured);
        let report =
            self.report_at.filter(|_| self.clock.is_some_and(|clock| clock.shown.is_some()));
        [report, estimator, self.copy_at()].into_iter().flatten().min()
    }

    /// The rate at which to send, and to expect.
    #[must_use]
    pub fn estimate(&self) -> PathEstimate {
        let rate = self.rate();
        let expected = if self.is_measured { self.estimator.expected() } else { rate };
        PathEstimate { rate, expected, reserve: Duration::ZERO }
    }

    fn rate(&self) -> Bitrate {
        if self.is_measured { self.estimator.rate() } else { self.by_loss.rate() }
    }

    fn round_trip(&self) -> Duration {
        if self.is_measured {
            return self.estimator.round_trip();
        }
        self.round_trip.unwrap_or_default()
    }

    /// The bytes that were sent beside the packets of the stream since this was called last.
    pub fn take_owed(&mut self) -> Bytes {
        std::mem::take(&mut self.owed)
    }

    /// Whether the receiver requested an intra picture since this was called last.
    pub fn take_intra_request(&mut self) -> bool {
        std::mem::take(&mut self.is_intra_requested)
    }

    /// Whether the receiver reports.
    #[must_use]
    pub fn is_reported(&self, now: Instant) -> bool {
        self.reported.is_some_and(|at| now.since(at) < SILENT)
    }

    /// What is known of the path.
    #[must_use]
    pub fn status(&self) -> SenderStatus {
        let queueing = if self.is_measured { self.estimator.queueing() } else { Duration::ZERO };
        SenderStatus {
            reported: self.reported,
            rate: self.rate(),
            round_trip: self.round_trip(),
            queueing,
            loss: self.loss.share(),
            sent: self.all,
        }
    }
}

/// Which time of the stream's clock belongs to which time of ours. Frames that are reordered, or late, arrive after the time
/// that their stamps say; those that arrive earliest show the difference.
#[derive(Clone, Copy, Debug)]
struct MediaClock {
    /// Ticks in a second.
    rate: u32,
    /// A frame's arrival and time stamp.
    shown: Option<(Instant, u32)>,
}

impl MediaClock {
    fn handle_frame(&mut self, arrived: Instant, timestamp: u32) {
        let is_later = |(before, stamp): (Instant, u32)| {
            let ticks = timestamp.wrapping_sub(stamp).cast_signed();
            let span = i64::from(ticks) * 1_000_000_000 / i64::from(self.rate);
            // It drifts back slowly, so that another clock's speed is followed.
            let drift = arrived.since(before).0 / 1_000;
            arrived.0 + drift >= before.0.saturating_add_signed(span)
        };
        if self.shown.is_none_or(is_later) {
            self.shown = Some((arrived, timestamp));
        }
    }

    fn timestamp(&self, now: Instant) -> Option<u32> {
        let (at, stamp) = self.shown?;
        let ticks = u128::from(now.since(at).0) * u128::from(self.rate) / 1_000_000_000;
        Some(stamp.wrapping_add(ticks as u32))
    }
}
