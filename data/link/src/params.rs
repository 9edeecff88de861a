//! What a link is told to be when it is made, and what is reckoned from that once. It comes from the
//! node file (`config`) and goes to all parts of the link.

use selvedge_data_sched::Discipline;
use selvedge_units::{Bitrate, Bytes, Duration};

use super::pace::Pacer;

/// What a link is to be.
#[derive(Clone, Copy, Debug)]
pub struct LinkParams {
    /// The order of service.
    pub discipline: Discipline,
    /// Whether to drop early what can't be decoded or be on time.
    pub selection: bool,
    /// Bits per second on the wire.
    pub rate: Bitrate,
    /// What may be sent at once.
    pub burst: Bytes,
    /// The largest packet.
    pub mtu: Bytes,
    /// The most bytes that may wait; a frame beyond it is dropped on arrival.
    pub queue: Option<Bytes>,
}

impl LinkParams {
    /// Whether more than one packet may go at once.
    pub(crate) fn bursts(&self) -> bool {
        self.burst >= self.mtu + self.mtu
    }
}

/// What follows from the rate and the largest packet, reckoned once.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateDerived {
    /// How long before its deadline a frame should be finished: a packet's time and the jitter
    /// of the caller's wake-ups.
    pub(super) guard: Duration,
    /// How long before its bucket is full the link is free for a full packet.
    pub(super) slack: Duration,
}

impl RateDerived {
    pub(super) fn new(pacer: &Pacer, mtu: Bytes) -> Self {
        Self { guard: pacer.time(mtu) + Duration::from_millis(2), slack: pacer.slack(mtu) }
    }
}
