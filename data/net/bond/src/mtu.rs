//! The largest packet that a path carries, where larger ones are dropped and no report names the reason.

use selvedge_units::{Bytes, Duration, Instant};

/// So many lost packets in a row, each larger than any that came meanwhile, are too large for the path.
const LOST: u32 = 8;
/// So many have to come meanwhile.
const ARRIVED: u32 = 3;
/// So often a larger packet is tried.
const AGAIN: Duration = Duration::from_secs(10);

/// What is known of the largest packet. Each packet costs O(1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mtu {
    /// Nothing larger arrives.
    most: Option<Bytes>,
    again: Instant,
    /// Lost packets since one arrived that was as large as the smallest of them.
    lost: u32,
    least_lost: Bytes,
    /// Those that arrived meanwhile, and the largest of them.
    arrived: u32,
    largest: Bytes,
}

impl Mtu {
    pub(crate) fn handle_arrived(&mut self, size: Bytes) {
        if self.most.is_some_and(|most| size > most) {
            self.most = None;
        }
        if self.lost > 0 && size < self.least_lost {
            self.arrived += 1;
            self.largest = self.largest.max(size);
        } else {
            self.lost = 0;
        }
    }

    pub(crate) fn handle_lost(&mut self, now: Instant, size: Bytes) {
        if self.most.is_some_and(|most| size > most) {
            return;
        }
        if self.lost == 0 {
            (self.least_lost, self.arrived, self.largest) = (size, 0, Bytes(0));
        }
        self.least_lost = self.least_lost.min(size);
        self.lost += 1;
        if self.lost >= LOST && self.arrived >= ARRIVED && self.largest < self.least_lost {
            (self.most, self.again, self.lost) = (Some(self.largest), now + AGAIN, 0);
        }
    }

    /// Nothing larger arrives.
    pub(crate) const fn most(&self) -> Option<Bytes> {
        self.most
    }

    /// Whether a larger packet is tried now.
    pub(crate) fn tries(&mut self, now: Instant) -> bool {
        let is_due = self.most.is_some() && self.again <= now;
        if is_due {
            self.again = now + AGAIN;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_packets_that_vanish_are_noticed_and_tried_again() {
        let mut mtu = Mtu::default();
        let now = Instant::ZERO;
        for _ in 0..LOST {
            assert_eq!(mtu.most(), None);
            mtu.handle_lost(now, Bytes(1_200));
            mtu.handle_arrived(Bytes(900));
        }
        mtu.handle_lost(now, Bytes(1_100));
        assert_eq!(mtu.most(), Some(Bytes(900)));
        let tries = [0, 10, 11, 20].map(|s| mtu.tries(now + Duration::from_secs(s)));
        assert_eq!(tries, [false, true, false, true]);
        mtu.handle_arrived(Bytes(1_200));
        assert_eq!((mtu.most(), mtu.tries(now + AGAIN * 9)), (None, false));
    }

    #[test]
    fn loss_of_any_size_is_no_limit() {
        let mut mtu = Mtu::default();
        for _ in 0..100 {
            (0..20).for_each(|_| mtu.handle_lost(Instant::ZERO, Bytes(1_200)));
            mtu.handle_lost(Instant::ZERO, Bytes(300));
            (0..5).for_each(|_| mtu.handle_arrived(Bytes(400)));
        }
        assert_eq!(mtu.most(), None);
    }
}
