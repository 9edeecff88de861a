//! Packets of a path that are under way: sent, and nothing known of them.

use std::collections::VecDeque;
use std::sync::Arc;

use selvedge_data_net_rate::{Delay, Report, UNDER_WAY_MAX};
use selvedge_units::{Bytes, Instant};

use crate::datagram::{Code, StreamId};
use crate::protection::Worth;

/// A packet that the bond holds until it is known to have arrived.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) stream: StreamId,
    pub(crate) sequence: u32,
    pub(crate) deadline: Instant,
    pub(crate) packet: Arc<[u8]>,
    /// What it takes on the wire.
    pub(crate) size: Bytes,
    /// What its loss costs.
    pub(crate) worth: Worth,
    /// If it is a parity, its place in the code; the sequence is that of the first packet covered.
    pub(crate) code: Option<Code>,
}

/// What a report says of the packets that were under way.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) lost: Vec<Held>,
    /// Sizes of those that arrived or are lost, in the order in which they were sent.
    pub(crate) sizes: Vec<(Bytes, bool)>,
    /// The least and the longest delay.
    pub(crate) delays: Option<[Delay; 2]>,
}

/// By number, from the first on. A probe holds no packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flight {
    first: u64,
    packets: VecDeque<(Instant, Bytes, Option<Held>)>,
}

impl Flight {
    /// The number of the packet that is sent next.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// When the oldest of them was sent.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.packets.front().map(|(sent, ..)| *sent)
    }

    /// The packet that was sent last, if it was not a probe.
    pub(crate) fn newest(&self) -> Option<&Held> {
        self.packets.back()?.2.as_ref()
    }

    pub(crate) fn handle_sent(&mut self, now: Instant, size: Bytes, held: Option<Held>) {
        if self.packets.len() == UNDER_WAY_MAX {
            self.packets.pop_front();
            self.first += 1;
        }
        self.packets.push_back((now, size, held));
    }

    /// Takes what a report names; what was sent before and is not named is lost, since reports are repeated. `None`
    /// for a report of packets that were never sent, or of nothing new.
    pub(crate) fn handle_report(&mut self, report: &Report) -> Option<Seen> {
        let end = report.first.saturating_add(report.packets.len() as u64);
        if end > self.next() || end <= self.first {
            return None;
        }
        let mut seen = Seen::default();
        while self.first < end {
            let (sent, size, held) = self.packets.pop_front()?;
            let at = self.first.checked_sub(report.first);
            self.first += 1;
            let arrival = at.and_then(|at| report.packets[at as usize]);
            seen.sizes.push((size, arrival.is_some()));
            let Some(arrival) = arrival else {
                seen.lost.extend(held);
                continue;
            };
            let delay = Delay::between(sent, arrival.at);
            let [least, most] = seen.delays.unwrap_or([delay; 2]);
            seen.delays = Some([least.min(delay), most.max(delay)]);
        }
        Some(seen)
    }

    /// Takes all packets, since the path may be gone; their numbers stay used.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Held> + use<> {
        self.first = self.next();
        std::mem::take(&mut self.packets).into_iter().filter_map(|(.., held)| held)
    }
}
