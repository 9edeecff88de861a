//! Congestion control feedback of RFC 8888: when each packet of each source arrived, and whether it was marked.

use selvedge_data_net_rate::{Arrival, Report, UNDER_WAY_MAX};
use selvedge_units::{Duration, Instant};

use crate::bytes::{RtcpError, half, word};

/// An offset that states no arrival time.
const UNKNOWN: u16 = 0x1fff;
const ARRIVED: u16 = 1 << 15;
const MARKED: u16 = 3;
/// Time stamps count 1/65536 s modulo 2^32, offsets 1/1024 s.
const STAMPS: u64 = 1 << 32;

/// What was reported of the packets of all sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// When the report was made, by the receiver's clock.
    pub(crate) stamp: u32,
    pub(crate) packets: Vec<Arrived>,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) ssrc: u32,
    pub(crate) sequence: u16,
    /// So long before the stamp, in 1/1024 s.
    pub(crate) before: u16,
    pub(crate) is_marked: bool,
}

/// Reads what follows the receiver's own source.
pub(crate) fn read(body: &[u8]) -> Result<Congestion, RtcpError> {
    let truncated = RtcpError::Truncated(body.len());
    let (mut blocks, stamp) = body.split_last_chunk::<4>().ok_or(truncated)?;
    let stamp = u32::from_be_bytes(*stamp);
    let mut packets = Vec::new();
    while !blocks.is_empty() {
        let ssrc = word(blocks, 0)?;
        let head = blocks.get(4..8).ok_or(truncated)?;
        let (first, count) = (half(head, 0), usize::from(half(head, 2)));
        if count > UNDER_WAY_MAX || packets.len() > UNDER_WAY_MAX {
            return Err(RtcpError::Count(packets.len() + count));
        }
        // Blocks are padded to whole words.
        let end = 8 + count.div_ceil(2) * 4;
        let words = blocks.get(8..end).ok_or(truncated)?;
        for (metric, offset) in words.chunks_exact(2).take(count).zip(0_u16..) {
            let metric = half(metric, 0);
            let before = metric & UNKNOWN;
            if metric & ARRIVED != 0 && before != UNKNOWN {
                let is_marked = metric >> 13 & MARKED == MARKED;
                let sequence = first.wrapping_add(offset);
                packets.push(Arrived { ssrc, sequence, before, is_marked });
            }
        }
        blocks = &blocks[end..];
    }
    Ok(Congestion { stamp, packets })
}

/// Appends the words of a report of one source, as [`read`] reads them. Packets are numbered by their extended sequence
/// numbers.
pub(crate) fn write(bytes: &mut Vec<u8>, ssrc: u32, report: &Report, now: Instant) {
    bytes.extend(ssrc.to_be_bytes());
    bytes.extend((report.first as u16).to_be_bytes());
    bytes.extend((report.packets.len() as u16).to_be_bytes());
    for packet in &report.packets {
        let metric = packet.map_or(0, |Arrival { at, is_marked }| {
            let before = (now.since(at).0 * 1_024 / 1_000_000_000).min(u64::from(UNKNOWN) - 1);
            let mark = if is_marked { MARKED << 13 } else { 0 };
            ARRIVED | mark | before as u16
        });
        bytes.extend(metric.to_be_bytes());
    }
    if report.packets.len() % 2 == 1 {
        bytes.extend([0, 0]);
    }
    bytes.extend(middle_of(now).to_be_bytes());
}

/// A time as the middle 32 bits of an NTP time stamp.
pub(crate) fn middle_of(at: Instant) -> u32 {
    (u128::from(at.0) * 65_536 / 1_000_000_000) as u32
}

/// A span of 1/65536 s.
pub(crate) fn span_of(units: u64) -> Duration {
    Duration((u128::from(units) * 1_000_000_000 / 65_536) as u64)
}

/// Time stamps without their wrapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwrapped {
    stamp: Option<u64>,
}

impl Unwrapped {
    /// What was reported of the packets that `number_of` knows by source and sequence number.
    pub(crate) fn report(
        &mut self,
        congestion: &Congestion,
        number_of: impl Fn(u32, u16) -> Option<u64>,
    ) -> Option<Report> {
        let stamp = u64::from(congestion.stamp);
        // It begins after one round, so that arrivals may lie before.
        let last = self.stamp.unwrap_or(STAMPS + stamp);
        let ahead = stamp.wrapping_sub(last) % STAMPS;
        let stamp =
            if ahead > STAMPS / 2 { last.saturating_sub(STAMPS - ahead) } else { last + ahead };
        self.stamp = Some(stamp.max(last));
        let made = Instant::ZERO + span_of(stamp);
        let known = congestion.packets.iter().filter_map(|packet| {
            let at = made - span_of(u64::from(packet.before) * 64);
            let number = number_of(packet.ssrc, packet.sequence)?;
            Some((number, Arrival { at, is_marked: packet.is_marked }))
        });
        report_of(known, UNDER_WAY_MAX)
    }
}

/// What arrived and what did not, from the first of these packets to the last that arrived; `None` if none did.
fn report_of(packets: impl Iterator<Item = (u64, Arrival)> + Clone, most: usize) -> Option<Report> {
    let first = packets.clone().map(|(number, _)| number).min()?;
    let mut report = Report { first, packets: Vec::new() };
    for (number, arrival) in packets {
        let at = (number - first) as usize;
        if at >= most {
            continue;
        }
        if report.packets.len() <= at {
            report.packets.resize(at + 1, None);
        }
        report.packets[at] = Some(arrival);
    }
    Some(report)
}
