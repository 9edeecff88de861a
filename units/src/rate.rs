//! Sizes and rates of data.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

use crate::Duration;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bitrate(pub u64);

/// A part of a whole, in billionths: probabilities and losses, without floating point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The whole.
    pub const ONE: Self = Self(1_000_000_000);

    /// `n` billionths; `None` beyond the whole.
    #[must_use]
    pub const fn from_billionths(n: u32) -> Option<Self> {
        if n <= Self::ONE.0 { Some(Self(n)) } else { None }
    }

    /// So many billionths.
    #[must_use]
    pub const fn billionths(self) -> u32 {
        self.0
    }
}

const NANOS_PER_SEC: u128 = 1_000_000_000;

fn clamp(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

impl Bitrate {
    /// `n` kilobits (1000 bits) per second.
    #[must_use]
    pub const fn from_kbps(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// `n` megabits (1,000,000 bits) per second.
    #[must_use]
    pub const fn from_mbps(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }
}

impl Div<Bitrate> for Bytes {
    type Output = Duration;
    /// The time that these bytes take at this rate, rounded up; a rate of zero takes for ever.
    fn div(self, rate: Bitrate) -> Duration {
        // 64 bits hold it up to 2.3 GB, and divide many times faster than 128.
        match (self.0.checked_mul(8 * NANOS_PER_SEC as u64), rate.0) {
            (_, 0) => Duration(u64::MAX),
            (Some(bit_nanos), bps) => Duration(bit_nanos.div_ceil(bps)),
            (None, bps) => {
                let bit_nanos = u128::from(self.0) * 8 * NANOS_PER_SEC;
                Duration(clamp(bit_nanos.div_ceil(u128::from(bps))))
            }
        }
    }
}

impl Div<Duration> for Bytes {
    type Output = Bitrate;
    /// The mean rate of these bytes over a duration, rounded down; over a zero duration it is zero.
    fn div(self, span: Duration) -> Bitrate {
        match u128::from(span.0) {
            0 => Bitrate(0),
            ns => Bitrate(clamp(u128::from(self.0) * 8 * NANOS_PER_SEC / ns)),
        }
    }
}

impl Mul<Duration> for Bitrate {
    type Output = Bytes;
    /// The bytes that a link of this rate carries in a duration, rounded down.
    fn mul(self, span: Duration) -> Bytes {
        match self.0.checked_mul(span.0) {
            Some(bit_nanos) => Bytes(bit_nanos / (8 * NANOS_PER_SEC as u64)),
            None => Bytes(clamp(u128::from(self.0) * u128::from(span.0) / 8 / NANOS_PER_SEC)),
        }
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self(0), Add::add)
    }
}

impl fmt::Display for Bytes {
    /// In the form that `FromStr` reads: `24 kB`, `1500 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n > 0 && n % 1_000_000 == 0 => write!(f, "{} MB", n / 1_000_000),
            n if n > 0 && n % 1_000 == 0 => write!(f, "{} kB", n / 1_000),
            n => write!(f, "{n} B"),
        }
    }
}

impl fmt::Display for Bitrate {
    /// In the form that `FromStr` reads: `6 Mbit/s`, `938 kbit/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n > 0 && n % 1_000_000_000 == 0 => write!(f, "{} Gbit/s", n / 1_000_000_000),
            n if n > 0 && n % 1_000_000 == 0 => write!(f, "{} Mbit/s", n / 1_000_000),
            n if n > 0 && n % 1_000 == 0 => write!(f, "{} kbit/s", n / 1_000),
            n => write!(f, "{n} bit/s"),
        }
    }
}

impl fmt::Display for Share {
    /// In the form that `FromStr` reads: `3 %`, `0.25 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, mut fraction, mut places) = (self.0 / 10_000_000, self.0 % 10_000_000, 7);
        if fraction == 0 {
            return write!(f, "{whole} %");
        }
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            places -= 1;
        }
        write!(f, "{whole}.{fraction:0places$} %")
    }
}
