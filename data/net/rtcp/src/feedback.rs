//! Reads RTCP datagrams of receivers.

use crate::bytes::{PARTS_MAX, RtcpError, half, word};
use crate::congestion::{self, Congestion};
use crate::transport::{self, Transport};

/// Packets that one request names, at most: a datagram that names more is not believed.
const REQUESTED_MAX: usize = 1_024;
const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const GOODBYE: u8 = 203;
const TRANSPORT_FEEDBACK: u8 = 205;
const PAYLOAD_FEEDBACK: u8 = 206;
const BLOCK_LEN: usize = 24;

/// What a receiver reports of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reception {
    /// The source.
    pub ssrc: u32,
    /// The share of its packets that were lost since the last report, in parts of 256.
    pub lost: u8,
    /// Packets lost since it began; duplicates count as fewer.
    pub all_lost: i32,
    /// The highest sequence number that came, extended by 16 bits.
    pub highest: u32,
    /// The middle of the last sender report's time; 0: none came.
    pub last_report: u32,
    /// The time since it came, in units of 1/65536 s.
    pub since_report: u32,
}

/// A part of an RTCP datagram that a sender has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// A report of loss.
    Reception(Reception),
    /// Packets of a source are missing and requested.
    Requested {
        /// The source.
        ssrc: u32,
        /// Their sequence numbers.
        sequences: Vec<u16>,
    },
    /// An intra picture of a source is requested.
    IntraRequested {
        /// The source.
        ssrc: u32,
    },
    /// When packets arrived, by their transport-wide numbers.
    Transport(Transport),
    /// When packets arrived, by source and sequence number.
    Congestion(Congestion),
    /// The receiver leaves.
    Goodbye,
}

/// Reads a datagram, compound or of reduced size (RFC 5506). Parts that say nothing to a sender are skipped. O(its bytes).
///
/// # Errors
/// [`RtcpError`].
pub fn parse(mut bytes: &[u8]) -> Result<Vec<Feedback>, RtcpError> {
    let mut found = Vec::new();
    for _ in 0..PARTS_MAX {
        let (head, rest) =
            bytes.split_first_chunk::<4>().ok_or(RtcpError::Truncated(bytes.len()))?;
        let version = head[0] >> 6;
        if version != 2 {
            return Err(RtcpError::Version(version));
        }
        let len = usize::from(u16::from_be_bytes([head[2], head[3]])) * 4;
        let (mut body, after) =
            rest.split_at_checked(len).ok_or(RtcpError::Truncated(rest.len()))?;
        if head[0] & 0x20 != 0 {
            let padding = *body.last().ok_or(RtcpError::Truncated(0))?;
            let kept = body.len().checked_sub(usize::from(padding)).filter(|_| padding > 0);
            body = &body[..kept.ok_or(RtcpError::Padding(padding))?];
        }
        read(head[0] & 0x1f, head[1], body, &mut found)?;
        if after.is_empty() {
            return Ok(found);
        }
        bytes = after;
    }
    Err(RtcpError::Parts)
}

/// Reads one part: `count` is its number of blocks, or the kind of its feedback.
fn read(count: u8, kind: u8, body: &[u8], found: &mut Vec<Feedback>) -> Result<(), RtcpError> {
    let from = |at: usize| body.get(at..).ok_or(RtcpError::Truncated(body.len()));
    match (kind, count) {
        (SENDER_REPORT, _) => receptions(count, from(24)?, found),
        (RECEIVER_REPORT, _) => receptions(count, from(4)?, found),
        (GOODBYE, _) => {
            found.push(Feedback::Goodbye);
            Ok(())
        }
        (TRANSPORT_FEEDBACK, 1) => requested(word(body, 4)?, from(8)?, found),
        (TRANSPORT_FEEDBACK, 11) => {
            found.push(Feedback::Congestion(congestion::read(from(4)?)?));
            Ok(())
        }
        (TRANSPORT_FEEDBACK, 15) => {
            found.push(Feedback::Transport(transport::read(from(8)?)?));
            Ok(())
        }
        (PAYLOAD_FEEDBACK, 1) => {
            found.push(Feedback::IntraRequested { ssrc: word(body, 4)? });
            Ok(())
        }
        (PAYLOAD_FEEDBACK, 4) => {
            // One request for each source.
            for request in from(8)?.chunks_exact(8).take(PARTS_MAX) {
                found.push(Feedback::IntraRequested { ssrc: word(request, 0)? });
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn receptions(count: u8, blocks: &[u8], found: &mut Vec<Feedback>) -> Result<(), RtcpError> {
    let len = usize::from(count) * BLOCK_LEN;
    let blocks = blocks.get(..len).ok_or(RtcpError::Truncated(len))?;
    for block in blocks.chunks_exact(BLOCK_LEN) {
        let lost = word(block, 4)?;
        found.push(Feedback::Reception(Reception {
            ssrc: word(block, 0)?,
            lost: (lost >> 24) as u8,
            // 24 bits with a sign.
            all_lost: (lost << 8).cast_signed() >> 8,
            highest: word(block, 8)?,
            last_report: word(block, 16)?,
            since_report: word(block, 20)?,
        }));
    }
    Ok(())
}

/// A generic NACK: each word is a number and 16 bits for those that follow it.
fn requested(ssrc: u32, words: &[u8], found: &mut Vec<Feedback>) -> Result<(), RtcpError> {
    let mut sequences = Vec::new();
    for pair in words.chunks_exact(4) {
        let (first, more) = (half(pair, 0), half(pair, 2));
        sequences.push(first);
        let named = (0..16).filter(|bit| more >> bit & 1 == 1);
        sequences.extend(named.map(|bit| first.wrapping_add(bit + 1)));
        if sequences.len() > REQUESTED_MAX {
            return Err(RtcpError::Count(sequences.len()));
        }
    }
    found.push(Feedback::Requested { ssrc, sequences });
    Ok(())
}
