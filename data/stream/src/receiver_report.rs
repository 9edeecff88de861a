//! The report of a stream's receiver to its sender about the packets and frames that arrived by a
//! connection, since that began. It goes from the receiver's meter, back through the connection,
//! into the sender's view of the stream.

/// Counts of a connection, at its receiving end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverReport {
    /// Packets that arrived.
    pub packets: u64,
    /// Frames settled: those that arrived, and those known to be missing.
    pub frames: u64,
    /// Frames of which every packet arrived.
    pub complete: u64,
    /// Frames that arrived by their deadline and whose references were all decodable; where packets
    /// do not state deadlines, the same as `complete`.
    pub decodable: u64,
}

impl ReceiverReport {
    /// The length of such a message.
    pub const LEN: usize = 33;
    /// The first byte of such a message.
    const VERSION: u8 = 1;

    /// As a message: the version, then the counts, big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [Self::VERSION; Self::LEN];
        let counts = [self.packets, self.frames, self.complete, self.decodable];
        for (place, count) in bytes[1..].chunks_exact_mut(8).zip(counts) {
            place.copy_from_slice(&count.to_be_bytes());
        }
        bytes
    }

    /// The report in a message; `None` if it is something else, or counts frames that did not
    /// arrive.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&Self::VERSION, rest) = bytes.split_first()? else { return None };
        let rest: &[u8; Self::LEN - 1] = rest.try_into().ok()?;
        let (counts, _) = rest.as_chunks::<8>();
        let count = |n: usize| u64::from_be_bytes(counts[n]);
        let report =
            Self { packets: count(0), frames: count(1), complete: count(2), decodable: count(3) };
        let is_possible = report.decodable <= report.complete && report.complete <= report.frames;
        is_possible.then_some(report)
    }

    /// The counts since an earlier report of the same receiver.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// This and another connection's.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            packets: combine(self.packets, other.packets),
            frames: combine(self.frames, other.frames),
            complete: combine(self.complete, other.complete),
            decodable: combine(self.decodable, other.decodable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: ReceiverReport =
        ReceiverReport { packets: 9, frames: u64::MAX, complete: 7, decodable: 6 };

    #[test]
    fn a_report_is_read_as_it_was_written() {
        assert_eq!(ReceiverReport::from_bytes(&REPORT.to_bytes()), Some(REPORT));
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let bytes = REPORT.to_bytes();
        assert_eq!(ReceiverReport::from_bytes(&[]), None);
        assert_eq!(ReceiverReport::from_bytes(&bytes[..32]), None);
        assert_eq!(ReceiverReport::from_bytes(&[&bytes[..], &[0]].concat()), None);
        let mut other = bytes;
        other[0] = 2;
        assert_eq!(ReceiverReport::from_bytes(&other), None);
        let liar = ReceiverReport { decodable: 8, ..REPORT };
        assert_eq!(ReceiverReport::from_bytes(&liar.to_bytes()), None);
    }

    #[test]
    fn counts_of_connections_add_up() {
        let later = ReceiverReport { packets: 12, ..REPORT };
        assert_eq!(later.since(REPORT), ReceiverReport { packets: 3, ..ReceiverReport::default() });
        assert_eq!(later.plus(REPORT).packets, 21);
        assert_eq!(later.plus(REPORT).frames, u64::MAX);
    }
}
