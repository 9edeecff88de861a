//! What a host sends and receives, as a capture file: classic pcap of raw IP, with headers made up for it.
//!
//! Packets of flow n have its port at both ends, hosts the addresses 10.0.0.1 and up in their order. What has
//! no bytes of its own is cut behind its headers.

use selvedge_data_net_line::{Ecn, Packet};
use selvedge_units::{Bytes, Instant};

use crate::packet::{HostId, Payload};
use crate::results::{Event, Step};

/// Little-endian pcap 2.4 with times in ns, raw IP.
const HEADER: [u32; 6] = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 101];
const UDP: u8 = 17;
const TCP: u8 = 6;

/// A capture at a host.
#[derive(Clone, Debug)]
pub struct Capture {
    host: HostId,
    file: Vec<u8>,
    size_max: usize,
    left_out: u64,
}

impl Capture {
    /// Captures at this host until the file has so many bytes.
    #[must_use]
    pub fn new(host: HostId, size_max: Bytes) -> Self {
        let file = HEADER.iter().flat_map(|word| word.to_le_bytes()).collect();
        let size_max = usize::try_from(size_max.0).unwrap_or(usize::MAX);
        Self { host, file, size_max, left_out: 0 }
    }

    /// Takes a packet, as an observer of [`Simulation::run`](crate::Simulation::run).
    pub fn handle_event(&mut self, event: &Event<'_>) {
        if event.host != self.host || !matches!(event.step, Step::Sent | Step::Arrived) {
            return;
        }
        let packet = packet(event);
        if self.file.len() + 16 + packet.len() > self.size_max {
            self.left_out += 1;
            return;
        }
        let whole = event.packet.size.0.max(packet.len() as u64);
        let times = [event.at.0 / 1_000_000_000, event.at.0 % 1_000_000_000];
        for word in [times[0], times[1], packet.len() as u64, whole] {
            self.file.extend((word as u32).to_le_bytes());
        }
        self.file.extend(packet);
    }

    /// The file, and how many packets were left out of it.
    #[must_use]
    pub fn into_file(self) -> (Vec<u8>, u64) {
        (self.file, self.left_out)
    }
}

/// The packet's headers, and its bytes if it has some.
fn packet(event: &Event<'_>) -> Vec<u8> {
    let Event { flow, packet: Packet { size, ecn, payload, .. }, .. } = event;
    // Sequence numbers begin at 1, as behind a SYN.
    let first = |number: u64| (number as u32).wrapping_add(1);
    let udp = |bytes: &[u8]| {
        let size = size.0.saturating_sub(20).clamp(8, 0xffff) as u16;
        // Without a checksum.
        let header = [flow.port, flow.port, size, 0].map(u16::to_be_bytes).concat();
        (UDP, [&header[..], &bytes[..bytes.len().min(0xff00)]].concat())
    };
    let (protocol, behind) = match &payload.payload {
        Payload::Filler => udp(&[]),
        Payload::Bytes(bytes) => udp(bytes),
        Payload::Segment(segment) => {
            (TCP, tcp(flow.port, [first(segment.sequence), 1], [payload.sent, Instant::ZERO], &[]))
        }
        Payload::Ack(ack) => {
            (TCP, tcp(flow.port, [1, first(ack.next)], [payload.sent, ack.echo], &ack.blocks))
        }
    };
    let ecn = match ecn {
        Ecn::NotCapable => 0,
        Ecn::LowLatency => 1,
        Ecn::Capable => 2,
        Ecn::Marked => 3,
    };
    let [high, low] = (size.0.max(20 + behind.len() as u64).min(0xffff) as u16).to_be_bytes();
    // Not to be fragmented; 64 hops; the checksum follows.
    let mut packet = vec![0x45, ecn, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    packet.extend([flow.from, flow.to].map(|host| (0x0a00_0001 + host.0).to_be_bytes()).concat());
    let words = packet.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = !(words.sum::<u32>() % 0xffff) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(behind);
    packet
}

/// A header with a sequence number and what is acknowledged, with timestamps, and with blocks of SACK.
fn tcp(port: u16, numbers: [u32; 2], stamps: [Instant; 2], blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut options = vec![1, 1, 8, 10];
    options.extend(stamps.map(|at| ((at.0 / 1_000_000) as u32).to_be_bytes()).concat());
    let blocks = blocks.iter().filter(|(_, length)| *length > 0);
    let ends = blocks.flat_map(|(start, length)| [*start, start + length]);
    let ends: Vec<u8> = ends.flat_map(|end| numbers[1].wrapping_add(end).to_be_bytes()).collect();
    if !ends.is_empty() {
        options.extend([1, 1, 5, 2 + ends.len() as u8]);
        options.extend(ends);
    }
    let mut header = [port, port].map(u16::to_be_bytes).concat();
    header.extend(numbers.map(u32::to_be_bytes).concat());
    // ACK, the largest window, no checksum, nothing urgent.
    header.extend([(5 + options.len() as u8 / 4) << 4, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    header.extend(options);
    header
}
