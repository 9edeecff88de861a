//! How late threads wake up, as it was recorded, and noise that is the same in each run.

use selvedge_units::Duration;

/// How late a thread wakes up, in microseconds, each value not exceeded by the given number of a thousand
/// wake-ups: recorded on a virtual machine of two cores.
pub(crate) type Lateness = [(u64, u64); 5];
pub(crate) const QUIET: Lateness = [(100, 48), (500, 78), (900, 145), (990, 694), (1000, 15_000)];
/// The same beside two endless loops, from sleeps of some milliseconds.
pub(crate) const LOADED: Lateness =
    [(100, 60), (500, 127), (900, 1_400), (990, 4_900), (1000, 29_000)];
/// The same from sleeps of 0.1 ms and less: a thread that slept so briefly seldom has to wait.
pub(crate) const LOADED_SHORT: Lateness =
    [(100, 13), (500, 16), (900, 27), (990, 548), (1000, 16_800)];

/// Repeatable noise (SplitMix64).
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }

    pub(crate) fn late(&mut self, lateness: &Lateness) -> Duration {
        let share = self.below(1000);
        let mut from = (0, 0);
        for &(upto, late) in lateness {
            if share < upto {
                let part = (late - from.1) * 1000 * (share - from.0) / (upto - from.0);
                return Duration(from.1 * 1000 + part);
            }
            from = (upto, late);
        }
        Duration::ZERO
    }
}
