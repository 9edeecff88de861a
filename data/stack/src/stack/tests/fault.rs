//! A link with the faults of networks, and worse ones, for tests. Virtual time, a seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use selvedge_units::{Duration, Instant};

/// The rates of faults, each in parts per thousand of the datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Datagrams that never arrive.
    pub(super) loss: u16,
    /// Datagrams that arrive twice.
    pub(super) duplicate: u16,
    /// Datagrams that arrive later than some that were sent later.
    pub(super) reorder: u16,
    /// Datagrams that arrive with a few bits changed.
    pub(super) corrupt: u16,
    /// Datagrams that arrive without their end.
    pub(super) truncate: u16,
    /// Datagrams that arrive with extra bytes: the length that they state is wrong.
    pub(super) extend: u16,
    /// Datagrams that arrive again much later.
    pub(super) replay: u16,
    /// The latency of the link.
    pub(super) delay: Duration,
}

/// A link in one direction.
#[derive(Debug)]
pub(super) struct FaultyLink {
    faults: Faults,
    random: u64,
    sent: u64,
    /// Datagrams in flight: arrival time, order, bytes.
    in_flight: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    delivered: Vec<Vec<u8>>,
}

/// Datagrams kept for replays.
const KEPT: usize = 64;

impl FaultyLink {
    /// A link; the same seed and datagrams give the same faults.
    #[must_use]
    pub(super) const fn new(faults: Faults, seed: u64) -> Self {
        Self { faults, random: seed, sent: 0, in_flight: BinaryHeap::new(), delivered: Vec::new() }
    }

    fn random(&mut self) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn happens(&mut self, per_thousand: u16) -> bool {
        self.random() % 1000 < u64::from(per_thousand)
    }

    /// Sends a datagram.
    pub(super) fn send(&mut self, datagram: &[u8], now: Instant) {
        let faults = self.faults;
        if self.happens(faults.loss) {
            return;
        }
        let mut bytes = datagram.to_vec();
        if self.happens(faults.replay) && !self.delivered.is_empty() {
            let n = self.random() as usize % self.delivered.len();
            let old = self.delivered[n].clone();
            self.deliver_at(old, now + faults.delay);
        }
        if self.delivered.len() < KEPT {
            self.delivered.push(bytes.clone());
        } else {
            let n = self.random() as usize % KEPT;
            self.delivered[n].clone_from(&bytes);
        }
        if self.happens(faults.corrupt) && !bytes.is_empty() {
            for _ in 0..=self.random() % 3 {
                let n = self.random() as usize % bytes.len();
                bytes[n] ^= 1 << (self.random() % 8);
            }
        }
        if self.happens(faults.truncate) {
            let len = self.random() as usize % (bytes.len() + 1);
            bytes.truncate(len);
        }
        if self.happens(faults.extend) {
            let more = self.random() as usize % 64;
            bytes.extend((0..more).map(|n| n as u8));
        }
        let late = if self.happens(faults.reorder) { self.random() % 8 } else { 0 };
        let arrival = now + faults.delay + Duration(late * faults.delay.0.max(100_000) / 2);
        if self.happens(faults.duplicate) {
            self.deliver_at(bytes.clone(), arrival + Duration(1));
        }
        self.deliver_at(bytes, arrival);
    }

    fn deliver_at(&mut self, bytes: Vec<u8>, arrival: Instant) {
        self.in_flight.push(Reverse((arrival, self.sent, bytes)));
        self.sent += 1;
    }

    /// When the next datagram arrives.
    #[must_use]
    pub(super) fn next(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse((arrival, ..))| *arrival)
    }

    /// A datagram that has arrived by now.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        self.in_flight.pop().map(|Reverse((.., bytes))| bytes)
    }
}
