//! The packets of a source that were sent of late, by sequence number.

use std::collections::VecDeque;

use selvedge_data_net_rate::UNDER_WAY_MAX;
use selvedge_units::{Duration, Instant};

/// Bytes that are kept for retransmission, at most.
const KEPT_MAX: usize = 4 << 20;
/// A packet is sent again at most so often.
const TIMES_MAX: u8 = 3;

/// A packet that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// Its number among all packets to the receiver.
    pub(crate) number: u64,
    /// When its frame is due.
    pub(crate) deadline: Instant,
    pub(crate) packet: Box<[u8]>,
    /// When it was sent last, and how often again.
    sent: Instant,
    times: u8,
}

/// Packets of successive sequence numbers: at most 8192, and 4 MiB.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    first: u16,
    packets: VecDeque<Kept>,
    bytes: usize,
}

impl History {
    /// A packet was sent. A gap in the sequence numbers begins anew.
    pub(crate) fn handle_sent(
        &mut self,
        now: Instant,
        sequence: u16,
        number: u64,
        deadline: Instant,
        packet: Box<[u8]>,
    ) {
        if self.first.wrapping_add(self.packets.len() as u16) != sequence {
            *self = Self { first: sequence, ..Self::default() };
        }
        self.bytes += packet.len();
        self.packets.push_back(Kept { number, deadline, packet, sent: now, times: 0 });
        while self.packets.len() > UNDER_WAY_MAX || self.bytes > KEPT_MAX {
            let Some(oldest) = self.packets.pop_front() else { return };
            self.bytes -= oldest.packet.len();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// The number of a packet among all packets to the receiver.
    pub(crate) fn number_of(&self, sequence: u16) -> Option<u64> {
        let at = usize::from(sequence.wrapping_sub(self.first));
        self.packets.get(at).map(|kept| kept.number)
    }

    /// The packet that was sent last.
    pub(crate) fn newest(&self) -> Option<&[u8]> {
        self.packets.back().map(|kept| &*kept.packet)
    }

    /// A packet that is requested, if it can still be in time and was not sent within the last round trip.
    pub(crate) fn request(
        &mut self,
        now: Instant,
        sequence: u16,
        round_trip: Duration,
    ) -> Option<&Kept> {
        let at = usize::from(sequence.wrapping_sub(self.first));
        let kept = self.packets.get_mut(at)?;
        let is_again = kept.times > 0 && now.since(kept.sent) < round_trip;
        if kept.times == TIMES_MAX || is_again || now > kept.deadline {
            return None;
        }
        (kept.sent, kept.times) = (now, kept.times + 1);
        Some(kept)
    }
}
