//! Parts of a processor's time, in billionths.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, Sub};
use core::str::FromStr;

use selvedge_units::Duration;

/// A part of a resource's time in billionths: 0 is nothing, 1,000,000,000 is all of it, and more is
/// an overload. Quotients are rounded up, so a load never looks smaller than it is; each is off by
/// less than a billionth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Load(pub u64);

const WHOLE: u64 = 1_000_000_000;

impl Load {
    /// No load.
    pub const ZERO: Self = Self(0);
    /// All of the time.
    pub const WHOLE: Self = Self(WHOLE);

    /// A load in hundredths.
    #[must_use]
    pub const fn percent(n: u64) -> Self {
        Self(n.saturating_mul(WHOLE / 100))
    }

    /// The load of work of this length that comes once in `every`. Work that comes all the time
    /// (`every` zero) exceeds any resource.
    #[must_use]
    pub fn of(work: Duration, every: Duration) -> Self {
        match (work.0, every.0) {
            (0, _) => Self::ZERO,
            (_, 0) => Self(u64::MAX),
            (work, every) => {
                let parts = (u128::from(work) * u128::from(WHOLE)).div_ceil(u128::from(every));
                Self(u64::try_from(parts).unwrap_or(u64::MAX))
            }
        }
    }

    /// The time that work of this length takes on a processor that gives it this part of its time,
    /// rounded up; for ever if the part is zero.
    #[must_use]
    pub fn scale_time(self, work: Duration) -> Duration {
        match (work.0, self.0) {
            (0, _) => Duration::ZERO,
            (_, 0) => Duration(u64::MAX),
            (work, WHOLE) => Duration(work),
            (work, part) => {
                let nanos = (u128::from(work) * u128::from(WHOLE)).div_ceil(u128::from(part));
                Duration(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        }
    }

    /// The load `used` as a part of the load `self`, rounded up.
    #[must_use]
    pub fn stretch_load(self, used: Self) -> Self {
        Self(self.scale_time(Duration(used.0)).0)
    }
}

/// A text that is no part of a processor's time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no share of a processor; write 2 % to 95 %, such as \"60 %\"")]
pub struct ShareError(String);

impl FromStr for Load {
    type Err = ShareError;

    /// A share that can be reserved: whole hundredths, 2 % to 95 %. The kernel keeps the rest for other threads, and
    /// reserves no less than 1.024 us of a period, which is 100 us.
    fn from_str(text: &str) -> Result<Self, ShareError> {
        let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok());
        let share = number.filter(|percent| (2..=95).contains(percent)).map(Self::percent);
        share.ok_or_else(|| ShareError(text.chars().take(40).collect()))
    }
}

impl Add for Load {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Load {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Load {
    fn sum<I: Iterator<Item = Self>>(loads: I) -> Self {
        loads.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 as f64 / (WHOLE / 100) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_round_up_and_saturate() {
        assert_eq!(Load::of(Duration(1), Duration(3)), Load(333_333_334));
        assert_eq!(Load::of(Duration(5), Duration::ZERO), Load(u64::MAX));
        assert_eq!(Load::of(Duration::ZERO, Duration::ZERO), Load::ZERO);
        assert_eq!(Load::percent(50).scale_time(Duration(7)), Duration(14));
        assert_eq!(Load(3).scale_time(Duration(1)), Duration(333_333_334));
        assert_eq!(Load::ZERO.scale_time(Duration(1)), Duration(u64::MAX));
        assert_eq!(Load(u64::MAX) + Load(1), Load(u64::MAX));
        assert_eq!(Load::percent(12).to_string(), "12.0 %");
    }
}
