//! Extended RTP sequence numbers (RFC 3550 appendix A.1), missing packets among them (A.3), and interarrival
//! jitter (section 6.4.1, appendix A.8).

use selvedge_units::Instant;

use super::ClockRate;

/// A step forward larger than this is not accepted at once (RFC 3550 A.1, `MAX_DROPOUT`).
const DROPOUT_MAX: u16 = 3000;
/// How far back packets are distinguished from duplicates; also the farthest accepted step back.
const WINDOW: u16 = 1024;
const CYCLE: u64 = 1 << 16;

/// The classification of a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// A packet not seen before, with its extended number.
    New(u64),
    /// The first packet of a new numbering, independent of the previous one.
    Restarted(u64),
    /// A packet seen before.
    Duplicate,
    /// A number far from all others. Accepted if the next packet continues from it.
    Stray,
}

/// Follows the numbers of one source. Constant memory.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// Whether a packet has arrived yet.
    begun: bool,
    /// The first number of this numbering, and the highest.
    base: u64,
    highest: u64,
    /// Distinct packets of this numbering.
    received: u64,
    /// Missing packets of earlier numberings.
    lost_before: u64,
    reordered: u64,
    /// The number that would confirm a stray one.
    confirms: Option<u16>,
    /// Which of the last numbers were received, by number modulo the window.
    seen: [u64; WINDOW as usize / 64],
}

impl Default for Sequence {
    fn default() -> Self {
        Self {
            begun: false,
            base: 0,
            highest: 0,
            received: 0,
            lost_before: 0,
            reordered: 0,
            confirms: None,
            seen: [0; WINDOW as usize / 64],
        }
    }
}

impl Sequence {
    /// Takes a packet's number. O(step), at most 3000.
    pub(super) fn handle(&mut self, number: u16) -> Arrival {
        if !self.begun {
            // One cycle up, so that numbers just before the first one have a place too.
            self.begin(CYCLE + u64::from(number));
            return Arrival::New(self.highest);
        }
        let forward = number.wrapping_sub(self.highest as u16);
        let backward = forward.wrapping_neg();
        if (1..=DROPOUT_MAX).contains(&forward) {
            let highest = self.highest + u64::from(forward);
            for passed in self.highest + 1..highest {
                self.mark(passed, false);
            }
            self.highest = highest;
            self.take(highest)
        } else if backward < WINDOW {
            let number = self.highest - u64::from(backward);
            if number >= self.base && self.is_marked(number) {
                return Arrival::Duplicate;
            }
            self.base = self.base.min(number);
            self.reordered += 1;
            self.take(number)
        } else if self.confirms == Some(number) {
            self.restart();
            self.begin((self.highest / CYCLE + 2) * CYCLE + u64::from(number));
            Arrival::Restarted(self.highest)
        } else {
            self.confirms = Some(number.wrapping_add(1));
            Arrival::Stray
        }
    }

    /// Forgets the numbering but not its losses.
    pub(super) fn restart(&mut self) {
        self.lost_before = self.lost();
        self.begun = false;
        self.received = 0;
    }

    /// Numbers that were never received, counted between the first and the highest received.
    pub(super) const fn lost(&self) -> u64 {
        let expected = if self.begun { self.highest - self.base + 1 } else { 0 };
        self.lost_before + expected.saturating_sub(self.received)
    }

    /// Packets that arrived after one with a higher number.
    pub(super) const fn reordered(&self) -> u64 {
        self.reordered
    }

    fn begin(&mut self, number: u64) {
        self.begun = true;
        self.base = number;
        self.highest = number;
        self.seen = [0; WINDOW as usize / 64];
        self.received = 0;
        self.take(number);
    }

    fn take(&mut self, number: u64) -> Arrival {
        self.mark(number, true);
        self.received += 1;
        self.confirms = None;
        Arrival::New(number)
    }

    fn mark(&mut self, number: u64, seen: bool) {
        let bit = number % u64::from(WINDOW);
        let word = &mut self.seen[bit as usize / 64];
        *word = *word & !(1 << (bit % 64)) | u64::from(seen) << (bit % 64);
    }

    const fn is_marked(&self, number: u64) -> bool {
        let bit = number % WINDOW as u64;
        self.seen[bit as usize / 64] >> (bit % 64) & 1 == 1
    }
}

/// Interarrival jitter, smoothed as in RFC 3550, in units of the clock rate.
#[derive(Clone, Debug, Default)]
pub(super) struct Jitter {
    /// Arrival minus timestamp of the previous packet, in units of the clock rate, wrapping.
    transit: Option<u32>,
    /// Sixteen times the estimate (A.8).
    scaled: u64,
}

impl Jitter {
    pub(super) fn handle(&mut self, now: Instant, timestamp: u32, rate: ClockRate) {
        let transit = rate.units(now).wrapping_sub(timestamp);
        if let Some(before) = self.transit.replace(transit) {
            let difference = u64::from(transit.wrapping_sub(before).cast_signed().unsigned_abs());
            self.scaled = self.scaled + difference - ((self.scaled + 8) >> 4);
        }
    }

    /// Forgets the last packet: the next one belongs to another clock.
    pub(super) const fn restart(&mut self) {
        self.transit = None;
    }

    /// The estimate, in units of the clock rate.
    pub(super) const fn estimate(&self) -> u64 {
        self.scaled >> 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(sequence: &mut Sequence, numbers: impl IntoIterator<Item = u16>) -> Vec<Arrival> {
        numbers.into_iter().map(|number| sequence.handle(number)).collect()
    }

    #[test]
    fn counts_through_the_wrap() {
        let mut sequence = Sequence::default();
        let arrivals = feed(&mut sequence, [65_534, 65_535, 0, 2]);
        let first = CYCLE + 65_534;
        assert_eq!(arrivals, [0, 1, 2, 4].map(|step| Arrival::New(first + step)));
        assert_eq!((sequence.lost(), sequence.reordered()), (1, 0));
    }

    #[test]
    fn a_late_packet_is_not_lost_and_a_repeated_one_not_received_twice() {
        let mut sequence = Sequence::default();
        let arrivals = feed(&mut sequence, [10, 12, 11, 11, 9, 9]);
        assert_eq!(arrivals[2], Arrival::New(CYCLE + 11));
        assert_eq!(arrivals[3], Arrival::Duplicate);
        assert_eq!(arrivals[4], Arrival::New(CYCLE + 9));
        assert_eq!(arrivals[5], Arrival::Duplicate);
        assert_eq!((sequence.lost(), sequence.reordered()), (0, 2));
    }

    #[test]
    fn a_wild_number_is_believed_only_when_the_next_carries_on() {
        let mut sequence = Sequence::default();
        feed(&mut sequence, 0..10);
        assert_eq!(
            feed(&mut sequence, [40_000, 10, 40_001]),
            [Arrival::Stray, Arrival::New(CYCLE + 10), Arrival::Stray]
        );
        assert_eq!(feed(&mut sequence, [40_002]), [Arrival::Restarted(3 * CYCLE + 40_002)]);
        assert_eq!(feed(&mut sequence, [40_004]), [Arrival::New(3 * CYCLE + 40_004)]);
        assert_eq!(sequence.lost(), 1);
    }

    #[test]
    fn jitter_follows_the_rfc() {
        let rate = ClockRate::new(8000).unwrap();
        let mut jitter = Jitter::default();
        // 160 units per packet; the second comes 10 ms (80 units) late, the third on time again.
        for (at_ms, timestamp) in [(0, 0), (30, 160), (40, 320)] {
            jitter.handle(Instant(at_ms * 1_000_000), timestamp, rate);
        }
        // J = 0 + 80/16 = 5; then 5 + (80 - 5)/16 = 9.69 (A.8 rounds to 155/16).
        assert_eq!((jitter.scaled, jitter.estimate()), (155, 9));
    }

    proptest! {
        /// Against a set of all numbers ever taken, for numbers that wander within the window.
        #[test]
        fn agrees_with_a_set(steps in proptest::collection::vec(-400_i32..1000, 1..400)) {
            let mut sequence = Sequence::default();
            let mut seen = std::collections::BTreeSet::new();
            let mut number = 1 << 20;
            for step in steps {
                let highest = seen.last().copied().unwrap_or(number);
                number = (number + step).clamp(highest - 1000, highest + 2999);
                let fresh = seen.insert(number);
                let arrival = sequence.handle(number as u16);
                prop_assert_eq!(matches!(arrival, Arrival::New(_)), fresh);
                prop_assert!(fresh || arrival == Arrival::Duplicate);
            }
            let span = seen.last().unwrap() - seen.first().unwrap() + 1;
            prop_assert_eq!(sequence.lost(), span as u64 - seen.len() as u64);
        }

        #[test]
        fn survives_any_numbers(numbers in proptest::collection::vec(any::<u16>(), 0..300)) {
            let mut sequence = Sequence::default();
            let taken = feed(&mut sequence, numbers);
            let fresh = taken.iter().filter(|a| matches!(a, Arrival::New(_))).count();
            prop_assert!(sequence.received <= fresh as u64 + 1);
            prop_assert!(sequence.lost() <= taken.len() as u64 * u64::from(DROPOUT_MAX));
        }
    }
}
