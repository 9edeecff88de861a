//! The parameters that a link is made with, and the values derived from them once. They come from
//! the node file (`config`) and go to all parts of the link.

use std::collections::BTreeMap;

use selvedge_data_sched::Discipline;
use selvedge_units::{Bitrate, Bytes, Duration};

use super::pace::Pacer;

/// The parameters of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkParams {
    /// The order of service.
    pub discipline: Discipline,
    /// Whether to drop early the frames that can't be decoded or be on time.
    pub selection: bool,
    /// Bits per second on the wire.
    pub rate: Bitrate,
    /// The bytes that may be sent at once.
    pub burst: Bytes,
    /// The most bytes missed by late wake-ups while frames waited that are sent afterwards; `None`:
    /// as [`default_catch_up`] computes.
    pub catch_up: Option<Bytes>,
    /// The largest packet.
    pub mtu: Bytes,
    /// The most bytes that may wait; a frame beyond it is dropped on arrival.
    pub queue: Option<Bytes>,
}

/// What is known of the path behind a link whose rate is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathEstimate {
    /// The rate at which to send.
    pub rate: Bitrate,
    /// The rate to expect soon, at least `rate`: frames that it carries in time are kept.
    pub expected: Bitrate,
    /// How long before its deadline a frame that states one has to leave.
    pub reserve: Duration,
}

impl PathEstimate {
    /// Whether the difference is worth no other selection: a 64th of a rate, or a millisecond.
    #[must_use]
    pub fn is_near(&self, other: &Self) -> bool {
        let rates = [(self.rate, other.rate), (self.expected, other.expected)];
        rates.iter().all(|(one, other)| one.0.abs_diff(other.0) <= other.0 / 64)
            && self.reserve.0.abs_diff(other.reserve.0) <= Duration::from_millis(1).0
    }
}

impl LinkParams {
    /// Whether more than one packet may go at once.
    pub(crate) fn bursts(&self) -> bool {
        self.burst >= self.mtu + self.mtu
    }
}

/// The default of the catch-up: the larger of two packets and 20 ms of the rate, but at most a
/// tenth of the shortest delay that a stream is allowed, if any has one. A path behind the link
/// queues that much more, so it must be little beside the time that streams may wait.
#[must_use]
pub fn default_catch_up(rate: Bitrate, mtu: Bytes, shortest: Option<Duration>) -> Bytes {
    let most = (mtu + mtu).max(rate * Duration::from_millis(20));
    shortest.map_or(most, |delay| most.min(rate * Duration(delay.0 / 10)))
}

/// For each delay, the number of streams that have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Delays(BTreeMap<Duration, usize>);

impl Delays {
    pub(super) fn add(&mut self, delay: Option<Duration>) {
        if let Some(delay) = delay {
            *self.0.entry(delay).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, delay: Option<Duration>) {
        let Some(delay) = delay else { return };
        if let Some(streams) = self.0.get_mut(&delay) {
            *streams -= 1;
            if *streams == 0 {
                self.0.remove(&delay);
            }
        }
    }

    pub(super) fn shortest(&self) -> Option<Duration> {
        self.0.first_key_value().map(|(delay, _)| *delay)
    }
}

/// Values derived from the rate and the largest packet, computed once.
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
