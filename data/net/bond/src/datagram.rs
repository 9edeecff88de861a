//! The datagrams of a bond.
//!
//! ```text
//! data:   1 | path: 1 byte | stream: 2 | number on the path: 8 | sequence in the stream: 4 | sent: 4, us |
//!         time left until the deadline: 2, in 250 us | the packet
//! report: 2 | path: 1 byte | a report of data/net/rate
//! probe:  3 | as data, to the time left | zeros
//! description: 4 | path: 1 byte | stream: 2 | text in UTF-8, at most 8192 bytes
//! parity: 5 | as data, to the time left, with the sequence of the first packet that it covers | packets covered: 1,
//!         at most 48 | parities: 1, at most 32 | this one's index: 1 | the parity
//! ```
//!
//! A parity is one of a Reed-Solomon code's over the packets that it covers. The code covers of each packet:
//!
//! ```text
//! length: 2 | the packet | zeros, to the even length of the longest
//! ```
//!
//! All numbers are big-endian. The far end reports a probe's arrival as that of a packet. The application gives the
//! text of a description a meaning.

use selvedge_data_net_rate::{Report, ReportError};
use selvedge_units::{Bytes, Duration, Instant};

const DATA: u8 = 1;
const REPORT: u8 = 2;
const PROBE: u8 = 3;
const DESCRIPTION: u8 = 4;
const PARITY: u8 = 5;
const HEADER: usize = 22;
/// What a parity has before its bytes.
const PARITY_HEADER: usize = HEADER + 3;
const LEFT_UNIT: Duration = Duration::from_micros(250);

/// The longest text that describes a stream, in bytes.
pub const DESCRIPTION_MAX: usize = 8_192;
/// What a description has before its text.
pub(crate) const DESCRIPTION_HEADER: usize = 4;

/// What a bond puts before each packet.
pub const OVERHEAD: Bytes = Bytes(HEADER as u64);

/// What a parity may be longer than the longest packet, with what a bond puts before it.
pub const PARITY_OVERHEAD: Bytes = Bytes(PARITY_HEADER as u64 + 3);

/// Packets that parities cover together, at most.
pub(crate) const COVERED_MAX: usize = 48;
/// Parities of them, at most.
pub(crate) const PARITIES_MAX: usize = 32;

/// A path, by the number that both ends know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

/// A stream, by the number that both ends know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u16);

/// Flows of packets of other programs that a bond keeps in order, each by itself; more share these.
pub const FLOWS: u16 = 256;
/// The stream of the first of them. Streams with names count from 0.
const FIRST_FLOW: u16 = 0xfe00;

impl StreamId {
    /// The stream of a flow. Flows beyond [`FLOWS`] share the streams of others.
    #[must_use]
    pub const fn of_flow(flow: u64) -> Self {
        Self(FIRST_FLOW + (flow % FLOWS as u64) as u16)
    }

    /// Whether its packets are those of flows.
    #[must_use]
    pub const fn is_flow(self) -> bool {
        FIRST_FLOW <= self.0 && self.0 < FIRST_FLOW + FLOWS
    }
}

/// Why bytes are no datagram of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// Less than its head.
    #[error("{0} bytes are too few for a datagram of a bond")]
    Length(usize),
    /// Of no kind that there is.
    #[error("a datagram of a bond begins with 1 to 5, not with {0}")]
    Kind(u8),
    /// A description that is no text, or too long.
    #[error("{0} bytes are no description of a stream: it has at most 8192 in UTF-8")]
    Description(usize),
    /// The number of a packet on its path has no successor.
    #[error("no packet follows packet {0}")]
    Number(u64),
    /// A parity that is none of a code that there is.
    #[error(
        "parity {index} of {parities} over {covered} packets can't be: at most 32 cover at most 48"
    )]
    Parity {
        /// Packets that it covers.
        covered: u8,
        /// Parities of the code.
        parities: u8,
        /// Which of them it is.
        index: u8,
    },
    /// The report in it is none.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// The head of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) path: PathId,
    pub(crate) stream: StreamId,
    pub(crate) number: u64,
    pub(crate) sequence: u32,
    /// When it was sent, in microseconds of the sender's clock, modulo 2^32.
    pub(crate) sent: u32,
    /// From then to the deadline, at most 16 s.
    pub(crate) left: Duration,
}

/// A parity's place in its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// Packets that the code covers.
    pub(crate) covered: u8,
    /// Parities that it has.
    pub(crate) parities: u8,
    /// Which of them this is.
    pub(crate) index: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Datagram<'a> {
    Data(Head, &'a [u8]),
    Parity(Head, Code, &'a [u8]),
    Report(PathId, Report),
    Description(StreamId, &'a str),
}

/// A clock's microseconds as they are sent.
pub(crate) const fn sent_at(now: Instant) -> u32 {
    (now.0 / 1_000) as u32
}

impl Head {
    pub(crate) fn encode(&self, packet: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + packet.len());
        bytes.extend([DATA, self.path.0]);
        bytes.extend(self.stream.0.to_be_bytes());
        bytes.extend(self.number.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.sent.to_be_bytes());
        let left = self.left.0 / LEFT_UNIT.0;
        bytes.extend(u16::try_from(left).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend(packet);
        bytes
    }

    /// A parity with this head, whose sequence is that of the first packet covered.
    pub(crate) fn encode_parity(&self, code: Code, parity: &[u8]) -> Vec<u8> {
        let mut bytes = self.encode(&[code.covered, code.parities, code.index]);
        bytes[0] = PARITY;
        bytes.extend(parity);
        bytes
    }

    /// A probe with this head, so long in all.
    pub(crate) fn encode_probe(&self, size: Bytes) -> Vec<u8> {
        let mut bytes = self.encode(&[]);
        bytes[0] = PROBE;
        bytes.resize(HEADER.max(size.0 as usize), 0);
        bytes
    }
}

pub(crate) fn encode_report(path: PathId, report: &Report) -> Vec<u8> {
    let mut bytes = vec![REPORT, path.0];
    bytes.extend(report.encode());
    bytes
}

pub(crate) fn encode_description(path: PathId, stream: StreamId, text: &str) -> Vec<u8> {
    let mut bytes = vec![DESCRIPTION, path.0];
    bytes.extend(stream.0.to_be_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// The number nearest to `near` of which these are the low 32 bits.
pub(crate) fn nearest(near: u64, low: u32) -> u64 {
    near.saturating_add_signed(i64::from(low.wrapping_sub(near as u32) as i32))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl<'a> Datagram<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, DatagramError> {
        let &[kind, path, ref rest @ ..] = bytes else {
            return Err(DatagramError::Length(bytes.len()));
        };
        let path = PathId(path);
        if kind == REPORT {
            return Ok(Self::Report(path, Report::parse(rest)?));
        }
        if kind == DESCRIPTION {
            return Self::parse_description(rest);
        }
        if kind != DATA && kind != PROBE && kind != PARITY {
            return Err(DatagramError::Kind(kind));
        }
        let (Some(head), Some(packet)) = (bytes.get(..HEADER), bytes.get(HEADER..)) else {
            return Err(DatagramError::Length(bytes.len()));
        };
        let head = Head {
            path,
            stream: StreamId(number(&head[2..4]) as u16),
            number: number(&head[4..12]),
            sequence: number(&head[12..16]) as u32,
            sent: number(&head[16..20]) as u32,
            left: LEFT_UNIT * number(&head[20..]),
        };
        if head.number == u64::MAX {
            return Err(DatagramError::Number(head.number));
        }
        match kind {
            DATA => Ok(Self::Data(head, packet)),
            PROBE => Ok(Self::Data(head, &[])),
            _ => Self::parse_parity(head, packet),
        }
    }

    fn parse_parity(head: Head, bytes: &'a [u8]) -> Result<Self, DatagramError> {
        let Some((&[covered, parities, index], parity)) = bytes.split_first_chunk() else {
            return Err(DatagramError::Length(HEADER + bytes.len()));
        };
        let is_code = (1..=COVERED_MAX).contains(&covered.into())
            && (1..=PARITIES_MAX).contains(&parities.into())
            && index < parities;
        if !is_code {
            return Err(DatagramError::Parity { covered, parities, index });
        }
        if parity.is_empty() || !parity.len().is_multiple_of(2) {
            return Err(DatagramError::Length(PARITY_HEADER + parity.len()));
        }
        Ok(Self::Parity(head, Code { covered, parities, index }, parity))
    }

    fn parse_description(bytes: &'a [u8]) -> Result<Self, DatagramError> {
        let Some((stream, text)) = bytes.split_first_chunk() else {
            return Err(DatagramError::Length(bytes.len() + 2));
        };
        let fits = Some(text).filter(|text| text.len() <= DESCRIPTION_MAX);
        let text = fits.and_then(|text| core::str::from_utf8(text).ok());
        let text = text.ok_or(DatagramError::Description(bytes.len() - 2))?;
        Ok(Self::Description(StreamId(u16::from_be_bytes(*stream)), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_read(
            ids: (u8, u16),
            number in 0..u64::MAX,
            sequence: u32,
            sent: u32,
            left: u16,
            packet: Vec<u8>,
        ) {
            let (path, stream) = (PathId(ids.0), StreamId(ids.1));
            let head = Head { path, stream, number, sequence, sent, left: LEFT_UNIT * u64::from(left) };
            let bytes = head.encode(&packet);
            prop_assert_eq!(bytes.len() as u64, OVERHEAD.0 + packet.len() as u64);
            prop_assert_eq!(Datagram::parse(&bytes), Ok(Datagram::Data(head, &packet)));
        }

        #[test]
        fn a_parity_is_read(covered in 1..=48_u8, parities in 1..=32_u8, index: u8, two: Vec<[u8; 2]>) {
            let code = Code { covered, parities, index: index % parities };
            let head = Head {
                path: PathId(3),
                stream: StreamId(4),
                number: 5,
                sequence: 6,
                sent: 7,
                left: LEFT_UNIT * 8,
            };
            let parity = two.concat();
            let bytes = head.encode_parity(code, &parity);
            let read = Datagram::parse(&bytes);
            if parity.is_empty() {
                prop_assert_eq!(read, Err(DatagramError::Length(25)));
            } else {
                prop_assert_eq!(read, Ok(Datagram::Parity(head, code, &parity)));
            }
        }

        #[test]
        fn a_description_is_read(ids: (u8, u16), text: String) {
            let bytes = encode_description(PathId(ids.0), StreamId(ids.1), &text);
            prop_assert_eq!(Datagram::parse(&bytes), Ok(Datagram::Description(StreamId(ids.1), &text)));
        }

        #[test]
        fn any_bytes_are_a_datagram_or_an_error(bytes: Vec<u8>) {
            let _ = Datagram::parse(&bytes);
        }
    }

    #[test]
    fn numbers_are_taken_for_the_nearest_that_they_may_be() {
        let wrapped = u64::from(u32::MAX) + 1;
        assert_eq!(nearest(wrapped, 3), wrapped + 3);
        assert_eq!(nearest(wrapped + 3, u32::MAX), wrapped - 1);
        assert_eq!(nearest(wrapped - 1, 0), wrapped);
    }

    #[test]
    fn what_is_no_datagram_is_named() {
        let error = |bytes: &[u8]| Datagram::parse(bytes).unwrap_err().to_string();
        assert_eq!(error(&[1]), "1 bytes are too few for a datagram of a bond");
        assert_eq!(error(&[1; 21]), "21 bytes are too few for a datagram of a bond");
        assert_eq!(error(&[6; 30]), "a datagram of a bond begins with 1 to 5, not with 6");
        assert_eq!(error(&[4, 0, 1]), "3 bytes are too few for a datagram of a bond");
        let no_text = "1 bytes are no description of a stream: it has at most 8192 in UTF-8";
        assert_eq!(error(&[4, 0, 0, 1, 255]), no_text);
        assert!(error(&[4; 8_200]).starts_with("8196 bytes are no description"));
        let none = "parity 5 of 5 over 5 packets can't be: at most 32 cover at most 48";
        assert_eq!(error(&[5; 31]), none);
        let mut last = [255; 22];
        last[0] = 1;
        assert_eq!(error(&last), format!("no packet follows packet {}", u64::MAX));
        assert_eq!(error(&[2; 5]), "3 bytes are no report of 0 packets");
    }
}
