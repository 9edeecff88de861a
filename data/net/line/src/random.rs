//! Random numbers under a seed. Each use has a stream of its own, by its name, so that a new use changes
//! no other's numbers.
//!
//! The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", 2014): one addition and a mix of 64 bits a number.

use selvedge_units::Share;

/// A stream of random numbers. The same seed and name give the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

impl Random {
    /// The stream of this name under a seed.
    #[must_use]
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { state: mix(seed.wrapping_add(mix(hash))) }
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// A number below `end`, which is not 0; each as often as any other, to 2^-64 of its share.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Whether what happens with this probability happens now. Takes no number where it is certain, so
    /// that a model that is switched off changes nothing.
    #[inline]
    pub fn happens(&mut self, probability: Share) -> bool {
        match probability {
            Share::ZERO => false,
            Share::ONE => true,
            some => self.below(Share::ONE.billionths().into()) < some.billionths().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        // The first three of seed 1234567, as Vigna's reference splitmix64.c gives them.
        let mut random = Random { state: 1_234_567 };
        let numbers = [(); 3].map(|()| random.bits());
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn a_name_is_a_stream_of_its_own() {
        let first = |seed, name| Random::named(seed, name).bits();
        assert_eq!(first(7, "uplink loss"), first(7, "uplink loss"));
        assert_ne!(first(7, "uplink loss"), first(7, "uplink delay"));
        assert_ne!(first(7, "uplink loss"), first(8, "uplink loss"));
    }

    #[test]
    fn an_event_happens_as_often_as_its_probability_has_it() {
        let mut random = Random::named(1, "test");
        let often = |share: u32, random: &mut Random| {
            let share = Share::from_billionths(share).expect("a share");
            (0..100_000).filter(|_| random.happens(share)).count()
        };
        // Four standard deviations about the mean.
        assert!((2_790..=3_220).contains(&often(30_000_000, &mut random)));
        assert_eq!(often(0, &mut random), 0);
        assert_eq!(often(1_000_000_000, &mut random), 100_000);
    }
}
