//! Noise: packets at a rate while on, nothing while off, for times that are exponentially distributed.

use selvedge_data_net_line::{Packet, Random};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::endpoint::Endpoint;
use crate::packet::{Datagram, FlowId, Payload};

/// The unit of the table.
const ONE: u128 = 65_536;
/// `-ln(1 - n / 128)` for n from 0 to 64: the quantiles of the exponential distribution up to its median.
const EXPONENTIAL: [u64; 65] = [
    0, 514, 1032, 1554, 2081, 2611, 3146, 3686, 4230, 4778, 5331, 5889, 6451, 7019, 7591, 8169,
    8751, 9339, 9932, 10530, 11135, 11744, 12360, 12981, 13608, 14241, 14880, 15526, 16178, 16837,
    17502, 18174, 18854, 19540, 20233, 20934, 21643, 22359, 23083, 23815, 24556, 25305, 26063,
    26829, 27605, 28390, 29184, 29988, 30802, 31627, 32461, 33307, 34164, 35032, 35911, 36803,
    37707, 38624, 39553, 40496, 41453, 42424, 43409, 44410, 45426,
];

/// A time of this mean. Beyond the median the distribution begins anew (it has no memory): one half of all
/// times are a median longer than the table's, a quarter two, and so on.
fn exponential(mean: Duration, random: &mut Random) -> Duration {
    let bits = random.bits();
    let medians = u64::from((bits >> 16).trailing_zeros().min(48));
    let (n, between) = ((bits & 63) as usize, bits >> 6 & 1_023);
    let [below, above] = [EXPONENTIAL[n], EXPONENTIAL[n + 1]];
    let parts = medians * EXPONENTIAL[64] + below + (above - below) * between / 1_024;
    let time = u128::from(mean.0) * u128::from(parts) / ONE;
    Duration(u64::try_from(time).unwrap_or(u64::MAX))
}

/// A source of noise.
#[derive(Clone, Debug)]
pub struct OnOff {
    flow: FlowId,
    size: Bytes,
    /// From packet to packet while on.
    interval: Duration,
    /// The mean times.
    on: Duration,
    off: Duration,
    random: Random,
    is_on: bool,
    /// When it changes next.
    change: Instant,
    /// When it would send next while on; while off, as if it were on from `change`.
    packet: Instant,
    is_due: bool,
}

impl OnOff {
    /// Sends packets of `size` at `rate` while on; it is on first, from `start`. `on` and `off` are means.
    /// The random numbers are of [`Network::random`](crate::Network::random).
    #[must_use]
    pub fn new(
        flow: FlowId,
        start: Instant,
        rate: Bitrate,
        size: Bytes,
        [on, off]: [Duration; 2],
        random: Random,
    ) -> Self {
        let interval = size / rate;
        let packet = start + interval;
        Self {
            flow,
            size,
            interval,
            on,
            off,
            random,
            is_on: false,
            change: start,
            packet,
            is_due: false,
        }
    }
}

impl Endpoint for OnOff {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet<Datagram>) {}

    fn handle_timeout(&mut self, now: Instant) {
        if self.is_on && self.packet <= now && self.packet <= self.change {
            self.is_due = true;
            self.packet += self.interval;
        } else if self.change <= now {
            self.is_on = !self.is_on;
            let mean = if self.is_on { self.on } else { self.off };
            let lasts = exponential(mean, &mut self.random);
            self.change += lasts;
            if !self.is_on {
                self.packet += lasts;
            }
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        let packet = Datagram::packet(self.flow, self.size, Payload::Filler);
        std::mem::take(&mut self.is_due).then_some(packet)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(if self.is_on { self.packet.min(self.change) } else { self.change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exponentially_distributed() {
        let mut random = Random::named(4, "times");
        let mean = Duration::from_millis(1_000);
        let times: Vec<_> = (0..100_000).map(|_| exponential(mean, &mut random)).collect();
        let of_all = times.iter().map(|time| time.0 / 100_000).sum::<u64>();
        // The standard error is 1/316; e^-1 and e^-3 of all are longer than one and three means.
        assert!(of_all.abs_diff(mean.0) < 10_000_000, "{of_all}");
        let longer = |times_mean| times.iter().filter(|time| **time > mean * times_mean).count();
        assert!(
            longer(1).abs_diff(36_788) < 460 && longer(3).abs_diff(4_979) < 210,
            "{}",
            longer(1)
        );
        assert_eq!(exponential(Duration::ZERO, &mut random), Duration::ZERO);
    }
}
