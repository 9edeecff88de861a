//! Reading quantities in text form: a decimal number, then a unit, which is required.

use core::fmt;
use core::str::FromStr;

use crate::{Bitrate, Bytes, Duration, Share};

/// Why a text is not a quantity. The texts state what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseUnitError {
    /// There is no number at the front.
    Number {
        /// A correct example.
        example: &'static str,
    },
    /// There is a number but nothing behind it.
    MissingUnit {
        /// A correct example.
        example: &'static str,
    },
    /// The unit does not belong to this quantity.
    UnknownUnit {
        /// The allowed units.
        units: &'static str,
    },
    /// The number does not fit, or is not a whole number of the smallest unit.
    Range {
        /// The smallest unit.
        smallest: &'static str,
    },
}

impl fmt::Display for ParseUnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { example } => write!(f, "not a number with a unit; write \"{example}\""),
            Self::MissingUnit { example } => {
                write!(f, "the unit is missing; write \"{example}\"")
            }
            Self::UnknownUnit { units } => write!(f, "unknown unit; use one of {units}"),
            Self::Range { smallest } => {
                write!(f, "out of range, or finer than one {smallest}")
            }
        }
    }
}

impl core::error::Error for ParseUnitError {}

struct Quantity {
    units: &'static [(&'static str, u64)],
    names: &'static str,
    example: &'static str,
    smallest: &'static str,
}

impl Quantity {
    /// The value in the smallest unit. Decimal fractions are exact: `1.5 ms` is 1,500,000 ns.
    fn parse(&self, text: &str) -> Result<u64, ParseUnitError> {
        let text = text.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = (&text[..split], text[split..].trim());
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let malformed = whole.is_empty() || fraction.contains('.') || number.ends_with('.');
        if malformed {
            return Err(ParseUnitError::Number { example: self.example });
        }
        if unit.is_empty() {
            return Err(ParseUnitError::MissingUnit { example: self.example });
        }
        let scale = self
            .units
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|&(_, scale)| scale)
            .ok_or(ParseUnitError::UnknownUnit { units: self.names })?;
        self.parse_scaled(whole, fraction, scale)
            .ok_or(ParseUnitError::Range { smallest: self.smallest })
    }

    fn parse_scaled(&self, whole: &str, fraction: &str, scale: u64) -> Option<u64> {
        let mut value = whole.parse::<u64>().ok()?.checked_mul(scale)?;
        let mut place = scale;
        for digit in fraction.bytes() {
            let digit = u64::from(digit - b'0');
            if !place.is_multiple_of(10) && digit != 0 {
                return None;
            }
            place /= 10;
            value = value.checked_add(place * digit)?;
        }
        Some(value)
    }
}

impl FromStr for Duration {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        const DURATION: Quantity = Quantity {
            units: &[
                ("ns", 1),
                ("us", 1_000),
                ("ms", 1_000_000),
                ("s", 1_000_000_000),
                ("min", 60_000_000_000),
            ],
            names: "ns, us, ms, s, min",
            example: "40 ms",
            smallest: "ns",
        };
        DURATION.parse(text).map(Self)
    }
}

impl FromStr for Bytes {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        const BYTES: Quantity = Quantity {
            units: &[
                ("B", 1),
                ("kB", 1_000),
                ("MB", 1_000_000),
                ("GB", 1_000_000_000),
                ("KiB", 1 << 10),
                ("MiB", 1 << 20),
                ("GiB", 1 << 30),
            ],
            names: "B, kB, MB, GB, KiB, MiB, GiB",
            example: "24 kB",
            smallest: "B",
        };
        BYTES.parse(text).map(Self)
    }
}

impl FromStr for Bitrate {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        const BITRATE: Quantity = Quantity {
            units: &[
                ("bit/s", 1),
                ("kbit/s", 1_000),
                ("Mbit/s", 1_000_000),
                ("Gbit/s", 1_000_000_000),
            ],
            names: "bit/s, kbit/s, Mbit/s, Gbit/s",
            example: "6 Mbit/s",
            smallest: "bit/s",
        };
        BITRATE.parse(text).map(Self)
    }
}

impl FromStr for Share {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        const SHARE: Quantity = Quantity {
            units: &[("%", 10_000_000), ("ppm", 1_000)],
            names: "%, ppm",
            example: "3 %",
            smallest: "billionth, or more than 100 %",
        };
        let billionths = u32::try_from(SHARE.parse(text)?).ok();
        let share = billionths.and_then(Self::from_billionths);
        share.ok_or(ParseUnitError::Range { smallest: SHARE.smallest })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn reads_what_people_write() {
        assert_eq!("40 ms".parse(), Ok(Duration::from_millis(40)));
        assert_eq!("1.5s".parse(), Ok(Duration::from_millis(1500)));
        assert_eq!("6 Mbit/s".parse(), Ok(Bitrate::from_mbps(6)));
        assert_eq!("0.7 Mbit/s".parse(), Ok(Bitrate::from_kbps(700)));
        assert_eq!("24 kB".parse(), Ok(Bytes(24_000)));
        assert_eq!("4 KiB".parse(), Ok(Bytes(4096)));
        assert_eq!("2.5 %".parse::<Share>().map(Share::billionths), Ok(25_000_000));
        assert_eq!("40 ppm".parse::<Share>().map(Share::billionths), Ok(40_000));
    }

    #[test]
    fn says_what_is_wrong() {
        let say = |text: &str| text.parse::<Duration>().unwrap_err().to_string();
        assert_eq!(say("40"), "the unit is missing; write \"40 ms\"");
        assert_eq!(say("fast"), "not a number with a unit; write \"40 ms\"");
        assert_eq!(say(""), "not a number with a unit; write \"40 ms\"");
        assert_eq!(say("4 fortnights"), "unknown unit; use one of ns, us, ms, s, min");
        assert_eq!(say("0.5 ns"), "out of range, or finer than one ns");
        assert_eq!(say("99999999999999999999 s"), "out of range, or finer than one ns");
        assert_eq!(say("-1 s"), "not a number with a unit; write \"40 ms\"");
        let say_share = |text: &str| text.parse::<Share>().unwrap_err().to_string();
        let range = "out of range, or finer than one billionth, or more than 100 %";
        assert_eq!(say_share("101 %"), range);
        assert_eq!(say_share("900 %"), range);
        assert_eq!(say_share("3"), "the unit is missing; write \"3 %\"");
        assert_eq!(say("1.2.3 s"), "not a number with a unit; write \"40 ms\"");
    }

    #[test]
    fn prints_what_it_reads() {
        for text in ["40 ms", "1500 us", "7 ns", "2 s"] {
            assert_eq!(text.parse::<Duration>().unwrap().to_string(), text);
        }
        for text in ["6 Mbit/s", "938 kbit/s", "1 Gbit/s", "17 bit/s"] {
            assert_eq!(text.parse::<Bitrate>().unwrap().to_string(), text);
        }
        for text in ["3 %", "0.25 %", "100 %", "0 %", "0.0000001 %"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bytes_rate_and_duration_agree() {
        assert_eq!(Bytes(1250) / Bitrate::from_mbps(1), Duration::from_millis(10));
        assert_eq!(Bytes(1) / Bitrate(3), Duration(2_666_666_667));
        assert_eq!(Bitrate::from_mbps(8) * Duration::from_secs(1), Bytes(1_000_000));
        assert_eq!(Bytes(1_000_000) / Duration::from_secs(1), Bitrate::from_mbps(8));
        assert_eq!(Bytes(1) / Bitrate(0), Duration(u64::MAX));
        assert_eq!(Bytes(1) / Duration::ZERO, Bitrate(0));
    }

    #[test]
    fn large_quantities_are_exact_too() {
        let rate = Bitrate(1_000_000_000_000);
        // On both sides of the limit of 64 bits: a byte takes 8 ps, rounded up.
        for size in [2_305_843_009, 2_305_843_010, 4_000_000_000_000] {
            assert_eq!(Bytes(size) / rate, Duration((size * 8).div_ceil(1000)));
        }
        for span in [18_446_744, 18_446_745, 1_000_000_000_000_000] {
            assert_eq!(rate * Duration(span), Bytes(span * 125));
        }
        assert_eq!(Bytes(u64::MAX) / Bitrate(1), Duration(u64::MAX));
        assert_eq!(Bitrate(u64::MAX) * Duration(u64::MAX), Bytes(u64::MAX));
    }
}
