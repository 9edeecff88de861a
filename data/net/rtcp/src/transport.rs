//! Transport-wide feedback: each packet carries a number in a header extension, and the receiver reports when each number
//! arrived.

use selvedge_data_net_rate::{Arrival, Report, UNDER_WAY_MAX};
use selvedge_data_stream::rtp::{EXTENSION_LEN, HEADER_LEN};
use selvedge_units::{Bytes, Duration, Instant};

use crate::bytes::{RtcpError, half};

/// The identifier of the number's element in SDP.
pub const TRANSPORT_URI: &str =
    "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
/// The local identifier under which it is sent.
pub const TRANSPORT_ID: u8 = 3;
/// The bytes that the number adds to a packet.
pub const TRANSPORT_OVERHEAD: Bytes = Bytes(4);
/// Numbers, and times of 64 ms, follow each other modulo these.
const TIMES: u64 = 1 << 24;
const TIME_UNIT: Duration = Duration::from_millis(64);
const DELTA_UNIT: i64 = 250_000;
const HEAD: usize = 8;

/// When packets arrived, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// The number of the first packet, modulo 2^16.
    pub(crate) first: u16,
    /// The time of the receiver's clock from which arrivals count, in units of 64 ms, modulo 2^24.
    pub(crate) time: u32,
    /// From that time to each packet's arrival, in nanoseconds; `None`: it did not arrive.
    pub(crate) arrivals: Vec<Option<i64>>,
}

/// Reads what follows the two sources of a feedback message.
pub(crate) fn read(body: &[u8]) -> Result<Transport, RtcpError> {
    let (head, mut rest) =
        body.split_first_chunk::<HEAD>().ok_or(RtcpError::Truncated(body.len()))?;
    let (first, count) = (half(head, 0), usize::from(half(head, 2)));
    let time = u32::from_be_bytes([0, head[4], head[5], head[6]]);
    if count > UNDER_WAY_MAX {
        return Err(RtcpError::Count(count));
    }
    let mut statuses = Vec::with_capacity(count);
    while statuses.len() < count {
        let (chunk, after) =
            rest.split_first_chunk::<2>().ok_or(RtcpError::Truncated(body.len()))?;
        rest = after;
        let chunk = u16::from_be_bytes(*chunk);
        let wanted = count - statuses.len();
        match chunk >> 14 {
            0 | 1 => {
                let run = usize::from(chunk & 0x1fff).min(wanted);
                statuses.resize(statuses.len() + run, (chunk >> 13 & 3) as u8);
                if run == 0 {
                    return Err(RtcpError::Count(0));
                }
            }
            2 => statuses.extend((0..14).rev().take(wanted).map(|bit| (chunk >> bit & 1) as u8)),
            _ => statuses.extend((0..7).rev().take(wanted).map(|at| (chunk >> (at * 2) & 3) as u8)),
        }
    }
    let mut at = 0;
    let mut arrivals = Vec::with_capacity(count);
    for status in statuses {
        let len = match status {
            0..=2 => usize::from(status),
            _ => return Err(RtcpError::Status(status)),
        };
        let (delta, after) = rest.split_at_checked(len).ok_or(RtcpError::Truncated(body.len()))?;
        rest = after;
        let delta = match *delta {
            [] => {
                arrivals.push(None);
                continue;
            }
            [small] => i64::from(small),
            _ => i64::from(half(delta, 0).cast_signed()),
        };
        at += delta * DELTA_UNIT;
        arrivals.push(Some(at));
    }
    Ok(Transport { first, time, arrivals })
}

/// Numbers and times without their wrapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwrapped {
    /// The latest time of the receiver's clock, in its units.
    time: Option<u64>,
}

impl Unwrapped {
    /// What was reported, if `next` is the number of the packet that is sent next.
    pub(crate) fn report(&mut self, transport: &Transport, next: u64) -> Option<Report> {
        let time = u64::from(transport.time);
        // It begins after one round of the clock, so that arrivals may lie before.
        let last = self.time.unwrap_or(TIMES + time);
        let ahead = time.wrapping_sub(last) % TIMES;
        let is_back = ahead > TIMES / 2;
        let time = if is_back { last.saturating_sub(TIMES - ahead) } else { last + ahead };
        self.time = Some(time.max(last));
        let base = Instant::ZERO + TIME_UNIT * time;
        let behind = u64::from((next as u16).wrapping_sub(transport.first));
        let first = next.checked_sub(behind)?;
        let arrival = |offset: &i64| {
            let at = Instant(base.0.saturating_add_signed(*offset));
            Arrival { at, is_marked: false }
        };
        let mut packets: Vec<_> =
            transport.arrivals.iter().map(|at| at.as_ref().map(arrival)).collect();
        // What is missing at the end may still be under way.
        let arrived = packets.iter().rposition(Option::is_some)?;
        packets.truncate(arrived + 1);
        (behind as usize > arrived).then_some(Report { first, packets })
    }
}

/// Copies a packet of ours, with its number behind our own elements of the header extension. A packet without them is
/// copied as it is.
pub(crate) fn numbered(packet: &[u8], number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(packet.len() + TRANSPORT_OVERHEAD.0 as usize);
    // The last byte of our extension fills its last word.
    let Some((ours, payload)) = packet.split_at_checked(HEADER_LEN + EXTENSION_LEN) else {
        return packet.to_vec();
    };
    let words = half(ours, HEADER_LEN + 2);
    if ours[0] & 0x1f != 0x10 || usize::from(words) != EXTENSION_LEN / 4 - 1 {
        return packet.to_vec();
    }
    bytes.extend_from_slice(&ours[..ours.len() - 1]);
    bytes[HEADER_LEN + 2..HEADER_LEN + 4].copy_from_slice(&(words + 1).to_be_bytes());
    bytes.push(TRANSPORT_ID << 4 | 1);
    bytes.extend((number as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend_from_slice(payload);
    bytes
}
