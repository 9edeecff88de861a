//! The receiving end of one stream: the meter of `play`, from the packets' bytes alone.

use selvedge_control_config::network::ClockJump;
use selvedge_data_net_line::Packet;
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_stream::{References, rtp};
use selvedge_units::{Duration, Instant};

use super::ReceivedFrames;
use super::life::{Life, LifeEvent};
use crate::endpoint::Endpoint;
use crate::packet::{Datagram, FlowId, Payload};
use crate::results::Flow;

/// After this long without a packet the meter settles what can't come in time any more, as when `play` stops; the
/// last frames are so settled before the run's end.
const IDLE: Duration = Duration::from_secs(1);

/// A packet of a frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketArrival {
    /// When.
    pub at: Instant,
    /// The number of the frame.
    pub frame: u32,
    /// Its own: no other packet of the frame has it.
    pub packet: u16,
}

/// Measures one stream.
#[derive(Debug)]
pub struct Receiver {
    flow: FlowId,
    meter: StreamMeter,
    /// When the meter is asked to settle, if no packet comes before.
    due: Option<Instant>,
    /// The frame whose verdict is recorded, what it refers to, and what of that cannot be decoded.
    watched: Option<Box<(Life, References, Vec<u32>)>>,
    /// While it is killed it takes nothing; afterwards it is a new one.
    gone: Option<[Instant; 2]>,
    clock: Option<(Instant, ClockJump)>,
    /// All that arrived, if that is recorded.
    arrivals: Option<Vec<PacketArrival>>,
}

impl Receiver {
    /// A receiver of this flow's packets.
    #[must_use]
    pub fn new(flow: FlowId) -> Self {
        Self {
            flow,
            meter: StreamMeter::new(ClockRate::VIDEO),
            due: None,
            watched: None,
            gone: None,
            clock: None,
            arrivals: None,
        }
    }

    /// Records each packet from now on.
    pub fn record(&mut self) {
        self.arrivals.get_or_insert_default();
    }

    /// The packets that were recorded.
    #[must_use]
    pub fn arrivals(&self) -> &[PacketArrival] {
        self.arrivals.as_deref().unwrap_or_default()
    }

    /// Kills it at this time; so much later it works again, and begins to measure anew.
    pub fn kill(&mut self, at: Instant, lasts: Duration) {
        self.gone = Some([at, at + lasts]);
    }

    /// Makes the clock that stamps arriving packets jump at this time.
    pub const fn jump(&mut self, at: Instant, by: ClockJump) {
        self.clock = Some((at, by));
    }

    /// What its clock shows.
    fn shown(&self, now: Instant) -> Instant {
        match self.clock {
            Some((at, ClockJump { by, is_back: true })) if at <= now => now - by,
            Some((at, ClockJump { by, is_back: false })) if at <= now => now + by,
            _ => now,
        }
    }

    /// Whether it is killed; the first time after that, another one is in its place.
    fn is_gone(&mut self, now: Instant) -> bool {
        let Some([at, back]) = self.gone.filter(|[at, _]| *at <= now) else { return false };
        if back <= now {
            (self.meter, self.gone) = (StreamMeter::new(ClockRate::VIDEO), None);
        }
        at <= now && now < back
    }

    /// Records the verdict on a frame that refers to these, from now on, in place of another's.
    pub fn watch(&mut self, seq: u32, refs: References) {
        self.watched = Some(Box::new((Life::new(self.flow, seq), refs, Vec::new())));
    }

    /// The verdict on the frame that is watched.
    #[must_use]
    pub fn life(&self) -> Option<&Life> {
        self.watched.as_ref().map(|watched| &watched.0)
    }

    fn judge(&mut self, now: Instant) {
        let Some((life, refs, missing)) = self.watched.as_deref_mut() else { return };
        while let Some((seq, decodable)) = self.meter.poll_settled() {
            if seq == life.seq {
                life.record(now, LifeEvent::Judged(decodable, std::mem::take(missing)));
            } else if !decodable && refs.of(life.seq).any(|needed| needed == seq) {
                missing.push(seq);
            }
        }
    }
}

impl Endpoint for Receiver {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        let Payload::Bytes(bytes) = &packet.payload.payload else { return };
        if self.is_gone(now) {
            return;
        }
        if let Some(arrivals) = &mut self.arrivals
            && let Ok(rtp::Packet { tag: Some(tag), header, .. }) = rtp::Packet::parse(bytes)
        {
            arrivals.push(PacketArrival { at: now, frame: tag.seq, packet: header.sequence });
        }
        self.meter.handle_packet(self.shown(now), bytes);
        self.due = Some(now + IDLE);
        self.judge(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.meter.stop(self.shown(now));
        self.due = (self.meter.snapshot().pending > 0).then(|| now + IDLE);
        self.judge(now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn report(&self, flows: &mut [Flow]) {
        let Some(flow) = flows.get_mut(self.flow.0 as usize) else { return };
        let seen = self.meter.snapshot();
        flow.frames.get_or_insert_default().received = ReceivedFrames {
            on_time: seen.on_time.unwrap_or(0),
            late: seen.late.unwrap_or(0),
            lost: seen.incomplete + seen.unseen.unwrap_or(0),
            decodable: seen.decodable.unwrap_or(0),
            pending: seen.pending,
        };
    }
}
