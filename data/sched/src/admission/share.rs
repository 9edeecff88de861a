//! Exact shares of a link: fractions that add up without rounding, or that state how far they may be off.
//!
//! Every term of a sum is a fraction of 128-bit integers. The sum is kept twice: as one reduced fraction
//! while that fits into 128 bits, and as a lower bound in units of 2^-96 with the number of terms that were
//! rounded down. So a comparison with 1 is never wrong: it is exact, or decided by the bounds, or undecided.
//! Only sums within 2^-64 of 1 can be undecided.

use core::cmp::Ordering;
use core::fmt;

/// A fraction in its lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ratio {
    /// The numerator.
    pub num: u128,
    /// The denominator, not 0.
    pub den: u128,
}

impl Ratio {
    fn reduced(num: u128, den: u128) -> Self {
        let divisor = gcd(num, den);
        Self { num: num / divisor, den: den / divisor }
    }

    fn checked_add(self, other: Self) -> Option<Self> {
        if self.den == other.den {
            return Some(Self::reduced(self.num.checked_add(other.num)?, self.den));
        }
        let divisor = gcd(self.den, other.den);
        let (ours, theirs) = (other.den / divisor, self.den / divisor);
        let num = self.num.checked_mul(ours)?.checked_add(other.num.checked_mul(theirs)?)?;
        Some(Self::reduced(num, self.den.checked_mul(ours)?))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.num, self.den)
    }
}

/// Greatest common divisor, 1 if both are 0.
pub(super) fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        // Division of 64 bits is many times faster, and most terms are short.
        if let (Ok(short_a), Ok(short_b)) = (u64::try_from(a), u64::try_from(b)) {
            let (mut a, mut b) = (short_a, short_b);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            return u128::from(a);
        }
        (a, b) = (b, a % b);
    }
    a.max(1)
}

const ONE: u128 = 1 << 96;

/// A sum of fractions, such as the share of a link that some streams need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    exact: Option<Ratio>,
    /// In units of 2^-96, rounded down; saturated means at least 2^32.
    floor: u128,
    /// The number of roundings, each by less than 2^-96.
    rounded: u64,
}

impl Share {
    /// Nothing.
    pub const ZERO: Self = Self { exact: Some(Ratio { num: 0, den: 1 }), floor: 0, rounded: 0 };

    /// `num / den`; `den` must be 1 to 2^127.
    pub(super) fn new(num: u128, den: u128) -> Self {
        debug_assert!(den > 0 && den <= 1 << 127);
        let mut floor = num / den;
        let mut rest = num % den;
        let mut left = 96_u32;
        if floor >= 1 << 32 {
            return Self { exact: Some(Ratio::reduced(num, den)), floor: u128::MAX, rounded: 1 };
        }
        while left > 0 {
            let step = rest.leading_zeros().min(left);
            rest <<= step;
            floor = (floor << step) | (rest / den);
            rest %= den;
            left -= step;
        }
        Self { exact: Some(Ratio::reduced(num, den)), floor, rounded: u64::from(rest != 0) }
    }

    /// The sum of both. O(128) steps of Euclid's algorithm.
    pub(super) fn plus(self, other: Self) -> Self {
        let sum = self.exact.zip(other.exact).and_then(|(a, b)| a.checked_add(b));
        Self {
            exact: sum,
            floor: self.floor.saturating_add(other.floor),
            rounded: self.rounded.saturating_add(other.rounded),
        }
    }

    /// The excess over 1; nothing if the sum is not more.
    pub(super) fn beyond_one(self) -> Self {
        let beyond = |r: Ratio| Ratio { num: r.num.saturating_sub(r.den), den: r.den };
        Self {
            exact: self.exact.map(beyond),
            floor: if self.floor == u128::MAX { u128::MAX } else { self.floor.saturating_sub(ONE) },
            rounded: self.rounded,
        }
    }

    /// How the sum compares with 1, never wrongly; `None` if 128 bits do not decide it.
    #[must_use]
    pub fn compare_to_one(&self) -> Option<Ordering> {
        if let Some(Ratio { num, den }) = self.exact {
            return Some(num.cmp(&den));
        }
        if self.floor > ONE {
            Some(Ordering::Greater)
        } else if self.floor.saturating_add(u128::from(self.rounded)) < ONE {
            Some(Ordering::Less)
        } else {
            None
        }
    }

    /// The sum as one fraction, if 128 bits hold it.
    #[must_use]
    pub const fn exact(&self) -> Option<Ratio> {
        self.exact
    }

    /// In hundredths of a per cent, rounded down to within 2^-64; saturates at 2^32 times the whole.
    #[must_use]
    pub const fn basis_points(&self) -> u64 {
        // At least the sum, so that a whole number of hundredths shows as one.
        let ceiling = self.floor.saturating_add(self.rounded as u128);
        let (whole, part) = (ceiling >> 96, ceiling % ONE);
        (whole * 10_000 + ((part * 10_000) >> 96)) as u64
    }
}

impl fmt::Display for Share {
    /// `21/20 (105.00 %)`; without the fraction where it is unknown or longer than 12 digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = self.basis_points();
        let (whole, hundredths) = (points / 100, points % 100);
        match self.exact {
            Some(ratio) if ratio.den < 1_000_000 && ratio.num < 1_000_000 => {
                write!(f, "{ratio} ({whole}.{hundredths:02} %)")
            }
            _ => write!(f, "{whole}.{hundredths:02} %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn a_full_sum_is_exactly_one() {
        let third = Share::new(1, 3);
        let sum = third.plus(third).plus(third);
        assert_eq!(sum.compare_to_one(), Some(Ordering::Equal));
        assert_eq!(
            sum.plus(Share::new(1, u128::from(u64::MAX))).compare_to_one(),
            Some(Ordering::Greater)
        );
        assert_eq!(Share::new(21, 20).to_string(), "21/20 (105.00 %)");
        assert_eq!(Share::new(21, 20).beyond_one().to_string(), "1/20 (5.00 %)");
    }

    /// A sum of prime denominators soon leaves 128 bits; the bounds still decide.
    #[test]
    fn sums_beyond_128_bits_are_decided_by_their_bounds_or_not_at_all() {
        let prime = |n: &u128| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
        let primes = (10_000..).filter(prime).take(40);
        let sum = primes.fold(Share::ZERO, |sum, p| sum.plus(Share::new(p / 50, p)));
        assert_eq!(sum.exact(), None);
        assert_eq!(sum.compare_to_one(), Some(Ordering::Less));
        let over = sum.plus(Share::new(1, 4));
        assert_eq!(over.compare_to_one(), Some(Ordering::Greater));
        let lost = Share { exact: None, ..Share::new(1, 1) };
        assert_eq!(lost.compare_to_one(), None);
    }

    proptest! {
        #[test]
        fn both_forms_agree(terms in prop::collection::vec((0..1_000_u128, 1..1_000_u128), 1..12)) {
            let sum = terms.iter().fold(Share::ZERO, |sum, &(n, d)| sum.plus(Share::new(n, d)));
            if let Some(Ratio { num, den }) = sum.exact() {
                let Share { floor, rounded, .. } = Share::new(num, den);
                prop_assert!(sum.floor <= floor && floor <= sum.floor + u128::from(sum.rounded + rounded));
                let blind = Share { exact: None, ..sum };
                if let Some(decided) = blind.compare_to_one() {
                    prop_assert_eq!(Some(decided), sum.compare_to_one());
                }
                if den < 1 << 90 {
                    prop_assert_eq!(u128::from(sum.basis_points().abs_diff((num * 10_000 / den) as u64)) <= 1, true);
                }
            }
        }
    }
}
