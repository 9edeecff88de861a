//! What a packet's own bytes add to its delay: on a slow link that is more than the queue that is looked for.
//!
//! The least delays of small and of large packets differ by it. No byte takes longer than at the rate that the path carries.

use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::base_delay::{BaseDelay, Delay};

/// Packets up to the first size are small, from the second on large.
const SMALL: Bytes = Bytes(500);
const LARGE: Bytes = Bytes(1_000);
/// Another time of a byte counts if a thousand bytes take longer or shorter by this.
const OTHER: Duration = Duration::from_millis(2);

/// The delays of small and of large packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serialization {
    small: Class,
    large: Class,
    /// What a byte takes.
    byte: Duration,
}

#[derive(Clone, Debug, Default)]
struct Class {
    least: BaseDelay,
    /// The mean size of late.
    size: Bytes,
}

impl Serialization {
    /// Takes the delay of a packet, and what the path carries at least. Where a byte takes other than before, returns what
    /// the packet with the least delay was thought to take, and what it takes.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        size: Bytes,
        delay: Delay,
        carried: Bitrate,
    ) -> Option<[Duration; 2]> {
        let class = match size {
            size if size <= SMALL => &mut self.small,
            size if size >= LARGE => &mut self.large,
            _ => return None,
        };
        class.least.handle_delay(now, delay, false);
        let mean = if class.size == Bytes(0) { size } else { class.size };
        class.size = Bytes((mean.0 * 15 + size.0) / 16);
        let both = self.small.least.least().zip(self.large.least.least());
        let (small, large) = both?;
        let more = self.large.size.0.saturating_sub(self.small.size.0).max(1);
        let byte = (large.since(small) / more).min(Bytes(1) / carried.max(Bitrate(1)));
        if byte.0.abs_diff(self.byte.0) * LARGE.0 <= OTHER.0 {
            return None;
        }
        // With too little for each byte a small packet had the least delay, with too much a large one.
        let class = if byte > self.byte { &self.small } else { &self.large };
        let before = std::mem::replace(&mut self.byte, byte);
        Some([before, byte].map(|byte| Duration(byte.0.saturating_mul(class.size.0))))
    }

    /// The delay of a packet without what its bytes took.
    pub(crate) const fn without(&self, size: Bytes, delay: Delay) -> Delay {
        delay.less(Duration(self.byte.0.saturating_mul(size.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_packets_take_longer_by_their_bytes() {
        let mut serialization = Serialization::default();
        let carried = Bitrate::from_kbps(700);
        // 800 kbit/s: a byte takes 10 us.
        let mut take = |size: u64, waits: u64| {
            let sent = Instant::ZERO + Duration::from_secs(1);
            let delay =
                Delay::between(sent, sent + Duration::from_micros(20_000 + size * 10 + waits));
            serialization.handle_packet(sent, Bytes(size), delay, carried);
            let without = serialization.without(Bytes(size), delay);
            without.since(Delay::between(sent, sent)).0 / 1_000
        };
        assert_eq!([take(1_200, 0), take(600, 0)], [32_000, 26_000]);
        assert_eq!([take(100, 0), take(1_200, 3_000), take(600, 5_000)], [20_000, 23_000, 25_000]);
        // No more than at 700 kbit/s, whatever waited.
        let (mut serialization, at) = (Serialization::default(), Instant::ZERO);
        for (size, took) in [(100, 0), (1_100, 90)] {
            let delay = Delay::between(at, at + Duration::from_millis(took));
            serialization.handle_packet(at, Bytes(size), delay, carried);
        }
        assert_eq!(serialization.byte, Bytes(1) / carried);
    }
}
