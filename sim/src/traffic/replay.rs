//! Recorded packets, sent again: sizes and times of a capture file (classic pcap).

use selvedge_data_net_line::Packet;
use selvedge_units::{Bytes, Duration, Instant};

use crate::endpoint::Endpoint;
use crate::packet::{Datagram, FlowId, Payload};

/// The most packets of a recording.
const PACKETS_MAX: usize = 1_000_000;
/// The most bytes of a packet that capture programs keep.
const KEPT_MAX: u32 = 262_144;
/// Headers in front of the IP header, by link types.
const LINK_HEADERS: [(u32, u64); 8] =
    [(0, 4), (1, 14), (12, 0), (14, 0), (101, 0), (108, 4), (113, 16), (276, 20)];

/// Why bytes are no recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// It is another kind of file.
    #[error("it begins with {0:02x?}, as no pcap file does; convert it: editcap -F pcap IN OUT")]
    Kind(Vec<u8>),
    /// Its packets are of an unknown kind.
    #[error("its link type is {0}; record Ethernet (1) or raw IP (101)")]
    LinkType(u32),
    /// It ends inside a packet.
    #[error("it ends inside the packet at byte {0}; cut it there")]
    Short(usize),
    /// A packet is larger than any capture program keeps.
    #[error("the packet at byte {0} has {1} bytes, more than {KEPT_MAX}; is the file damaged?")]
    Large(usize, u32),
    /// There is more than anyone replays.
    #[error("it has more than {PACKETS_MAX} packets; cut it: editcap -r IN OUT 1-{PACKETS_MAX}")]
    Long,
}

/// Packets of a capture file, by their times since the first and their sizes from the IP header on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    packets: Vec<(Duration, Bytes)>,
}

impl Recording {
    /// Reads a classic pcap file, of either byte order, with times in us or ns. A packet whose time goes back
    /// gets that of the packet before it.
    ///
    /// # Errors
    /// [`RecordingError`], with the place.
    pub fn parse(file: &[u8]) -> Result<Self, RecordingError> {
        let kind = || RecordingError::Kind(file[..file.len().min(4)].to_vec());
        let (header, _) = file.split_first_chunk::<24>().ok_or_else(kind)?;
        let magic = [header[0], header[1], header[2], header[3]];
        let (is_little, nanos) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (true, 1_000),
            [0xa1, 0xb2, 0xc3, 0xd4] => (false, 1_000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (true, 1),
            [0xa1, 0xb2, 0x3c, 0x4d] => (false, 1),
            _ => return Err(kind()),
        };
        let word = |at: usize| {
            let bytes = *file.get(at..)?.first_chunk::<4>()?;
            Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
        };
        // The upper bits say whether there is a checksum behind each packet.
        let link_type = word(20).unwrap_or(0) & 0xffff;
        let in_front = LINK_HEADERS.iter().find(|(of, _)| *of == link_type);
        let (_, in_front) = *in_front.ok_or(RecordingError::LinkType(link_type))?;
        let (mut packets, mut at, mut first, mut last) = (Vec::new(), 24, None, Duration::ZERO);
        while at < file.len() {
            let record = || Some([word(at)?, word(at + 4)?, word(at + 8)?, word(at + 12)?]);
            let [seconds, fraction, kept, bytes] = record().ok_or(RecordingError::Short(at))?;
            if kept > KEPT_MAX {
                return Err(RecordingError::Large(at, kept));
            }
            let end = at + 16 + kept as usize;
            if end > file.len() {
                return Err(RecordingError::Short(at));
            }
            if packets.len() == PACKETS_MAX {
                return Err(RecordingError::Long);
            }
            let time = Duration::from_secs(seconds.into()) + Duration(fraction.into()) * nanos;
            last = last.max(time - *first.get_or_insert(time));
            packets.push((last, Bytes(u64::from(bytes).saturating_sub(in_front).max(1))));
            at = end;
        }
        Ok(Self { packets })
    }

    /// The packets, by their times since the first, and their sizes.
    pub fn packets(&self) -> impl Iterator<Item = (Duration, Bytes)> {
        self.packets.iter().copied()
    }
}

/// Sends a recording's packets, once.
#[derive(Clone, Debug)]
pub struct Replay {
    flow: FlowId,
    start: Instant,
    recording: Recording,
    next: usize,
}

impl Replay {
    /// Sends the first packet at `start`, and each other so much later as it was.
    #[must_use]
    pub const fn new(flow: FlowId, start: Instant, recording: Recording) -> Self {
        Self { flow, start, recording, next: 0 }
    }
}

impl Endpoint for Replay {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet<Datagram>) {}

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        self.poll_timeout().filter(|at| *at <= now)?;
        let (_, size) = self.recording.packets[self.next];
        self.next += 1;
        Some(Datagram::packet(self.flow, size, Payload::Filler))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.recording.packets.get(self.next).map(|(at, _)| self.start + *at)
    }
}
