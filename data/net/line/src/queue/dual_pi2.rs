//! DualPI2: two queues for one link. One is kept very short, for flows that back off little at each mark; the
//! other is for all others, and the same controller drives both (De Schepper, Briscoe and White, RFC 9332,
//! the pseudo-code of appendix A with its handling of overload).
//!
//! Probabilities are integers of 2^-48 ([`ONE`] is certainty). An update of the controller rounds once, so
//! after `n` of them it is off by at most `n` 2^-48. As in the RFC no random number is drawn: a queue adds
//! each packet's probability to a sum, and marks or drops one when the sum exceeds 1.
//!
//! The RFC leaves three things to the implementer. The scheduler is weighted round robin by bytes, which it
//! recommends. A queuing time is the time that the packet in question has waited. The base probability stays
//! between 0 and 1, and the coupled one is at most 1.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use selvedge_units::{Bytes, Duration, Instant};

use super::{Dropped, Limit, Queue};
use crate::packet::{Drop, Ecn, Packet, Waiting};

/// What DualPI2 is set to. What is outside its range counts as the nearest value inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualPi2Params {
    /// How long a packet of the classic queue should wait; 1 ms to 10 s. RFC 9332: `target`.
    pub target: Duration,
    /// The longest round-trip time to be expected; 3 ms to 10 s. `RTT_max`.
    pub rtt_max: Duration,
    /// The coupling factor, 1 to 1000: a low-latency packet is marked with so many times the base
    /// probability, a classic one with its square. `k`.
    pub coupling: u32,
    /// Low-latency packets that have waited longer than this are marked, the more the longer. `minTh`.
    pub ramp_from: Duration,
    /// Those that have waited so much longer still are all marked; zero: there is a step. `range`.
    pub ramp: Duration,
    /// A packet is not marked for its own wait unless more than so many stay behind it. `Th_len`.
    pub unmarked: u32,
    /// While both queues wait, the classic one has one byte of so many that are sent; 1 to 65536.
    pub classic_one_in: u32,
    /// The most that waits in both together.
    pub limit: Limit,
}

impl Default for DualPi2Params {
    /// The RFC's: 15 ms, 100 ms, 2, 800 us, 400 us, 1 packet, one byte of 16. The limit is the Linux
    /// kernel's, 10,000 packets.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            rtt_max: Duration::from_millis(100),
            coupling: 2,
            ramp_from: Duration::from_micros(800),
            ramp: Duration::from_micros(400),
            unmarked: 1,
            classic_one_in: 16,
            limit: Limit::packets(10_000),
        }
    }
}

/// Certainty.
const ONE: u64 = 1 << 48;
/// A packet that has waited longer counts as one that has waited 18 minutes.
const WAIT_MAX: u64 = 1 << 40;
/// A packet counts as at most so many bytes in the turns of the queues.
const SIZE_MAX: u64 = 1 << 40;
/// After a pause, so many updates are made up for, far more than any probability needs to come to rest.
const UPDATES_MAX: u64 = 4_096;

/// One of the two queues.
#[derive(Debug)]
struct Half<P> {
    packets: VecDeque<Waiting<P>>,
    /// The sum of the probabilities, less 1 for each mark or drop.
    sum: u64,
}

impl<P> Half<P> {
    const fn new() -> Self {
        Self { packets: VecDeque::new(), sum: 0 }
    }

    /// How long the first packet has waited.
    fn wait(&self, now: Instant) -> u64 {
        self.packets.front().map_or(0, |first| now.since(first.since).0.min(WAIT_MAX))
    }

    /// Whether it is this packet's turn, if it is every packet's with this probability.
    const fn is_due(&mut self, probability: u64) -> bool {
        self.sum += probability;
        let is_due = self.sum > ONE;
        if is_due {
            self.sum -= ONE;
        }
        is_due
    }
}

/// Both queues, and the controller of the probabilities.
#[derive(Debug)]
pub(super) struct DualPi2<P> {
    params: DualPi2Params,
    low_latency: Half<P>,
    classic: Half<P>,
    backlog: Bytes,
    /// What the classic queue may send while both wait, in bytes times its weight: above 0 it is its turn.
    credit: i64,
    /// The base probability: the controller's output.
    base: u64,
    /// The longer wait of both queues at the last update.
    wait: u64,
    updated: Instant,
    /// From an update to the next.
    period: Duration,
}

impl<P> DualPi2<P> {
    pub(super) fn new(mut params: DualPi2Params) -> Self {
        let within = |duration: Duration, least: u64| {
            Duration(duration.0.clamp(Duration::from_millis(least).0, Duration::from_secs(10).0))
        };
        params.target = within(params.target, 1);
        params.rtt_max = within(params.rtt_max, 3);
        params.coupling = params.coupling.clamp(1, 1_000);
        params.classic_one_in = params.classic_one_in.clamp(1, 1 << 16);
        Self {
            low_latency: Half::new(),
            classic: Half::new(),
            backlog: Bytes(0),
            credit: 0,
            base: 0,
            wait: 0,
            updated: Instant::ZERO,
            period: params.target.min(params.rtt_max / 3),
            params,
        }
    }

    /// Makes the updates that are due. Nothing came or went since the last call.
    fn update_until(&mut self, now: Instant) {
        let due = now.since(self.updated).0 / self.period.0;
        let skipped = due.saturating_sub(UPDATES_MAX);
        self.updated += self.period * skipped;
        for _ in skipped..due {
            self.updated += self.period;
            self.update();
        }
    }

    /// The PI controller. With `T` the period and `R` the longest round-trip time, its gains are
    /// `0.1 T / R^2` of the distance from the target and `0.3 / R` of the change since the last update.
    fn update(&mut self) {
        let wait = self.low_latency.wait(self.updated).max(self.classic.wait(self.updated));
        let [rtt, period, target] =
            [self.params.rtt_max, self.period, self.params.target].map(|it| i128::from(it.0));
        let [wait_now, wait_before] = [wait, self.wait].map(i128::from);
        // Below 2^126: times to 2^34 ns, waits to 2^40.
        let change = period * (wait_now - target) + 3 * rtt * (wait_now - wait_before);
        let change = i128::from(ONE) * change / (10 * rtt * rtt);
        self.base = (i128::from(self.base) + change).clamp(0, i128::from(ONE)) as u64;
        self.wait = wait;
    }

    /// The probability of a classic packet.
    const fn squared(&self) -> u64 {
        ((self.base as u128 * self.base as u128) >> ONE.ilog2()) as u64
    }

    /// The probability of a low-latency packet by the coupling.
    fn coupled(&self) -> u64 {
        (self.base * u64::from(self.params.coupling)).min(ONE)
    }

    /// The probability of a low-latency packet by its own wait.
    fn ramp(&self, wait: Duration) -> u64 {
        let DualPi2Params { ramp_from, ramp, unmarked, .. } = self.params;
        if self.low_latency.packets.len() <= unmarked as usize {
            0
        } else if wait >= ramp_from + ramp {
            ONE
        } else {
            let above = u128::from((wait - ramp_from).0);
            (u128::from(ONE) * above).checked_div(ramp.0.into()).unwrap_or(0) as u64
        }
    }

    /// What becomes of a low-latency packet that is taken out. Where the coupled probability is certainty,
    /// marks say nothing more, so packets are dropped as those of the classic queue are.
    fn low_latency_fate(&mut self, wait: Duration) -> Fate {
        let coupled = self.coupled();
        if coupled == ONE && self.low_latency.is_due(self.squared()) {
            return Fate::Dropped;
        }
        let probability = if coupled == ONE { ONE } else { coupled.max(self.ramp(wait)) };
        if self.low_latency.is_due(probability) { Fate::Marked } else { Fate::Sent }
    }

    /// What becomes of a classic packet that is taken out. Where the coupled probability is certainty, packets
    /// are dropped even if they could be marked.
    fn classic_fate(&mut self, ecn: Ecn) -> Fate {
        let squared = self.squared();
        let overload = ONE / u64::from(self.params.coupling).pow(2);
        if !self.classic.is_due(squared) {
            Fate::Sent
        } else if ecn == Ecn::NotCapable || squared >= overload {
            Fate::Dropped
        } else {
            Fate::Marked
        }
    }

    /// A packet is sent. The turns are counted only while both queues wait.
    fn charge(&mut self, is_low_latency: bool, size: Bytes) {
        let other = if is_low_latency { &self.classic } else { &self.low_latency };
        if !other.packets.is_empty() {
            let bytes = size.0.min(SIZE_MAX).cast_signed();
            let weight = if is_low_latency { 1 } else { 1 - i64::from(self.params.classic_one_in) };
            self.credit += bytes * weight;
        }
    }
}

/// What becomes of a packet that is taken out.
enum Fate {
    Sent,
    Marked,
    Dropped,
}

impl<P: std::fmt::Debug + Send> Queue<P> for DualPi2<P> {
    fn enqueue(&mut self, now: Instant, packet: Packet<P>, dropped: &mut Dropped<P>) {
        self.update_until(now);
        let limit = self.params.limit;
        let backlog = self.backlog + packet.size;
        if backlog > limit.bytes || self.packets() >= limit.packets as usize {
            dropped.push_back((packet, Drop::Full));
            return;
        }
        self.backlog = backlog;
        let half = match packet.ecn {
            Ecn::LowLatency | Ecn::Marked => &mut self.low_latency,
            Ecn::NotCapable | Ecn::Capable => &mut self.classic,
        };
        half.packets.push_back(Waiting { since: now, packet });
    }

    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped<P>) -> Option<Packet<P>> {
        self.update_until(now);
        loop {
            let [low_latency_waits, classic_waits] =
                [&self.low_latency, &self.classic].map(|half| !half.packets.is_empty());
            let is_low_latency = low_latency_waits && (self.credit <= 0 || !classic_waits);
            let half = if is_low_latency { &mut self.low_latency } else { &mut self.classic };
            let Waiting { since, mut packet } = half.packets.pop_front()?;
            self.backlog = self.backlog - packet.size;
            let fate = if is_low_latency {
                self.low_latency_fate(now.since(since))
            } else {
                self.classic_fate(packet.ecn)
            };
            match fate {
                Fate::Sent => {}
                Fate::Marked => packet.ecn = Ecn::Marked,
                Fate::Dropped => {
                    dropped.push_back((packet, Drop::Congestion));
                    continue;
                }
            }
            self.charge(is_low_latency, packet.size);
            return Some(packet);
        }
    }

    fn backlog(&self) -> Bytes {
        self.backlog
    }

    fn packets(&self) -> usize {
        self.low_latency.packets.len() + self.classic.packets.len()
    }
}
