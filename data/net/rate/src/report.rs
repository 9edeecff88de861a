//! What the receiving end reports, and its bytes.
//!
//! ```text
//! first packet's number: 8 bytes | base time: 8 bytes, us | count: 2 bytes | for each packet 2 bytes
//! ```
//!
//! All numbers are big-endian. A packet's word is 0 if it is missing; else bit 15 is set, bit 14 if it was
//! marked, and the others count units of 50 us from the base time to its arrival.

use selvedge_units::{Duration, Instant};

/// Packets of a report, at most: it fits into a datagram of 1280 bytes.
pub(crate) const PACKETS_MAX: usize = 600;
const HEAD: usize = 18;
const ARRIVED: u16 = 1 << 15;
const MARKED: u16 = 1 << 14;
const UNIT: Duration = Duration::from_micros(50);

/// When a packet arrived, by the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time, to 50 us.
    pub at: Instant,
    /// Whether a router marked it for congestion (ECN).
    pub is_marked: bool,
}

/// What became of successive packets; the last of them arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The number of the first packet.
    pub first: u64,
    /// The packets from the first on; `None`: it is missing.
    pub packets: Vec<Option<Arrival>>,
}

/// Why bytes are no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// There are more or fewer bytes than its head says.
    #[error("{0} bytes are no report of {1} packets")]
    Length(usize, usize),
    /// It is of no packet, or of too many.
    #[error("a report is of 1 to {PACKETS_MAX} packets, not of {0}")]
    Count(usize),
    /// Numbers end at 2^64 - 1.
    #[error("no {1} packets follow packet {0}")]
    Number(u64, usize),
    /// Times end at 2^64 - 1 ns.
    #[error("the time {0} us is out of range")]
    Time(u64),
}

impl Report {
    /// Its bytes: at most 1218. A packet that arrived 0.8 s or more after the first counts as one after 0.8 s.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let times = self.packets.iter().flatten().map(|arrival| arrival.at);
        let base = times.min().unwrap_or_default().0 / 1_000;
        let mut bytes = Vec::with_capacity(HEAD + 2 * self.packets.len());
        bytes.extend(self.first.to_be_bytes());
        bytes.extend(base.to_be_bytes());
        bytes.extend((self.packets.len() as u16).to_be_bytes());
        for packet in &self.packets {
            let word = packet.map_or(0, |Arrival { at, is_marked }| {
                let units = at.since(Instant(base * 1_000)).0 / UNIT.0;
                let mark = if is_marked { MARKED } else { 0 };
                ARRIVED | mark | units.min(u64::from(MARKED - 1)) as u16
            });
            bytes.extend(word.to_be_bytes());
        }
        bytes
    }

    /// Reads a report. O(its packets).
    ///
    /// # Errors
    /// [`ReportError`]; nothing is believed of such bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReportError> {
        let Some((head, words)) = bytes.split_first_chunk::<HEAD>() else {
            return Err(ReportError::Length(bytes.len(), 0));
        };
        let number = |at: usize| head[at..at + 8].iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let (first, base) = (number(0), number(8));
        let count = usize::from(u16::from_be_bytes([head[16], head[17]]));
        if !(1..=PACKETS_MAX).contains(&count) {
            return Err(ReportError::Count(count));
        }
        if words.len() != 2 * count {
            return Err(ReportError::Length(bytes.len(), count));
        }
        first.checked_add(count as u64).ok_or(ReportError::Number(first, count))?;
        let nanos = base.checked_mul(1_000).filter(|at| *at < u64::MAX / 2);
        let base = Instant(nanos.ok_or(ReportError::Time(base))?);
        let packets = words.chunks_exact(2).map(|word| {
            let word = u16::from_be_bytes([word[0], word[1]]);
            let at = base + UNIT * u64::from(word & (MARKED - 1));
            (word & ARRIVED != 0).then_some(Arrival { at, is_marked: word & MARKED != 0 })
        });
        Ok(Self { first, packets: packets.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arrival() -> impl Strategy<Value = Option<Arrival>> {
        let at = (0..16_000_u64).prop_map(|units| Instant(7_000_000) + UNIT * units);
        let arrival = (at, any::<bool>()).prop_map(|(at, is_marked)| Arrival { at, is_marked });
        proptest::option::of(arrival)
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_read(first: u32, mut packets in prop::collection::vec(arrival(), 1..PACKETS_MAX)) {
            // The base is the earliest arrival.
            packets.push(Some(Arrival { at: Instant(7_000_000), is_marked: false }));
            let report = Report { first: first.into(), packets };
            prop_assert_eq!(Report::parse(&report.encode()), Ok(report));
        }

        #[test]
        fn any_bytes_are_a_report_or_an_error(bytes: Vec<u8>) {
            let _ = Report::parse(&bytes);
        }
    }

    #[test]
    fn what_is_no_report_is_named() {
        let packets = vec![Some(Arrival { at: Instant(1_000), is_marked: true })];
        let good = Report { first: u64::MAX - 1, packets }.encode();
        assert!(Report::parse(&good).is_ok());
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            Report::parse(&bytes).unwrap_err().to_string()
        };
        assert_eq!(changed(7, 255), format!("no 1 packets follow packet {}", u64::MAX));
        assert_eq!(changed(17, 0), "a report is of 1 to 600 packets, not of 0");
        assert_eq!(changed(17, 9), "20 bytes are no report of 9 packets");
        assert_eq!(changed(8, 255), format!("the time {} us is out of range", (255_u64 << 56) + 1));
        assert_eq!(Report::parse(&good[..5]), Err(ReportError::Length(5, 0)));
    }
}
